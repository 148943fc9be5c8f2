"""Job files: which of them are streams, and what belongs to one."""

from __future__ import annotations

from pathlib import Path

COMPANIONS = ("_load", "_audit")
"""Endings of the files beside a stream's: its loader and its audit."""


def streams(folder: Path) -> tuple[Path, ...]:
    """Files in a jobs folder that declare a stream: neither private nor a companion."""
    return tuple(
        sorted(
            path
            for path in folder.glob("*.py")
            if not path.stem.startswith("_") and not path.stem.endswith(COMPANIONS)
        )
    )
