"""The pipelines: what runs after what; compile, run locally."""
