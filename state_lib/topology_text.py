"""A declaration as text, in the form of Kafka Streams' ``Topology.describe()``."""

from __future__ import annotations

from dataclasses import dataclass, field

from state_lib.declaration import Declaration, Select


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
    lines = ["Topologies:"]
    number = 0
    for index, topic in enumerate(app.topology.sources):
        nodes: dict[object, _Node] = {}

        def node(key: object, head: str, kind: str, what: str, before: object = None) -> object:
            nonlocal number
            if key not in nodes:  # noqa: B023 - called within the loop's turn
                made = nodes[key] = _Node(head, f"{kind}-{number:010}", what)  # noqa: B023
                number += 1
                if before is not None:
                    made.before.append(nodes[before].name)  # noqa: B023
                    nodes[before].after.append(made.name)  # noqa: B023
            return key

        for verb in app.aggregations:
            if verb.source.topic != topic:
                continue
            at = node((), "Source", "KSTREAM-SOURCE", f"topics: [{topic}]")
            for count, step in enumerate(verb.steps, 1):
                kind = "KSTREAM-SELECT" if isinstance(step, Select) else "KSTREAM-FILTER"
                at = node(verb.steps[:count], "Processor", kind, "stores: []", at)
            name = verb.store.name
            at = node(name, "Processor", "KSTREAM-AGGREGATE", f"stores: [{name}]", at)
            if verb.kept.outputs:
                at = node((name, ""), "Processor", "KTABLE-TOSTREAM", "stores: []", at)
            for output in verb.kept.outputs:
                node((name, output), "Sink", "KSTREAM-SINK", f"topic: {output}", at)
        lines.append(f"   Sub-topology: {index}")
        for one in nodes.values():
            lines += one.text()
        lines.append("")
    return "\n".join(lines) + "\n"
