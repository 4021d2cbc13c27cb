"""Presets as YAML: sizes, algorithms, pipeline parameters. A package so that installed wheels carry them."""
