"""Properties that are passed through to librdkafka and to Spark, by their own names.

One whose name ends in ``_file`` is of the name before that, and its value stands in that file:
secrets are given so and in no other way, and read where they are used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode

from state_lib.kafka_login import read_secret

FILE_ENDING = "_file"
SECRETS = (
    "secret|password|passphrase|token|access[.]?key|account[.]?key|private[.]?key|[.]key[.]pem|jaas"
    "|oauthbearer[.]config"
)
"""What names of secrets have in them, as Java and Python understand it; case does not matter."""
_SECRET = re.compile(f"(?i){SECRETS}")
# Names with such a word that are no secrets: a secret's location, length, lifetime or provider.
_NO_SECRET = re.compile(
    r"(?i)(secrets[.]|secretKeyRef|secretBitLength|"
    r"(url|uri|file|path|location|provider|class|enabled|required|type|algorithm|id|name"
    r"|endpoint|interval|ttl|timeout|lifetime|expiry|ms|length|size)$)"
)


def dotted(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"a": {"b": 1}}`` as ``{"a.b": 1}``: TOML reads ``a.b = 1`` as the first."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        inner = isinstance(value, Mapping)
        found |= dotted(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return found


def is_file(name: str) -> bool:
    """Whether a property's value is the path of a file with its value."""
    return name.endswith(FILE_ENDING)


def resolved(properties: Mapping[str, str], setting: str) -> dict[str, str]:
    """The properties with what their files hold.

    Raises:
        ConfigurationError: a file cannot be read, or holds anything but one line.
    """
    return {
        name.removesuffix(FILE_ENDING): read_secret(Path(value), f"{name} of {setting}")
        if is_file(name)
        else value
        for name, value in sorted(properties.items())  # so that a file overrides a plain value
    }


def _read(given: Any) -> Any:
    """From JSON, as variables have it, or from a table of the file."""
    if isinstance(given, str):
        try:
            given = orjson.loads(given)
        except orjson.JSONDecodeError:
            raise ValueError('it must be JSON, such as {"name.of.it": "value"}') from None
    if not isinstance(given, Mapping):
        return given
    return {name: _text(name, value) for name, value in dotted(given).items()}


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str | int | float):
        raise ValueError(f"{name}: text, a number, or true or false is needed")  # noqa: TRY004
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return str(Path(text).expanduser().absolute()) if is_file(name) else text


def _no_secrets(properties: dict[str, str]) -> dict[str, str]:
    plain = [n for n in properties if _SECRET.search(n) and not _NO_SECRET.search(n)]
    if plain:
        raise ValueError(
            f"{plain[0]} is a secret: put it into a file, and its path into "
            f'"{plain[0]}{FILE_ENDING}"'
        )
    return properties


Properties = Annotated[
    dict[str, str], NoDecode, BeforeValidator(_read), AfterValidator(_no_secrets)
]


def refusing(ours: Mapping[str, str]) -> Callable[[dict[str, str]], dict[str, str]]:
    """A validator that refuses properties that are not free.

    Args:
        ours: name of a property → what to do instead.
    """

    def check(properties: dict[str, str]) -> dict[str, str]:
        for given in properties:
            name = given.removesuffix(FILE_ENDING)
            if name in ours:
                raise ValueError(f"{name} is not free: {ours[name]}")
        return properties

    return check
