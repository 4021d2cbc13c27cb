"""The nano model: a Qwen3 of about a million parameters, shipped with the package, that goes through all that a 4B model goes through."""

from pathlib import Path

NANO_MODEL = Path(__file__).parent / "model"
"""Folder of the shipped weights, tokenizer and prompt template; `--model nano` means this one."""
