"""The application of the soak, and where its files are."""

from __future__ import annotations

from pathlib import Path

APP = "soak"
SOURCE = f"{APP}-source"
DAGS = Path(__file__).with_name("dags")
AUDITS = Path(__file__).with_name("audits")
"""What recomputes the application, for its audit DAG."""
STREAM, RESTORE, WATCH = (f"{APP}_{w}" for w in ("stream", "restore", "watch"))
PERIODIC = tuple(
    f"{APP}_{w}"
    for w in (
        *("verify", "snapshots", "prune", "drill", "audit", "capacity"),
        *("savepoint", "verify_snapshots"),
    )
)
BY_HAND = tuple(f"{APP}_{w}" for w in ("repair", "restore_by_hand"))
"""Begun by people; here by nobody."""
ALL = (STREAM, RESTORE, WATCH, *BY_HAND, *PERIODIC)
