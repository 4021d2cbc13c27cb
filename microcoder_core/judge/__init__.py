"""Runs programs on tests in a sandbox and says what is right. Never imports torch."""
