"""Where Airflow's files are, and the secrets among them: made once, for their owner only."""

from __future__ import annotations

import json
import os
import secrets
import string
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path

from state_lib.config import Settings

ADDRESS = "127.0.0.1"
USER = "admin"
PASSWORD_LETTERS = string.ascii_letters + string.digits
PASSWORD_LENGTH = 16
FERNET_BYTES = 32  # size of a Fernet key
KEY_BYTES = 64  # size of the digests that Airflow signs with


@dataclass(frozen=True)
class AirflowHome:
    """The layout of ``AIRFLOW_HOME``."""

    path: Path

    @property
    def config(self) -> Path:
        """``airflow.cfg``, written by each start; it holds secrets."""
        return self.path / "airflow.cfg"

    @property
    def passwords(self) -> Path:
        """Name and password of who may log in, in the form of Airflow's SimpleAuthManager."""
        return self.path / "passwords.json"

    @property
    def keys(self) -> Path:
        """The keys by which the components trust each other, and the one that encrypts."""
        return self.path / "keys.json"

    @property
    def prepared(self) -> Path:
        """Which Airflow prepared the database, and to which revision."""
        return self.path / "prepared.json"

    @property
    def database(self) -> Path:
        """Airflow's database, if it is SQLite."""
        return self.path / "airflow.db"

    @property
    def logs(self) -> Path:
        """Logs of tasks."""
        return self.path / "logs"

    def create(self) -> None:
        """Make the directory, the password and the keys, unless they are there.

        The password is made here and not by the api-server, which would print it into its log.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.passwords.exists():
            password = "".join(secrets.choice(PASSWORD_LETTERS) for _ in range(PASSWORD_LENGTH))
            write_private(self.passwords, json.dumps({USER: password}) + "\n")
        if not self.keys.exists():
            fernet = urlsafe_b64encode(secrets.token_bytes(FERNET_BYTES)).decode()
            keys = {name: secrets.token_urlsafe(KEY_BYTES) for name in ("jwt", "api")}
            write_private(self.keys, json.dumps({"fernet": fernet, **keys}) + "\n")

    def password(self) -> str:
        """The password of `USER`."""
        return str(json.loads(self.passwords.read_text())[USER])


@dataclass(frozen=True)
class Login:
    """How a person gets in.

    Attributes:
        url: The page to open.
        user: Whom to log in as.
        password_file: Where the password is; None: Airflow is open to everyone on this machine.
    """

    url: str
    user: str
    password_file: str | None


def login(settings: Settings) -> Login:
    """Where to open Airflow, and as whom."""
    home = AirflowHome(settings.airflow_home)
    file = None if settings.airflow_open_admin else str(home.passwords)
    return Login(base_url(settings), USER, file)


def base_url(settings: Settings) -> str:
    """Where Airflow's pages and its API are."""
    return f"http://{ADDRESS}:{settings.airflow_port}"


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody else may read, not even for a moment, and never half of it."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    fresh.replace(path)
