"""The documentation as data: its pages, and the code, links and headings of each."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from docs.generate.pages import BESIDE, generated

ROOT = Path(__file__).parents[2]
HISTORY = "CHANGELOG.md"
"""Says what was: its commands and settings need not be there any more."""
_NO_SLUG = re.compile(r"[^\w\s-]")


@dataclass(frozen=True)
class Block:
    """A block of code: its language, what the fence says behind it, its text and first line."""

    language: str
    about: str
    text: str
    line: int

    @property
    def title(self) -> str:
        """Of ``title="…"``; empty without."""
        found = re.search(r'title="([^"]*)"', self.about)
        return found[1] if found else ""

    def commands(self) -> list[str]:
        """Of a console: what stands behind ``$``; a line that ends with a backslash goes on."""
        text = self.text.replace("\\\n", " ")
        return [line[2:] for line in text.splitlines() if line.startswith("$ ")]


@dataclass(frozen=True)
class Page:
    """One page, by its path below the root."""

    path: str
    blocks: list[Block] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)

    @property
    def anchors(self) -> set[str]:
        """As Python-Markdown and GitHub make them of headings that stand once."""
        plain = (_NO_SLUG.sub("", one.lower()).strip() for one in self.headings)
        return {re.sub(r"[\s-]+", "-", one) for one in plain}


def parse(path: str, text: str) -> Page:
    """Read Markdown."""
    page = Page(path)
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "fence":
            language, _, about = token.info.partition(" ")
            line = token.map[0] + 1 if token.map else 0
            page.blocks.append(Block(language, about, token.content, line))
        elif token.type == "inline":
            children = token.children or []
            page.code.extend(one.content for one in children if one.type == "code_inline")
            page.links.extend(str(one.attrs["href"]) for one in children if one.type == "link_open")
            if before is not None and before.type == "heading_open":
                page.headings.append("".join(one.content for one in children))
    return page


@cache
def written() -> dict[str, Page]:
    """Pages that people write, by path: of docs/, and those beside it that the site has."""
    names = [name for name in BESIDE if name.endswith(".md")]
    names += [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))]
    return {name: parse(name, (ROOT / name).read_text(encoding="utf-8")) for name in names}


@cache
def made() -> dict[str, Page]:
    """Pages that are made from the code, by path."""
    pages = {str(path): text for path, text in generated().items() if path.suffix == ".md"}
    return {name: parse(name, text) for name, text in pages.items()}


def current() -> list[Page]:
    """Written pages that speak of the present."""
    return [page for name, page in written().items() if name != HISTORY]


def site() -> dict[str, Any]:
    """What zensical.toml says."""
    found: dict[str, Any] = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    return found


def navigation(entry: Any = None) -> Iterator[str]:
    """Paths of all pages in the site's navigation."""
    found = site()["nav"] if entry is None else entry
    if isinstance(found, str):
        yield found
    elif isinstance(found, dict):
        yield from navigation(list(found.values()))
    else:
        for one in found:
            yield from navigation(one)
