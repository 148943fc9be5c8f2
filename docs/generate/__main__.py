"""``python -m docs.generate FOLDER``: writes the pages that zensical.toml reads."""

from __future__ import annotations

import argparse
from pathlib import Path

from docs.generate.pages import ROOT, gather


def main() -> None:
    """Write them, and say how many there are."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to; what is there already is removed")
    found = gather(ROOT, parser.parse_args().folder)
    print(f"docs: {len(found)} files")  # noqa: T201 - for who builds


main()
