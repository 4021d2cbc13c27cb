"""Writes the report."""
