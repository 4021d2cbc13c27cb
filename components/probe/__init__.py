"""Chooses the temperature."""
