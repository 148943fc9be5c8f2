"""What ``holdfast drill`` prints."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from state_lib.cli._tables import table
from state_lib.digests.drill import Drill, rate
from state_lib.words import size


def show(console: Console, found: Drill) -> None:
    """A row per task, then what failed."""
    console.print(
        table(
            {
                "task": t.partition,
                "host": t.host,
                "snapshot": t.snapshot,
                "fetched": size(t.fetched_bytes),
                "records": f"{t.records:,}",
                "records/s": f"{rate(t.records, t.replay_s):,.0f}",
                "seconds": f"{t.seconds:,.2f}",
                "result": f"DIFFERENT: {', '.join(t.different)}" if t.different else "equal",
            }
            for t in found.tasks
            if t.error is None
        )
    )
    app = found.topology.app
    for task in found.tasks:
        for line in task.passed_over:
            _say(console, f"{app}/{task.partition}: passed over {line}", "yellow")
        if task.error is not None:
            _say(console, f"{app}/{task.partition}: {task.error['message']}", "red")
    if found.alarms:
        step = f"'holdfast digest {app} --against changelog' tells which side is wrong"
        _say(console, f"ALARM: not what a restore would give, seen twice: {step}", "red")


def _say(console: Console, line: str, style: str) -> None:
    console.print(Text(line, style=style), soft_wrap=True)
