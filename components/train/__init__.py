"""Trains the model."""
