"""``holdfast.toml``: settings in their sections, and properties beside them."""

from __future__ import annotations

import tomllib
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic_settings import TomlConfigSettingsSource

from state_lib.errors import ConfigurationError
from state_lib.settings import PROPERTIES, SECTIONS, section_of
from state_lib.settings.properties import dotted


class SectionedFile(TomlConfigSettingsSource):
    """Reads the file as if its settings stood in no section: by name, as variables have them."""

    def _read_file(self, file_path: Path | Traversable) -> dict[str, Any]:
        try:
            content = super()._read_file(file_path)
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(f"{file_path} is no TOML: {error}") from error
        found: dict[str, Any] = {}
        for section, settings in content.items():
            if section not in SECTIONS:
                raise _misplaced(file_path, section)
            if not isinstance(settings, dict):
                raise ConfigurationError(f"{file_path}: [{section}] is a section, not a setting")
            found |= _of_section(file_path, section, settings)
        return found


def _of_section(path: Path | Traversable, section: str, settings: dict[str, Any]) -> dict[str, Any]:
    own = SECTIONS[section].model_fields
    found = {name: value for name, value in settings.items() if name in own}
    others = dotted({name: value for name, value in settings.items() if name not in own})
    into = PROPERTIES.get(section)
    for name in others:
        if into is None or "." not in name:
            raise _misplaced(path, name, section)
    table = found.get(into, {}) if into else None
    if into is not None and others:
        if not isinstance(table, dict):
            raise ConfigurationError(
                f"{path}: [{section}] has {into} as text and {next(iter(others))} beside it: write "
                f"{into} as a table",
                setting=into,
            )
        found[into] = {**dotted(table), **others}
    return found


def _misplaced(path: Path | Traversable, name: str, section: str = "") -> ConfigurationError:
    """Names no value: an unknown setting may be a secret's, misspelt."""
    belongs = section_of(name)
    seen = f"[{section}] {name}" if section else name
    why = (
        f"it belongs into the section [{belongs}]"
        if belongs
        else f"there is no such setting. 'holdfast config' shows all, in sections {list(SECTIONS)}"
    )
    return ConfigurationError(f"{path}: {seen}: {why}", setting=name)
