"""The pipelines: their DAGs, and how they are compiled and run."""
