"""Python functions within expressions, evaluated before them: docs/adr/0022."""
