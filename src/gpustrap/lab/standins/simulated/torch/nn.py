"""torch.nn: a linear layer, the functions that a check needs, and DistributedDataParallel."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from . import distributed
from ._lab import values
from ._tensor import Tensor, guarded, tensor

_random = random.Random()  # noqa: S311 - a model's first weights


def manual_seed(seed: int) -> None:
    """The same first weights every time."""
    _random.seed(seed)


class Module:
    """A model."""

    def parameters(self) -> Iterator[Tensor]:
        """What it learns."""
        for value in self.__dict__.values():
            if isinstance(value, Tensor):
                yield value
            elif isinstance(value, Module):
                yield from value.parameters()

    def to(self, *wanted: Any) -> Any:
        """Itself elsewhere."""
        for name, value in self.__dict__.items():
            if isinstance(value, Tensor):
                setattr(self, name, value.to(*wanted))
        return self

    def __call__(self, *arguments: Any) -> Any:
        """What it makes of its input."""
        return self.forward(*arguments)

    def forward(self, *arguments: Any) -> Any:
        """What it makes of its input."""
        raise NotImplementedError


class Linear(Module):
    """Inputs times weights, plus a bias."""

    def __init__(self, inputs: int, outputs: int, device: Any = None) -> None:
        bound = inputs**-0.5

        def choose(count: int) -> list[float]:
            return [_random.uniform(-bound, bound) for _ in range(count)]

        self.weight = tensor([choose(inputs) for _ in range(outputs)], device=device)
        self.bias = tensor(choose(outputs), device=device)

    def forward(self, *arguments: Any) -> Tensor:
        """What it makes of its input."""
        (x,) = arguments

        def work() -> values.Value:
            turned = values.run(
                (self.weight,), [list(c) for c in zip(*self.weight.data)], lambda g: [*map(list, zip(*g))]
            )
            return values.add_row(values.matmul(x, turned), self.bias)

        return guarded(work)


class DistributedDataParallel(Module):
    """A model whose derivatives are the mean over all processes; each begins with the first one's weights."""

    def __init__(self, module: Module, device_ids: Any = None) -> None:
        self.module = module
        for parameter in module.parameters():
            distributed.take_from_first(parameter)

    def forward(self, *arguments: Any) -> Any:
        """What the model makes of its input."""
        return self.module(*arguments)


def _conv2d(images: Tensor, filters: Tensor) -> Tensor:
    return guarded(values.convolution, images, filters)


def _mse_loss(found: Tensor, wanted: Tensor) -> Tensor:
    return guarded(lambda: values.mean(values.square(values.subtract(found, wanted))))


functional = SimpleNamespace(conv2d=_conv2d, mse_loss=_mse_loss)
parallel = SimpleNamespace(DistributedDataParallel=DistributedDataParallel)
