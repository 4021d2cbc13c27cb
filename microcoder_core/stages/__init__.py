"""The stages: import, curate, probe, train, evaluate, promote, report. One function each, called by the CLI and by the components alike."""
