"""torch.distributed: processes that exchange numbers by files beside the one where they meet."""

from __future__ import annotations

import glob
import json
import operator
import os
import time
from functools import reduce
from typing import Any, NamedTuple

from ._lab import values
from ._tensor import Tensor


class _Group(NamedTuple):
    backend: str
    meeting: str
    rank: int
    world: int
    seconds: float


_joined: list[_Group] = []
_calls: list[str] = []
_parallel: set[int] = set()


def init_process_group(
    backend: str = "nccl", init_method: str = "", rank: int = -1, world_size: int = -1, timeout: Any = None, **_: Any
) -> None:
    """Join.

    Raises:
        ValueError: They do not meet at a file, which is all that the stand-in knows.
    """
    if not init_method.startswith("file://"):
        raise ValueError("the stand-in of the gpustrap lab knows init_method file:// alone")
    seconds = 1800.0 if timeout is None else timeout.total_seconds()
    _joined.append(_Group(backend, init_method[len("file://") :], rank, world_size, seconds))
    _exchange(0.0)


def destroy_process_group() -> None:
    """Leave, when all have come so far; what the others will not read again goes."""
    group = _joined[-1]
    _exchange(0.0)
    for path in glob.glob(f"{glob.escape(group.meeting)}.*.{group.rank}"):
        if not path.endswith(f".{len(_calls) - 1}.{group.rank}"):
            os.unlink(path)
    _joined.clear()


def is_initialized() -> bool:
    """Whether this process has joined."""
    return bool(_joined)


def get_rank() -> int:
    """The number of this process."""
    return _joined[-1].rank


def get_world_size() -> int:
    """How many there are."""
    return _joined[-1].world


def all_reduce(tensor: Tensor) -> None:
    """The sum over all processes, in place.

    Raises:
        RuntimeError: NCCL is to do it and the tensor is on no GPU.
    """
    if _joined[-1].backend == "nccl" and not tensor.is_cuda:
        raise RuntimeError("No backend type associated with device type cpu")
    tensor.data = _sum(_exchange(tensor.data))


def take_from_first(parameter: Tensor) -> None:
    """Make a parameter the first process's; from then on its derivative is the mean over all."""
    parameter.data = _exchange(parameter.data)[0]
    _parallel.add(id(parameter))


def mean(parameter: Tensor, slope: Any) -> Any:
    """The derivative to go by."""
    if id(parameter) not in _parallel:
        return slope
    all_of_them = _exchange(slope)
    return values.apply(_sum(all_of_them), lambda x: x / len(all_of_them))


def _sum(parts: list[Any]) -> Any:
    return reduce(lambda a, b: values.apply(a, operator.add, b), parts)


def _exchange(data: Any) -> list[Any]:
    group, number = _joined[-1], len(_calls)
    _calls.append("")
    mine = f"{group.meeting}.{number}.{group.rank}"
    with open(mine + "~", "w", encoding="ascii") as file:
        json.dump(data, file)
    os.replace(mine + "~", mine)
    return [_read(f"{group.meeting}.{number}.{rank}", group, rank) for rank in range(group.world)]


def _read(path: str, group: _Group, rank: int) -> Any:
    deadline = time.monotonic() + group.seconds
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            message = "[Rank {}] Timed out after {:.0f} s waiting for rank {}"
            raise RuntimeError(message.format(group.rank, group.seconds, rank))
        time.sleep(0.002)
    with open(path, encoding="ascii") as file:
        return json.load(file)
