"""What an application's state takes, how it grows, and how long it would take to restore."""
