"""What a state host answers over HTTP: the OpenAPI of its FastAPI application, and a page of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from docs.generate.host import host_of_nobody
from state_lib.host.http.app import create_app

INTRO = """# HTTP of a state host

Made from the OpenAPI of the host's application, which each host shows at `/openapi.json` and which
lies here as [openapi.json](openapi.json). Where a token is configured, every request but those for
liveness, readiness and the description carries it as `Authorization: Bearer …`.

"""


def schema() -> dict[str, Any]:
    """The description."""
    tasks, metrics = host_of_nobody()
    return create_app(tasks, None, metrics).openapi()


def as_json(found: dict[str, Any]) -> str:
    """For programs."""
    return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode() + "\n"


def page(found: dict[str, Any]) -> str:
    """For people: each request, then each form of an answer."""
    lines = [found["info"]["description"].strip(), "", "## Requests", ""]
    for path, methods in found["paths"].items():
        for method, request in methods.items():
            lines += _request(f"{method.upper()} {path}", request)
    lines += ["## Forms", ""]
    for name, form in found["components"]["schemas"].items():
        lines += _form(name, form)
    return INTRO + "\n".join(lines).strip() + "\n"


def _request(title: str, request: dict[str, Any]) -> Iterator[str]:
    yield from (f"### `{title}`", "", f"{request.get('summary', '')}.", "")
    if about := request.get("description"):
        yield from (about, "")
    if parameters := request.get("parameters"):
        yield from ("| parameter | in | type | meaning |", "|---|---|---|---|")
        for one in parameters:
            name = f"`{one['name']}`" + (", required" if one.get("required") else "")
            yield _row(name, one["in"], _type(one["schema"]), one.get("description", ""))
        yield ""
    yield from ("| status | answer | meaning |", "|---|---|---|")
    for status, one in request["responses"].items():
        content = one.get("content", {})
        forms = [_type(kind.get("schema", {})) or name for name, kind in content.items()]
        yield _row(status, ", ".join(forms), one.get("description", ""))
    yield ""


def _form(name: str, form: dict[str, Any]) -> Iterator[str]:
    yield from (f"### `{name}`", "")
    if about := form.get("description"):
        yield from (about, "")
    if fields := form.get("properties"):
        yield from ("| field | type | meaning |", "|---|---|---|")
        for field, one in fields.items():
            yield _row(f"`{field}`", _type(one), one.get("description", ""))
        yield ""


def _row(*cells: str) -> str:
    clean = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return "| " + " | ".join(clean) + " |"


def _type(found: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "$ref" in found:
        name = found["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if several := found.get("anyOf"):
        return " or ".join(_type(one) for one in several)
    if found.get("type") == "array":
        return f"list of {_type(found.get('items', {})) or 'anything'}"
    more = found.get("additionalProperties")
    if isinstance(more, dict):
        return f"object of {_type(more) or 'anything'}"
    return str(found.get("type", ""))
