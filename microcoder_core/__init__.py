"""Core of microcoder: every stage of MicroCoder-GRPO post-training, free of Kubeflow."""

__version__ = "0.1.0"
