"""From what the GPUs answered to words, and numbers for the controller, which knows what a healthy GPU has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SHOWN = 8  # wrong elements in the evidence; all that were kept are in the data


@dataclass(frozen=True)
class Gpu:
    """One that is checked.

    Attributes:
        uuid: Of a GPU or a MIG device.
        name: Its model.
        address: PCI address.
        kind: GPUs of one kind are alike: they compute the same bits, and should be equally fast.
    """

    uuid: str
    name: str
    address: str
    kind: str

    @property
    def called(self) -> str:
        """For people."""
        return f"GPU {self.address} ({self.name})"


def gpu(uuid: str, device: Mapping[str, Any], cuda: str) -> Gpu:
    """One, from what CUDA says of it."""
    kind = f"{device['name']}, {device['multiprocessors']} multiprocessors, CUDA {cuda}"
    return Gpu(uuid, device["name"], device["address"], kind)


@dataclass
class Judged:
    """What one GPU's answer means.

    Attributes:
        reason: What is wrong, to follow the GPU's name; empty for nothing.
        evidence: The elements or words that show it.
        measures: Numbers, as `measure` makes them.
    """

    reason: str = ""
    evidence: str = ""
    measures: list[dict[str, Any]] = field(default_factory=list)


def measure(name: str, of: Gpu, value: float, unit: str, peer: str = "") -> dict[str, Any]:
    """A number; what is expected of it is the controller's to say."""
    return {"name": name, "subject": of.uuid, "peer": peer, "kind": of.kind, "value": value, "unit": unit}


def products(name: str, of: Gpu, data: Mapping[str, Any]) -> Judged:
    """Of `jobs.matmul` and `jobs.cublas`; ``name`` begins those of the measures."""
    if not data["outcomes"]:
        return Judged(f"cannot use cuBLAS: {data['tried'][-1]}", "\n".join(data["tried"]))
    judged = Judged()
    best: dict[str, float] = {}
    for outcome in (one for one in data["outcomes"] if one["data"] == "normal"):  # integers need less power
        best[outcome["kind"]] = max(best.get(outcome["kind"], 0), outcome["teraflops"])
    judged.measures = [measure(f"{name}-{kind}", of, value, "TFLOPS") for kind, value in best.items() if value]
    bad = [outcome for outcome in data["outcomes"] if outcome["wrong"]]
    if bad:
        judged.reason = f"multiplies wrong: {', '.join(map(_count, bad))}"
        judged.evidence = "\n".join(map(_element, [error for one in bad for error in one["errors"]][:SHOWN]))
    return judged


def _count(outcome: Mapping[str, Any]) -> str:
    wrong = f"{'at least ' if outcome['more'] else ''}{outcome['wrong']} wrong element{'s' * (outcome['wrong'] != 1)}"
    made = f"{outcome['products']} product{'s' * (outcome['products'] != 1)}"
    return f"{wrong} in {made} ({outcome['kind']}, {outcome['data']})"


def _element(error: Mapping[str, Any]) -> str:
    what = f"{error['kind']} {error['data']}, product {error['iteration']}"
    where = f"row {error['row']}, column {error['column']}"
    return f"{what}, {where}: {error['got']} for {error['want']}, bits {error['xor']}"


def memory(of: Gpu, data: Mapping[str, Any]) -> Judged:
    """Of `jobs.memory`."""
    judged = Judged(measures=[measure("memory-tested", of, round(data["bytes"] / 2**30, 2), "GiB")])
    if not data["bytes"]:
        return Judged("has no free memory to test", f"{data['free']} of {data['whole']} bytes are free")
    if data["wrong"]:
        judged.reason = f"does not keep what is written to its memory: {data['wrong']} words are wrong"
        shown = data["errors"][:SHOWN]
        judged.evidence = "\n".join(f"byte {e['byte']}: {e['got']} for {e['want']}, bits {e['xor']}" for e in shown)
    return judged


def bandwidth(of: Gpu, data: Mapping[str, Any]) -> Judged:
    """Of `jobs.bandwidth`."""
    names = {"to_device": "host-to-gpu", "from_device": "gpu-to-host", "within": "gpu-memory"}
    judged = Judged(measures=[measure(name, of, data[key], "GB/s") for key, name in names.items()])
    if data["wrong"]:
        judged.reason = f"brings other data than was sent: {data['wrong']} words"
    return judged


def peers(gpus: Mapping[str, Gpu], pairs: Sequence[Mapping[str, Any]]) -> Judged:
    """Of `jobs.peers`, for all GPUs together."""
    judged, wrong = Judged(), []
    for pair in pairs:
        source, target = gpus[pair["source"]], gpus[pair["target"]]
        name = "peer-copy" if pair["direct"] else "peer-copy-through-host"
        judged.measures.append(measure(name, source, pair["rate"], "GB/s", peer=target.uuid))
        if pair["wrong"]:
            wrong.append(f"{source.called} to {target.called}: {pair['wrong']} words are wrong")
    if wrong:
        judged.reason = f"copies between GPUs bring other data: {len(wrong)} of {len(pairs)} ways"
        judged.evidence = "\n".join(wrong)
    return judged


def differing(answers: Sequence[tuple[Gpu, Mapping[str, Any]]]) -> str:
    """GPUs that are alike and have other bits than the others of their kind; empty for none.

    It says which one is wrong only where most of them agree.
    """
    seen: dict[tuple[Any, ...], dict[str, list[Gpu]]] = {}
    for gpu, data in answers:
        for one in data.get("outcomes", ()):
            key = (gpu.kind, data.get("version", ""), one["data"], one["kind"], one["n"], one["seed"])
            seen.setdefault(key, {}).setdefault(one["digest"], []).append(gpu)
    for key, groups in seen.items():
        if len(groups) > 1:
            by_size = sorted(groups.values(), key=len)
            odd = by_size[:-1] if len(by_size[-1]) > len(by_size[-2]) else by_size
            names = ", ".join(gpu.called for group in odd for gpu in group)
            return f"not the same bits as equal GPUs ({key[3]}, {key[2]}): {names}"
    return ""
