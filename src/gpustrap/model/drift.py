"""What drift found out about one node."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode, worst
from gpustrap.model.ledger import DriftItem

LOCK = "lock"  # the kind of an item that stands for the whole entry of the lock


@dataclass(frozen=True, slots=True)
class NodeDrift:
    """One node.

    Attributes:
        node: Inventory name.
        run: Id of the run whose state was compared; empty if there is none.
        checked: Resources compared.
        items: Those that differ, or could not be read.
        problems: Why the node cannot be called in sync although nothing may differ.
        simulated: Whether what the lock gives it rests on a stand-in of the lab.
    """

    node: str
    run: str = ""
    checked: int = 0
    items: tuple[DriftItem, ...] = ()
    problems: tuple[Problem, ...] = ()
    simulated: bool = False

    @property
    def in_sync(self) -> bool:
        """Whether everything is known and as it should be."""
        return not self.items and not self.problems

    @property
    def exit_code(self) -> ExitCode:
        """Unknown is not in sync, and worse than a difference that is known."""
        codes = [p.exit_code for p in self.problems]
        codes += [ExitCode.COULD_NOT_CHECK if i.unknown else ExitCode.DRIFTED for i in self.items]
        return worst(codes)

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "node": self.node,
            "in_sync": self.in_sync,
            "simulated": self.simulated,
            "run": self.run,
            "checked": self.checked,
            "items": [item.model_dump(mode="json") for item in self.items],
            "problems": [{**asdict(problem), "exit_code": int(problem.exit_code)} for problem in self.problems],
        }
