"""The command line `microcoder`: one module a command, imported only when called."""
