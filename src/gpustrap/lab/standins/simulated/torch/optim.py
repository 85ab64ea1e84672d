"""torch.optim: gradient descent."""

from __future__ import annotations

import operator
from typing import Any

from . import distributed
from ._lab import values
from ._tensor import Tensor


class SGD:
    """Each parameter moves against its derivative; of a parallel model against the mean over all processes."""

    def __init__(self, parameters: Any, lr: float) -> None:
        self.parameters: list[Tensor] = list(parameters)
        self.rate = lr

    def zero_grad(self) -> None:
        """Forget the derivatives."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        """Move."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                slope = distributed.mean(parameter, parameter.grad.data)
                moved = values.apply(parameter.data, operator.sub, values.apply(slope, lambda x: x * self.rate))
                parameter.data = values.rounded(moved, parameter.kind)
