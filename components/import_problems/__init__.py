"""Imports problems."""
