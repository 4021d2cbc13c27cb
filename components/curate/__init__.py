"""Curates problems."""
