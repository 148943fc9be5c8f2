"""Where each setting comes from: a flag, the environment, the file, or the default."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr

from state_lib.config import FILE, PREFIX, Settings
from state_lib.settings import PROPERTIES, SECTIONS
from state_lib.settings.file import SectionedFile

Where = Literal["flag", "environment", "file", "default"]
MASK = "********"


@dataclass(frozen=True)
class Setting:
    """One setting as it counts now.

    Attributes:
        section: of the file.
        name: as in the file; a property has a line of its own.
        value: plain data; secrets are masked.
        origin: where it comes from. What depends on others (``bootstrap_servers`` on the local
            broker's port) and was not given is a default.
        variable: the environment variable that sets it.
        description: what it is.
    """

    section: str
    name: str
    value: Any
    origin: Where
    variable: str
    description: str

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def origins(settings: Settings, flags: Collection[str] = ()) -> list[Setting]:
    """Every setting by section; properties that are passed through have lines of their own.

    Args:
        settings: as loaded.
        flags: names of settings that were given as flags.
    """
    file = SectionedFile(Settings)()
    given = {name.upper() for name, value in os.environ.items() if value}
    found: list[Setting] = []
    for section, model in SECTIONS.items():
        for name, field in model.model_fields.items():
            variable = PREFIX + name.upper()
            origin: Where = "default"
            if name in flags:
                origin = "flag"
            elif variable in given:
                origin = "environment"
            elif name in file:
                origin = "file"
            about, value = field.description or "", getattr(settings, name)
            values = value if name == PROPERTIES.get(section) and value else {name: _plain(value)}
            found += [Setting(section, n, v, origin, variable, about) for n, v in values.items()]
    return found


def file_in_use() -> Path | None:
    """The file that settings were read from; None if there is none here."""
    path = Path(FILE).absolute()
    return path if path.is_file() else None


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return MASK
    return str(value) if isinstance(value, Path) else value
