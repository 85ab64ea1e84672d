"""tf.distribute: copies of a model on several devices, one after the other here."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from functools import reduce as _reduce
from types import SimpleNamespace
from typing import Any

from ._lab import values
from ._tensor import Tensor, Variable, at, constant, place_of


class ReduceOp:
    """How one is made of several."""

    SUM, MEAN = "sum", "mean"


class PerReplica(list):
    """A value for each device."""


class MirroredStrategy:
    """A copy on each device; their changes to a variable are averaged."""

    def __init__(self, devices: list[str]) -> None:
        self.places = [place_of(name) for name in devices]
        self.num_replicas_in_sync = len(self.places)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """What is made inside belongs to all copies."""
        yield

    def experimental_distribute_values_from_function(self, make: Callable[[Any], Tensor]) -> PerReplica:
        """A value for each device."""
        found = PerReplica()
        for number, place in enumerate(self.places):
            with at(place):
                found.append(make(SimpleNamespace(replica_id_in_sync_group=number)))
        return found

    def run(self, function: Callable[..., Any], args: tuple[Any, ...] = ()) -> PerReplica:
        """Let every copy run it, then make the changes."""
        found, Variable.waiting = PerReplica(), []
        try:
            for number, place in enumerate(self.places):
                with at(place):
                    found.append(function(*(one[number] if isinstance(one, PerReplica) else one for one in args)))
            waiting = Variable.waiting
        finally:
            Variable.waiting = None
        for variable in {id(one): one for one, _change in waiting}.values():
            changes = [change for one, change in waiting if one is variable]
            total = _reduce(lambda a, b: values.apply(a, operator.add, b), changes)
            share = 1 / len(changes)
            variable.assign_sub(constant(values.apply(total, lambda x, share=share: x * share)))
        return found

    def reduce(self, how: str, result: PerReplica, axis: Any) -> Tensor:
        """One of several."""
        total = _reduce(lambda a, b: values.apply(a, operator.add, b), [one.data for one in result])
        return constant(values.apply(total, lambda x: x / len(result)) if how == ReduceOp.MEAN else total)
