"""One process of DistributedDataParallel: an exact sum over all of them, then its share of the training."""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import traceback
from typing import Any

from .common import FEATURES
from .pytorch import train


def _work(wanted: dict[str, Any]) -> dict[str, Any]:
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, "lo")  # they meet on this machine; its name may lead nowhere
    os.environ.setdefault("NCCL_DEBUG", "WARN")
    import torch  # noqa: PLC0415 - reads the environment
    import torch.distributed  # noqa: PLC0415

    rank, world, on_gpus = wanted["rank"], wanted["world"], wanted["device"] == "gpu"
    device = torch.device("cuda", rank) if on_gpus else torch.device("cpu")
    if on_gpus:
        torch.cuda.set_device(device)
    torch.distributed.init_process_group(
        "nccl" if on_gpus else "gloo",
        init_method="file://" + wanted["meeting"],
        rank=rank,
        world_size=world,
        timeout=dt.timedelta(seconds=wanted["seconds"]),
    )
    total = torch.tensor([float(rank + 1)], device=device)
    torch.distributed.all_reduce(total)
    if total.item() != world * (world + 1) / 2:
        return {"ok": False, "code": "wrong-result", "said": f"the sum over all devices is {total.item()!r}"}
    torch.manual_seed(rank)  # each begins with a model of its own, and takes the first one's
    model = torch.nn.Linear(FEATURES, 1).to(device)
    parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank] if on_gpus else None)
    losses = train(torch, parallel, device, rank, world)
    torch.distributed.destroy_process_group()
    return {"ok": True, "losses": losses, "weights": [round(w, 5) for w in model.weight.cpu().tolist()[0]]}


def main() -> None:
    """Be the process."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        answer = _work(json.loads(sys.argv[1]))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        traceback.print_exc()
        answer = {"ok": False, "code": "", "said": f"{type(error).__name__}: {error}"}
    out.write(json.dumps(answer) + "\n")
    out.flush()
    os._exit(0)
