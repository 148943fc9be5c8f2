"""The command line, by typer's own generator."""

from __future__ import annotations

import re

import typer
from typer.cli import get_docs_for_click
from typer.main import get_command

from state_lib.cli import app

NAME = "holdfast"
_MARKUP = re.compile(r"\[/?(?:bold|dim)\]")
_EXAMPLES = re.compile(r"^\[bold\]Examples\[/bold\]\n+((?:  \S.*\n+)+)", re.MULTILINE)


def page() -> str:
    """Every command with its arguments, options and examples."""
    root = get_command(app)
    context = typer.Context(root, info_name=NAME, help_option_names=["-h", "--help"])
    text = get_docs_for_click(obj=root, ctx=context, name=NAME, title="Commands")
    return _MARKUP.sub("", _EXAMPLES.sub(_as_code, text)).strip() + "\n"


def _as_code(found: re.Match[str]) -> str:
    """Examples are lines that begin with two spaces, one to a paragraph."""
    lines = [line.strip() for line in found[1].splitlines() if line.strip()]
    commands = "\n".join(f"$ {line}" for line in lines)
    return f"**Examples**:\n\n```console\n{commands}\n```\n\n"
