"""Evaluates a model."""
