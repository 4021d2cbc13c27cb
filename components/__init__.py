"""KFP components: one folder a stage, each a typed signature and one call into the core."""
