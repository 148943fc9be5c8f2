"""The application: finds the command modules beside it and turns our errors into exit codes.

Exit codes: 0 done, 1 a `HoldfastError` (one red message), 2 wrong usage; commands may add others.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from state_lib.errors import HoldfastError
from state_lib.extras import missing

# The order in --help; other commands follow in alphabetical order.
ORDER = ("demo", "up", "down", "status", "logs")
_PIPED = "160"
"""How wide tables may be in files and pipes, which have no width: 80, the usual, folds words."""


class _Group(TyperGroup):
    """Shows a `HoldfastError` as a message: it says what to do; a traceback would hide that."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            raise _refusal(error) from error
        except ModuleNotFoundError as error:
            wanted = missing(error)
            if wanted is None:
                raise
            raise _refusal(wanted) from error


def _refusal(error: HoldfastError) -> typer.Exit:
    console = Console(stderr=True, soft_wrap=True)
    console.print(f"Error: {error.message}", style="red", markup=False, highlight=False)
    return typer.Exit(1)


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,  # locals hold tokens
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - click calls it with the flag's value
    if wanted:
        typer.echo(f"holdfast {version('holdfast')}")
        raise typer.Exit


@app.callback()
def _root(
    home: Annotated[
        Path | None,
        typer.Option(help="Directory of local state. [dim]Default: .holdfast here[/dim]"),
    ] = None,
    show_version: Annotated[  # noqa: ARG001 - handled by its callback
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Kafka-Streams-like state for PySpark.

    Settings come from HOLDFAST_* variables and from holdfast.toml in the working directory.
    """
    if home is not None:
        os.environ["HOLDFAST_HOME"] = str(home)  # so that every command and child sees it


def _register() -> None:
    package = importlib.import_module("state_lib.cli")
    names = [m.name for m in pkgutil.iter_modules(package.__path__) if m.name[0] != "_"]
    for name in sorted(names, key=lambda one: (ORDER.index(one) if one in ORDER else 99, one)):
        importlib.import_module(f"state_lib.cli.{name}").register(app)


def main() -> None:
    """The console script."""
    if not sys.stdout.isatty():
        os.environ.setdefault("COLUMNS", _PIPED)
    app()


_register()
