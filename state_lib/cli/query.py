"""``holdfast query`` and ``holdfast stores``."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(name="query")(query)
    app.command(name="stores")(stores)


App = Annotated[str, typer.Argument(metavar="APP", help="Application.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one entry a line.")]


def query(  # noqa: PLR0913, PLR0917 - one parameter for each option
    app: App,
    store: Annotated[str, typer.Argument(metavar="STORE", help="Store of it.")],
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="KEY",
            help="One key: text, a number, a date, hexadecimal for bytes, a JSON object for "
            "several columns.",
        ),
    ] = None,
    first: Annotated[
        str | None,
        typer.Option("--from", help="First key; of window stores first start, ms or ISO 8601."),
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", help="Last key; of window stores last start.")
    ] = None,
    prefix: Annotated[str | None, typer.Option(help="Start of the keys.")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Most entries shown.")] = 100,
    as_json: AsJson = False,
    position: Annotated[
        bool, typer.Option("-v", "--position", help="Show at which commits the answer was read.")
    ] = False,
) -> None:
    """Look into a store: committed state, asked of the hosts that own it.

    Exit code 1 if the key is not there. With --json the position goes to standard error.

    [bold]Examples[/bold]

      holdfast query flights aircraft N14228

      holdfast query flights aircraft --prefix N1 --limit 20

      holdfast query flights routes '{"origin": "JFK", "dest": "LAX"}'

      holdfast query flights routes --prefix '{"origin": "JFK"}'

      holdfast query flights departures_by_hour JFK --from 2013-07-01 --to 2013-07-01T23:00

      holdfast query word_count counts --from a --to b --json
    """
    from itertools import islice

    from state_lib.cli._query import connect, find, show

    with connect(limit + 1) as client:
        rows = find(client, app, store, key, (first, last), prefix)
        shown = list(islice(rows, limit))
        more = next(rows, None) is not None
    show(shown, rows.position if position else None, as_json=as_json)
    if more:
        typer.echo(f"the first {limit}; there are more: raise --limit", err=True)


def stores(app: App, as_json: AsJson = False) -> None:
    """Show an application's stores and where its tasks stand, over all hosts.

    [bold]Examples[/bold]

      holdfast stores flights

      holdfast stores flights --json | python -m json.tool
    """
    import json

    from rich.console import Console

    from state_lib.cli._query import connect, store_tables

    with connect() as client:
        found = client.stores(app)
    if as_json:
        typer.echo(json.dumps(found))
        return
    for table in store_tables(found):
        Console().print(table)
