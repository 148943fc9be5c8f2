"""How a driver ends, for its supervisor."""

IN_LOG = "last words"
"""The event of its log that says how it ended."""

EXIT_STOPPED = 0
"""It was asked to stop."""
EXIT_FAILED = 1
"""Start it again."""
EXIT_SUPERSEDED = 3
"""Another driver runs the application: do not start it again."""
EXIT_REFUSED = 4
"""It will be refused again until somebody corrects what it said: do not start it again."""
EXIT_CONFIGURATION = 5
"""What it declares, or a setting, is wrong: it has not begun. Do not start it again."""
