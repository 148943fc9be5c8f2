"""Command lines of `holdfast` as text: found in shell, and parsed without running them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from state_lib.cli import app

NAME = "holdfast"
ROOT = get_command(app)
_FOUND = re.compile(r"(?:^|[\s(=])holdfast +(?P<words>(?:'[^']*'|[^'|;&)<>#])*)")
_PLACEHOLDER = re.compile(r"…|\.\.\.")


def typed(line: str) -> list[list[str]]:
    """The arguments of each call of ``holdfast`` in a line of shell, or in code within a text."""
    flat = " ".join(line.split())
    return [shlex.split(found["words"]) for found in _FOUND.finditer(flat)]


def parsed(words: list[str]) -> str | None:
    """Parse a whole command line as the command itself would; None, or what is wrong with it."""
    command, rest = ROOT, list(words)
    context: Any = None
    try:
        while isinstance(command, TyperGroup):
            context = command.make_context(command.name or NAME, rest, parent=context)
            left = [*context._protected_args, *context.args]
            _, found, rest = command.resolve_command(context, left)
            if found is None:
                return f"no command {left}"
            command = found
        command.make_context(command.name, rest, parent=context)
    except Exception as error:  # noqa: BLE001 - of the parser, whatever it is
        return f"{type(error).__name__}: {error}"
    return None


def problem(words: list[str]) -> str | None:
    """Whether commands and options of a part of a command line exist; values may be words."""
    command, rest = ROOT, list(words)
    while isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        found = command.commands.get(name)
        if found is None:
            return None if _PLACEHOLDER.fullmatch(name) else f"no command {name!r}"
        command = found
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    for word in rest:
        if word.startswith("-") and word.partition("=")[0] not in {*known, "-h", "--help"}:
            return f"{command.name!r} has no option {word!r}"
    return None


def examples() -> Iterator[str]:
    """The command lines that ``--help`` of all commands shows."""
    waiting = [ROOT]
    while waiting:
        command = waiting.pop()
        if isinstance(command, TyperGroup):
            waiting.extend(command.commands.values())
        for line in (command.help or "").splitlines():
            if line.startswith("  ") and NAME in line:
                yield line.strip()
