"""The schema that a topic is read by, as it is declared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import structlog

from state_lib.config import Settings
from state_lib.driver.patience import patiently
from state_lib.driver.readers import of_before
from state_lib.errors import ConfigurationError, RegistryAway
from state_lib.executor.avro.registry import newest, subject_of
from state_lib.executor.avro.schema import pinned

log = structlog.get_logger(__name__)


def reader_of(topic: str, given: object, settings: Callable[[], Settings], app: str = "") -> str:
    """A reader's schema in the form of a topology.

    Args:
        topic: the topic.
        given: its JSON, or the path of a file that holds it; None: the newest of ``<topic>-value``.
        settings: where the registry is, asked for only if it is needed.
        app: whose stream it is; an unfinished batch is finished with the schema of before.

    Raises:
        ConfigurationError: it is none, or Spark has no columns for it; the registry has none.
        RegistryAway: it was away for as long as a batch would wait for it.
        RegistryRefused: it cannot be asked.
    """
    if given is None:
        return _newest(topic, settings(), app)
    if isinstance(given, Path):
        return pinned([_read(given)], f"topic {topic!r}: {given}")
    if isinstance(given, str):
        return pinned([given], f"topic {topic!r}: what is given as schema")
    raise ConfigurationError(
        f"topic {topic!r}: format='avro' takes a schema of Avro, as JSON or as the Path of a "
        f"file, not {given!r}. Without one it is the newest in the Schema Registry",
        topic=topic,
    )


def _newest(topic: str, settings: Settings, app: str) -> str:
    registry = settings.schema_registry()
    if registry is None:
        raise ConfigurationError(
            f"topic {topic!r}: there is no schema to read it by. Set schema_registry_url in "
            "[kafka], or give one: app.stream(..., schema=Path('file.avsc'))",
            topic=topic,
        )
    subject, patience = subject_of(topic), settings.exchange_timeout_s

    def ask() -> tuple[tuple[str, ...], int]:
        try:
            return newest(registry, subject)
        except RegistryAway as error:
            log.warning("the stream is declared once the registry answers", why=error.message)
            raise

    texts, version = patiently(ask, patience)
    text = pinned(texts, f"topic {topic!r}: version {version} of {subject!r}")
    before = of_before(settings, app, topic, text) if app else None
    if before is not None:
        log.warning(
            "a batch is half done: read by the schema that it was begun with; start the job again "
            "to read by the newest",
            topic=topic, subject=subject, version=version,
        )  # fmt: skip
        return before
    log.info("read by the newest schema", topic=topic, subject=subject, version=version)
    return text


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigurationError(f"cannot read the schema {path}: {why}", path=str(path)) from error
