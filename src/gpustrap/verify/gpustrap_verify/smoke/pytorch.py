"""PyTorch: on every GPU a product and a convolution that are compared, a model that learns, and all GPUs together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from . import common
from .common import SmokeError, Wanted, step

CPU_RANKS = 2


def check(wanted: Wanted) -> dict[str, Any]:
    """Run it all.

    Raises:
        SmokeError: Something is not as it should be.
    """
    step("import torch")
    import torch  # noqa: PLC0415 - how long it takes and whether it works is part of the answer

    common.own(torch)
    names = _gpus(torch, wanted) if wanted.on_gpus else ["the CPU"]
    for index, name in enumerate(names):
        device = torch.device("cuda", index) if wanted.on_gpus else torch.device("cpu")
        _product(torch, wanted.size, device, name)
        _convolution(torch, device, name)
        if wanted.thorough:
            _halves(torch, device, name)
            step(name + ": a model learns")
            common.compare_losses(name, train(torch, torch.nn.Linear(common.FEATURES, 1).to(device), device))
    if wanted.thorough:
        _together(wanted, names)
    if wanted.vllm:
        _vllm(wanted)
    return {"version": torch.__version__, "cuda": torch.version.cuda or "", "devices": len(names)}


def _gpus(torch: Any, wanted: Wanted) -> list[str]:
    """What to call each GPU, when PyTorch has code for all of them."""
    if torch.version.cuda is None:
        raise SmokeError("cpu-build", f"PyTorch {torch.__version__} is a build without CUDA")
    step("start CUDA")
    torch.cuda.init()  # says why it cannot; is_available() only says no
    common.count_gpus(wanted, torch.cuda.device_count(), "PyTorch")
    built_for = torch.cuda.get_arch_list()
    for index, name in enumerate(wanted.gpus):
        common.need_code(name, built_for, torch.cuda.get_device_capability(index))
    return wanted.gpus


def _product(torch: Any, size: int, device: Any, name: str) -> None:
    step(name + ": matrix product")
    a, b = common.matrix(size, size, seed=1), common.matrix(size, size, seed=2)
    product = torch.matmul(_tensor(torch, a, device), _tensor(torch, b, device))
    _placed(product, device, name)
    common.compare_product(name, a, b, product.cpu().tolist())


def _halves(torch: Any, device: Any, name: str) -> None:
    a, b = common.matrix(64, common.HALF_INNER, seed=3), common.matrix(common.HALF_INNER, 64, seed=4)
    for kind in (torch.float16, torch.bfloat16):
        what = "{}: matrix product in {}".format(name, str(kind).rpartition(".")[2])
        step(what)
        product = torch.matmul(_tensor(torch, a, device).to(kind), _tensor(torch, b, device).to(kind))
        _placed(product, device, name)
        common.compare_product(what, a, b, product.to(torch.float32).cpu().tolist())


def _convolution(torch: Any, device: Any, name: str) -> None:
    """Sums of squares of 3 x 3: this is what cuDNN does."""
    step(name + ": convolution")
    image, ones = common.matrix(8, 8, seed=5), [[1.0] * 3] * 3
    found = torch.nn.functional.conv2d(_tensor(torch, [[image]], device), _tensor(torch, [[ones]], device))
    _placed(found, device, name)
    common.compare_convolution(name, image, found.cpu().tolist()[0][0])


def _tensor(torch: Any, values: Any, device: Any) -> Any:
    return torch.tensor(values, dtype=torch.float32, device=device)


def _placed(tensor: Any, device: Any, name: str) -> None:
    if tensor.device != device:
        raise SmokeError("wrong-device", f"{name}: the result lies on {tensor.device}, not on {device}")


def train(torch: Any, model: Any, device: Any, rank: int = 0, world: int = 1) -> list[float]:
    """Losses of a linear model that learns its share of the samples."""
    inputs, outputs = common.samples(common.ROWS * world)
    x, y = (_tensor(torch, rows[rank::world], device) for rows in (inputs, outputs))
    optimizer = torch.optim.SGD(model.parameters(), lr=common.LEARNING_RATE)
    losses = []
    for _ in range(common.STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _together(wanted: Wanted, names: Sequence[str]) -> None:
    """DistributedDataParallel: a process for each device, as torchrun starts them."""
    world = len(names) if wanted.on_gpus else CPU_RANKS
    step(f"all devices together: DistributedDataParallel with {world} processes")
    meeting = os.path.join(wanted.place, f"meeting-{os.getpid()}")
    shared = {"device": wanted.device, "world": world, "meeting": meeting, "seconds": wanted.seconds}
    directory, module = os.path.dirname(os.path.dirname(os.path.abspath(__file__))), __name__.rpartition(".")[0]
    command = [sys.executable, *common.FLAGS, "-c", common.START, directory, module + ".rank"]
    ranks = [
        subprocess.Popen([*command, json.dumps({**shared, "rank": rank})], stdout=subprocess.PIPE)
        for rank in range(world)
    ]
    try:
        answers = _wait(ranks, time.monotonic() + wanted.seconds)
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
    for rank, answer in enumerate(answers):
        if not answer["ok"]:
            raise SmokeError(answer["code"] or "together", f"process {rank}: {answer['said']}")
        common.compare_losses(f"process {rank}", answer["losses"])
    if any(answer["weights"] != answers[0]["weights"] for answer in answers):
        said = f"the processes learned different models: {[answer['weights'] for answer in answers]}"
        raise SmokeError("together", said)


def _wait(ranks: Sequence[subprocess.Popen[bytes]], deadline: float) -> list[dict[str, Any]]:
    """Each process's answer; when one has failed, the others, which wait for it, are not waited for."""
    answers: dict[int, dict[str, Any]] = {}
    while len(answers) < len(ranks):
        for rank, process in enumerate(ranks):
            if rank not in answers and process.poll() is not None:
                assert process.stdout  # noqa: S101 - it is a pipe
                said = process.stdout.read().decode("utf-8", "replace")
                answers[rank] = _answer(said, process.returncode)
        if any(not answer["ok"] for answer in answers.values()):
            time.sleep(1)  # whoever failed first is heard first, and the others may say why
            break
        if time.monotonic() > deadline:
            missing = sorted(set(range(len(ranks))) - set(answers))
            raise SmokeError("together-hangs", "no answer from processes {}".format(", ".join(map(str, missing))))
        time.sleep(0.05)
    return [answers[rank] for rank in sorted(answers)]


def _answer(said: str, code: int) -> dict[str, Any]:
    try:
        found = json.loads(said)
    except ValueError:
        return {"ok": False, "code": "together", "said": f"ended with {code} and no answer"}
    return found if isinstance(found, dict) else {"ok": False, "code": "together", "said": said[:500]}


def _vllm(wanted: Wanted) -> None:
    step("import vllm")
    from vllm.platforms import current_platform  # noqa: PLC0415 - of CUDA's, it loads vLLM's own kernels

    if wanted.on_gpus and not current_platform.is_cuda():
        raise SmokeError("cpu-build", f"vLLM takes this machine for {type(current_platform).__name__}")


def main() -> None:
    """Be the process."""
    common.run(check)
