"""The command ``holdfast``.

One module per command. Each has a ``register(app)`` and keeps its heavy imports inside the
function, so that ``holdfast --help`` answers at once.
"""

from state_lib.cli._app import app, main

__all__ = ["app", "main"]
