"""What a process does with the GPUs that it sees. Each job starts CUDA anew, and answers with data alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .cublas import WORKSPACE, Cublas, first_that_works
from .cuda import Context, Cuda, CudaError, Device
from .gemm import Bench, Trial
from .kernels import GEMM, REPORT_BYTES, Kernels
from .memory import memory_test
from .transfer import pair, rates

if TYPE_CHECKING:
    from collections.abc import Callable

    from .workers import Step

STARTS = "CUDA starts"  # the first step of each


def listing(step: Step) -> dict[str, Any]:
    """The devices that there are, and the driver's CUDA version."""
    step(STARTS)
    cuda = Cuda()
    return {"cuda": cuda.version, "devices": [asdict(device) for device in cuda.devices()]}


@contextlib.contextmanager
def _in_use(cuda: Cuda, device: Device, modules: Mapping[str, str], step: Step) -> Iterator[tuple[Context, Kernels]]:
    step(f"the kernels are compiled for {device.name}")
    with cuda.context(device) as context, context.memory(REPORT_BYTES) as (report,):
        yield context, Kernels(context, modules, report)


def _with_one(
    work: Callable[[Context, Kernels, Mapping[str, Any], Step], dict[str, Any]], args: Mapping[str, Any], step: Step
) -> dict[str, Any]:
    """Work on the one device that this process sees."""
    step(STARTS)
    cuda = Cuda()
    devices = cuda.devices()
    if not devices:
        raise CudaError("cuDeviceGetCount", 100, "no CUDA-capable device is detected")
    with _in_use(cuda, devices[0], args["modules"], step) as (context, kernels):
        return {"cuda": cuda.version, "device": asdict(devices[0]), **work(context, kernels, args, step)}


def _matmul(context: Context, kernels: Kernels, args: Mapping[str, Any], step: Step) -> dict[str, Any]:
    return {"outcomes": _trials(Bench(context, kernels, kernels, step), tuple(GEMM), args)}


def _cublas(context: Context, kernels: Kernels, args: Mapping[str, Any], step: Step) -> dict[str, Any]:
    step("cuBLAS starts")
    library, tried = None, []
    for found in first_that_works([Path(path) for path in args["libraries"]], context):
        if isinstance(found, Cublas):
            library = found
        else:
            tried.append(str(found))
    if not library:
        return {"outcomes": [], "library": "", "version": "", "tried": tried}
    with context.memory(WORKSPACE) as (workspace,):
        library.use(workspace, WORKSPACE)
        outcomes = _trials(Bench(context, kernels, library, step), library.kinds(), args)
        library.close()
    return {"outcomes": outcomes, "library": str(library.path), "version": library.version, "tried": tried}


def _trials(bench: Bench, kinds: Sequence[str], args: Mapping[str, Any]) -> list[dict[str, Any]]:
    trials = [Trial(kind, args["size"], seed, args["seconds"]) for kind in kinds for seed in args["seeds"]]
    return [work(trial).as_dict() for trial in trials for work in (bench.integers, bench.normal)]


def _memory(context: Context, kernels: Kernels, args: Mapping[str, Any], step: Step) -> dict[str, Any]:
    return memory_test(context, kernels, args["seed"], step, args["most"]).as_dict()


def _bandwidth(context: Context, kernels: Kernels, args: Mapping[str, Any], step: Step) -> dict[str, Any]:
    return rates(context, kernels, args["size"], args["seconds"], step).as_dict()


# Their arguments are those of the checks of these names, see gpu_compute; cublas has ``libraries``, paths to try.
matmul = partial(_with_one, _matmul)
cublas = partial(_with_one, _cublas)
memory = partial(_with_one, _memory)
bandwidth = partial(_with_one, _bandwidth)


def peers(args: Mapping[str, Any], step: Step) -> dict[str, Any]:
    """Copies between all devices that this process sees, each way."""
    step(STARTS)
    cuda = Cuda()
    devices = cuda.devices()
    pairs = []
    with contextlib.ExitStack() as stack:
        used = [stack.enter_context(_in_use(cuda, one, args["modules"], step)) for one in devices]
        for (source, from_kernels), (target, to_kernels) in permutations(used, 2):
            step(f"copies from GPU {source.device.address} to GPU {target.device.address}")
            kernels = (from_kernels, to_kernels)
            pairs.append(pair(source, target, kernels, args["size"], args["seconds"]).as_dict())
    return {"cuda": cuda.version, "devices": [asdict(one) for one in devices], "pairs": pairs}
