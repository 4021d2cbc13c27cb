"""Registers the trained model."""
