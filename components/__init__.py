"""Thin Kubeflow components: a typed signature, a docstring, one call into the core."""
