"""Where problems come from and how they are cleaned: importers, drills, filters."""
