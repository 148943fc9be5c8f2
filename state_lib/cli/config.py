"""``holdfast config``."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="config")(config)


def config(
    context: typer.Context,
    given: Annotated[
        bool, typer.Option("--given", help="Only what differs from the defaults.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show every setting by section, and where it comes from.

    A flag wins over a HOLDFAST_* variable, and that over holdfast.toml in the working directory.
    Secrets are masked.

    [bold]Examples[/bold]

      holdfast config --given

      holdfast --home /tmp/other config --json | python -m json.tool
    """
    import json

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from state_lib.config import FILE, Settings
    from state_lib.origins import file_in_use, origins

    flags = [name for name, value in context.find_root().params.items() if value is not None]
    found = [s for s in origins(Settings.load(), flags) if not given or s.origin != "default"]
    if as_json:
        sections: dict[str, dict[str, object]] = {}
        for one in found:
            sections.setdefault(one.section, {})[one.name] = one.to_json()
        typer.echo(json.dumps(sections, indent=2))
        return
    file = file_in_use()
    table = Table("setting", "value", "from", caption=f"file: {file or f'no {FILE} here'}")
    section = ""
    for one in found:
        if one.section != section:
            section = one.section
            table.add_section()
            table.add_row(Text(f"[{section}]", style="bold"))
        style = "dim" if one.origin == "default" else None
        origin = one.variable if one.origin == "environment" else one.origin
        value = Text("" if one.value is None else str(one.value))
        table.add_row(one.name, value, origin, style=style)
    Console().print(table if found else "all settings have their defaults")
