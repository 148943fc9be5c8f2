"""A declaration as text, in the form of Kafka Streams' ``Topology.describe()``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from state_lib.declaration import Aggregation, Declaration, Select
from state_lib.processing import Process


@dataclass
class _Node:
    head: str
    name: str
    what: str
    after: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)

    def text(self) -> list[str]:
        lines = [f"    {self.head}: {self.name} ({self.what})"]
        if self.head != "Sink":
            lines.append(f"      --> {', '.join(self.after) or 'none'}")
        if self.head != "Source":
            lines.append(f"      <-- {', '.join(self.before) or 'none'}")
        return lines


def described(app: Declaration) -> str:
    """Sources, processors with their stores, and sinks; one sub-topology for each source topic.

    Steps and topics that several stores share are one node.
    """
    lines, numbers = ["Topologies:"], count()
    for index, topic in enumerate(app.topology.sources):
        nodes = _Nodes(numbers)
        for verb in app.verbs:
            if verb.source.topic == topic:
                nodes.add(verb)
        lines.append(f"   Sub-topology: {index}")
        for one in nodes.known.values():
            lines += one.text()
        lines.append("")
    return "\n".join(lines) + "\n"


class _Nodes:
    """The nodes of one sub-topology, by what makes them one."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self.known: dict[object, _Node] = {}

    def add(self, verb: Aggregation | Process) -> None:
        """Add those of a verb that are not there yet."""
        at = self._node((), "Source", "KSTREAM-SOURCE", f"topics: [{verb.source.topic}]")
        for number, step in enumerate(verb.steps, 1):
            kind = "KSTREAM-SELECT" if isinstance(step, Select) else "KSTREAM-FILTER"
            at = self._node(verb.steps[:number], "Processor", kind, "stores: []", at)
        if isinstance(verb, Process):
            stores = ", ".join(store.name for store in verb.stores)
            folds = verb.processor.fold is not None
            kind = "KSTREAM-AGGREGATE" if folds else "KSTREAM-PROCESSOR"
            at = self._node(verb.name, "Processor", kind, f"stores: [{stores}]", at)
            if folds and verb.topics:
                at = self._node((verb.name, ""), "Processor", "KTABLE-TOSTREAM", "stores: []", at)
            for topic in verb.topics:
                self._node((verb.name, topic), "Sink", "KSTREAM-SINK", f"topic: {topic}", at)
            return
        name = verb.store.name
        at = self._node(name, "Processor", "KSTREAM-AGGREGATE", f"stores: [{name}]", at)
        if verb.kept.outputs:
            at = self._node((name, ""), "Processor", "KTABLE-TOSTREAM", "stores: []", at)
        for topic in verb.kept.outputs:
            self._node((name, topic), "Sink", "KSTREAM-SINK", f"topic: {topic}", at)

    def _node(
        self, key: object, head: str, kind: str, what: str, before: _Node | None = None
    ) -> _Node:
        if key not in self.known:
            made = self.known[key] = _Node(head, f"{kind}-{next(self._numbers):010}", what)
            if before is not None:
                made.before.append(before.name)
                before.after.append(made.name)
        return self.known[key]
