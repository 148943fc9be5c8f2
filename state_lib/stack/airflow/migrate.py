"""``python -m state_lib.stack.airflow.migrate``: a process of its own, for Airflow's imports.

Airflow reads its configuration while it is imported, so a database is prepared in a new process
with that configuration. It migrates and adds connections in one go: each `airflow` command would
take three seconds to import.
"""

from __future__ import annotations

from state_lib.config import Settings
from state_lib.stack.airflow.connections import wanted


def main() -> None:
    """Migrate the database of this environment's Airflow, and add connections that are missing."""
    from airflow.models.connection import Connection  # noqa: PLC0415 - see above
    from airflow.utils import db  # noqa: PLC0415
    from airflow.utils.providers_configuration_loader import (  # noqa: PLC0415
        providers_configuration_loaded,
    )
    from airflow.utils.session import create_session  # noqa: PLC0415
    from sqlalchemy import select  # noqa: PLC0415

    providers_configuration_loaded(db.upgradedb)()
    with create_session() as session:
        existing = set(session.scalars(select(Connection.conn_id)))
        for one in wanted(Settings.load()):
            if one.id not in existing:
                session.add(
                    Connection(
                        conn_id=one.id,
                        conn_type=one.kind,
                        host=one.host,
                        description=one.description,
                        extra=one.extra,
                    )
                )


if __name__ == "__main__":
    main()
