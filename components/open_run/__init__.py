"""Opens the tracked run of a pipeline run."""
