"""Which files the site is made of: those of the repository, and those that are made here."""

from __future__ import annotations

import shutil
from pathlib import Path

from docs.generate import commands, http, metrics, python, settings

ROOT = Path(__file__).parents[2]
REFERENCE = Path("docs/reference")
BESIDE = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE",
    "benchmarks/README.md",
    "docker/prometheus/rules.yaml",
)
"""What pages of docs/ link to outside of it."""


def gather(root: Path, folder: Path) -> list[Path]:
    """Write all of the site's files below an empty folder; returns their paths, relative to it."""
    if folder.exists():
        shutil.rmtree(folder)
    copied = [Path(name) for name in BESIDE]
    copied += [path.relative_to(root) for path in sorted((root / "docs").rglob("*.md"))]
    for path in copied:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, folder / path)
    made = generated()
    for path, text in made.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return [*copied, *made]


def generated() -> dict[Path, str]:
    """Pages and files that are made from the code, by their path."""
    schema = http.schema()
    return {
        REFERENCE / "commands.md": commands.page(),
        REFERENCE / "settings.md": settings.page(),
        REFERENCE / "http.md": http.page(schema),
        REFERENCE / "metrics.md": metrics.page(),
        REFERENCE / "openapi.json": http.as_json(schema),
        **{REFERENCE / f"{name}.md": python.page(name) for name in python.PAGES},
    }
