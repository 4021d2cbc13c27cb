"""Writes completions: prompt template, Sampler protocol, the transformers sampler."""
