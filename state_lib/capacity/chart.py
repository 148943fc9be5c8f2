"""Small charts as SVG elements: bars side by side, and lines over time.

Colours are the page's: class ``s0`` is the first series, ``s1`` the second, and so on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor, log10
from xml.etree.ElementTree import Element, SubElement

WIDTH = 720
_LEFT, _RIGHT, _TOP = 130, 90, 24
_BAR, _GAP = 11, 8
_HEIGHT, _BOTTOM, _TICKS = 220, 24, 4

Format = Callable[[float], str]
Points = Sequence[tuple[float, float]]


def bars(
    title: str, series: Sequence[str], rows: Mapping[str, Sequence[float | None]], shown: Format
) -> Element:
    """A group of horizontal bars for each row; one without a value says so.

    Args:
        title: what is shown, also for screen readers.
        series: names of a row's bars.
        rows: label → a value for each of the series; None: not known.
        shown: a value as text.
    """
    most = max((v for values in rows.values() for v in values if v is not None), default=0) or 1
    group = len(series) * _BAR + _GAP
    chart = _svg(title, _TOP + group * len(rows))
    _legend(chart, series)
    for i, (label, values) in enumerate(rows.items()):
        top = _TOP + i * group
        middle = top + len(series) * _BAR / 2
        _text(chart, label, _LEFT - 8, middle + 4, "end")
        for j, value in enumerate(values):
            y = top + j * _BAR
            width = (WIDTH - _LEFT - _RIGHT) * (value or 0) / most
            bar = _add(chart, "rect", x=_LEFT, y=y, width=round(width, 1), height=_BAR - 1)
            bar.set("class", f"s{j}")
            said = "not known" if value is None else shown(value)
            _add(bar, "title").text = f"{label}, {series[j]}: {said}"
            _text(chart, said, _LEFT + width + 6, y + _BAR - 2, "start")
    return chart


def lines(
    title: str,
    series: Mapping[str, Points],
    shown: Format,
    bounds: Mapping[str, float] | None = None,
) -> Element:
    """A line for each series over time, from zero up; a bound is dashed in its series' colour.

    Args:
        title: what is shown.
        series: name → ``(time in ms, value)``, oldest first.
        shown: a value as text.
        bounds: name → what the series may reach.
    """
    bounds = bounds or {}
    every = [point for points in series.values() for point in points]
    chart = _svg(title, _HEIGHT)
    _legend(chart, list(series))
    if not every:
        _text(chart, "nothing was measured yet", WIDTH / 2, _HEIGHT / 2, "middle")
        return chart
    first, last = min(x for x, _ in every), max(x for x, _ in every)
    ticks = scale(max([y for _, y in every] + [bounds[n] for n in series if n in bounds]))
    place = _Place(first, last, ticks[-1])
    for tick in ticks:
        y = place.y(tick)
        _add(chart, "line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y).set("class", "grid")
        _text(chart, shown(tick), _LEFT - 8, y + 4, "end")
    _text(chart, _when(first), _LEFT, _HEIGHT - 6, "start")
    if last > first:
        _text(chart, _when(last), WIDTH - _RIGHT, _HEIGHT - 6, "end")
    for i, (name, points) in enumerate(series.items()):
        if name in bounds:
            y = place.y(bounds[name])
            bound = _add(chart, "line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y)
            bound.set("class", f"l{i} bound")
            _add(bound, "title").text = f"{name}: at most {shown(bounds[name])}"
        _line(chart, i, name, [(place.x(x), place.y(y)) for x, y in points])
        if points:
            _text(chart, shown(points[-1][1]), WIDTH - _RIGHT + 8, place.y(points[-1][1]) + 4)
    return chart


def scale(most: float, ticks: int = _TICKS) -> list[float]:
    """Round numbers from zero to at least ``most``."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / ticks
    power = 10 ** floor(log10(rough))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough * (1 - 1e-9))
    return [i * step for i in range(max(1, ceil(most / step * (1 - 1e-9))) + 1)]


class _Place:
    """From values to pixels."""

    def __init__(self, first: float, last: float, most: float) -> None:
        self._first, self._length, self._most = first, last - first, most

    def x(self, at: float) -> float:
        share = (at - self._first) / self._length if self._length else 0.0
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        room = _HEIGHT - _TOP - _BOTTOM
        return round(_TOP + room * (1 - value / self._most), 1)


def _line(chart: Element, i: int, name: str, at: Sequence[tuple[float, float]]) -> None:
    if len(at) > 1:
        drawn = _add(chart, "polyline", points=" ".join(f"{x},{y}" for x, y in at))
        drawn.set("class", f"l{i}")
        _add(drawn, "title").text = name
    elif at:
        _add(chart, "circle", cx=at[0][0], cy=at[0][1], r=3).set("class", f"s{i}")


def _svg(title: str, height: float) -> Element:
    chart = Element("svg", {"role": "img", "viewBox": f"0 0 {WIDTH} {height:g}"})
    chart.set("aria-label", title)
    return chart


def _legend(chart: Element, series: Sequence[str]) -> None:
    for i, name in enumerate(series):
        x = _LEFT + i * (WIDTH - _LEFT) / max(1, len(series))
        _add(chart, "rect", x=round(x, 1), y=2, width=10, height=10).set("class", f"s{i}")
        _text(chart, name, x + 14, 11, "start")


def _text(chart: Element, text: str, x: float, y: float, anchor: str = "start") -> None:
    written = _add(chart, "text", x=round(x, 1), y=round(y, 1))
    written.set("text-anchor", anchor)
    written.text = text


def _add(parent: Element, tag: str, **attributes: float | str) -> Element:
    return SubElement(parent, tag, {name: str(value) for name, value in attributes.items()})


def _when(ms: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(ms / 1000))
