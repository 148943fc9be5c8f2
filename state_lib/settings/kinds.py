"""Kinds of values that several sections have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

MIB = 1 << 20
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0)]
AbsolutePath = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]
