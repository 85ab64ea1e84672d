"""What the engine has of labs: their containers and bridges, by the labels they carry."""

from __future__ import annotations

from dataclasses import dataclass

from gpustrap.lab.engine import LABEL_ADDRESS, LABEL_LAB, LABEL_NODE, LABEL_OS, Engine

MIRROR = "mirror"


@dataclass(frozen=True, slots=True)
class Status:
    """A container of a lab as the engine sees it; also of a lab that crashed."""

    lab: str
    name: str
    os: str
    address: str
    state: str


def read_statuses(engine: Engine, condition: str) -> tuple[Status, ...]:
    """Every container, and the bridges without one, that carry a label.

    Args:
        engine: The container engine.
        condition: The engine's filter, ``label=KEY`` or ``label=KEY=VALUE``.
    """
    found = []
    for entry in engine.list("ps", condition):
        labels = entry["Labels"]
        found.append(
            Status(
                lab=labels[LABEL_LAB],
                name=labels.get(LABEL_NODE, MIRROR),
                os=labels.get(LABEL_OS, ""),
                address=labels.get(LABEL_ADDRESS, ""),
                state=entry["State"],
            )
        )
    with_nodes = {status.lab for status in found}
    for bridge in engine.list("network", condition):
        lab = bridge["labels"][LABEL_LAB]
        if lab not in with_nodes:
            found.append(Status(lab, name="", os="", address=bridge["subnets"][0]["subnet"], state="only a bridge"))
    return tuple(sorted(found, key=lambda status: (status.lab, status.name)))
