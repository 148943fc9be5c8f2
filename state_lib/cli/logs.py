"""``holdfast logs``."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="logs")(logs)


def logs(
    name: Annotated[
        str | None,
        typer.Argument(help="A service, an application, or 'supervisord'. Default: all."),
    ] = None,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="Lines of each log.")] = 20,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until Ctrl-C.")] = False,
) -> None:
    """Show the ends of the logs: of services, and of the streams that Airflow has launched.

    [bold]Examples[/bold]

      holdfast logs

      holdfast logs kafka -n 100

      holdfast logs host-1 -f

      holdfast logs flights -f
    """
    import subprocess

    from state_lib.config import Settings
    from state_lib.errors import NotFound
    from state_lib.stack import Stack
    from state_lib.stack.logs import last_lines

    stack = Stack(Settings.load())
    existing = stack.paths.all_logs()
    if existing and name:
        known = [path.stem for path in existing]
        if name not in known:
            message = f"no log of {name!r}; there are: {', '.join(known)}."
            raise NotFound(message, name=name, known=known)
        existing = [stack.paths.log(name)]
    if not existing:
        message = f"no logs in {stack.paths.logs} yet; 'holdfast up' starts the stack."
        raise NotFound(message, directory=str(stack.paths.logs))
    if follow:  # tail -F follows rotated files, and is available on every Unix
        try:
            subprocess.run(["tail", "-n", str(lines), "-F", *existing], check=False)  # noqa: S603, S607
        except KeyboardInterrupt:
            raise typer.Exit from None
        return
    for path in existing:
        if len(existing) > 1:
            typer.secho(f"==> {path} <==", bold=True)
        for line in last_lines(path, lines):
            typer.echo(line)
