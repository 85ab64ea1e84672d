"""Checks of the GPUs themselves, each with its arguments and its finding.

Arguments that all of them take:

- ``modules``: PTX by the compute capability that it needs (`gpustrap.verify.kernels.modules`).
- ``gpus``: UUIDs of GPUs or of MIG devices; empty for all GPUs that the driver has.
- ``limit``: seconds for the whole check; a GPU that is not done by then hangs.
- ``groups``: groups of the ordinary user who does it; None for who we are.

``data`` of a finding has ``gpus`` (what each answered, by UUID) and ``measures`` (`judge.measure`).
"""

from __future__ import annotations

import contextlib
import grp
import os
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from gpustrap_node import pci
from gpustrap_node.host import Host

from . import symptoms
from .compute import jobs, judge, workers
from .compute.cublas import find
from .compute.judge import Judged
from .compute.workers import Answer, User
from .node import Finding, Node, failed, passed
from .ordinary_user import NOBODY
from .remedies import Remedy

if TYPE_CHECKING:
    from collections.abc import Callable

    from .compute.workers import Job

LISTING_SECONDS = 90  # eight GPUs without persistence mode take most of a minute to start
TOOLKITS = ("/usr/local/cuda", "/opt/cuda")
VISIBLE = "CUDA_VISIBLE_DEVICES"


def matmul(node: Node, args: Mapping[str, Any]) -> Finding:
    """Every product is right, with gpustrap's own kernels: fp32 on the plain units, fp16 on tensor cores.

    Args:
        node: The node.
        args: As above; ``size``: rows, a multiple of 64; ``seeds``: of matrices; ``seconds``: for each trial, of which
            there are two for each type and seed.
    """
    return _each(node, args, jobs.matmul, partial(judge.products, "matmul"))


def cublas(node: Node, args: Mapping[str, Any]) -> Finding:
    """Every product is right with cuBLAS, and how fast: fp32, fp16, and tf32 and bf16 where the GPU has them.

    Args:
        node: The node.
        args: As for `matmul`; ``prefixes``: environments in which cuBLAS is looked for before toolkits and ldconfig.
    """
    prefixes = [node.path(place) for place in (*args["prefixes"], *TOOLKITS)]
    libraries = [str(path) for path in find(prefixes, node.run("ldconfig", "-p").out)]
    if not libraries:
        return Finding("skip", "cuBLAS is neither in an environment, nor in a toolkit, nor known to ldconfig")
    return _each(node, {**args, "libraries": libraries}, jobs.cublas, partial(judge.products, "cublas"))


def memory(node: Node, args: Mapping[str, Any]) -> Finding:
    """Memory keeps what is written to it.

    Args:
        node: The node.
        args: As above; ``seed``: of the pattern; ``most``: bytes at most, None for all that is free.
    """
    return _each(node, args, jobs.memory, judge.memory)


def bandwidth(node: Node, args: Mapping[str, Any]) -> Finding:
    """Copies between host and GPU, and within it, bring the same data; and how fast.

    Args:
        node: The node.
        args: As above; ``size``: bytes of a copy; ``seconds``: for each direction.
    """
    return _each(node, args, jobs.bandwidth, judge.bandwidth)


def peers(node: Node, args: Mapping[str, Any]) -> Finding:
    """Copies between every two GPUs, each way, bring the same data; and how fast.

    Args:
        node: The node.
        args: As above; ``size``: bytes of a copy; ``seconds``: for each pair.
    """
    user = _user(args)
    gpus = _gpus(node, user, args)
    if isinstance(gpus, Finding):
        return gpus
    if len(gpus) < 2:
        return Finding("skip", "there is one GPU")
    together = ",".join(gpus)
    answer = _ask(node, {together: partial(jobs.peers, args)}, args["limit"], user)[together]
    if answer.problem:
        return _trouble("the GPUs together", answer)
    known = {one["uuid"]: judge.gpu(one["uuid"], one, answer.data["cuda"]) for one in answer.data["devices"]}
    pairs = answer.data["pairs"]
    judged = judge.peers(known, pairs)
    staged = sum(not pair["direct"] for pair in pairs)
    finding = passed(f"{staged} of {len(pairs)} ways go through the host" if staged else "")
    if judged.reason:
        finding = failed(judged.reason, judged.evidence, Remedy.NCCL)
    finding.data = {"pairs": pairs, "measures": judged.measures}
    return finding


def _each(node: Node, args: Mapping[str, Any], job: Callable[..., Any], meaning: Callable[..., Judged]) -> Finding:
    """One process for each GPU, all at once, and one finding of all."""
    user = _user(args)
    gpus = _gpus(node, user, args)
    if isinstance(gpus, Finding):
        return gpus
    answers = _ask(node, {uuid: partial(job, args) for uuid in gpus}, args["limit"], user)
    troubles, measures, told = [], [], []
    others_work = any(not answer.problem for answer in answers.values())
    for uuid, called in gpus.items():
        data = answers[uuid].data
        if answers[uuid].problem:
            troubles.append(_trouble(called, answers[uuid], others_work=others_work))
            continue
        gpu = judge.gpu(uuid, data["device"], data["cuda"])
        judged = meaning(gpu, data)
        measures += judged.measures
        told.append((gpu, data))
        if judged.reason:
            troubles.append(failed(f"{gpu.called} {judged.reason}", judged.evidence, Remedy.BAD_GPU))
    unlike = judge.differing(told)
    if unlike and not troubles:
        troubles.append(failed(unlike, "", Remedy.KERNEL_LOG))
    finding = passed()
    if troubles:
        words = "; ".join(trouble.reason for trouble in troubles)
        finding = failed(words, "\n".join(trouble.evidence for trouble in troubles), troubles[0].remedy)
    finding.data = {"gpus": {uuid: answers[uuid].data for uuid in gpus}, "measures": measures}
    return finding


def _ask(node: Node, jobs_of: Mapping[str, Job], seconds: float, user: User | None) -> dict[str, Answer]:
    """Do each job in a process that sees the GPUs named by its key; empty: all."""
    left = max(0.0, min(seconds, node.deadline - time.monotonic()))
    named = {uuids: ({VISIBLE: uuids} if uuids else {}, job) for uuids, job in jobs_of.items()}
    return workers.run(named, left, user)


def _user(args: Mapping[str, Any]) -> User | None:
    """Nobody, in the groups that may use GPUs; none where that is not ours to choose."""
    if args["groups"] is None or os.geteuid() != 0:
        return None
    groups = []
    for name in args["groups"]:
        with contextlib.suppress(KeyError):  # not every node has it
            groups.append(grp.getgrnam(name).gr_gid)
    return User(NOBODY, NOBODY, tuple(groups))


def _gpus(node: Node, user: User | None, args: Mapping[str, Any]) -> dict[str, str] | Finding:
    """What to call each, by UUID; or why there are none.

    The driver's own list in /proc has those too that hang or are lost, and asks them nothing: only without it is CUDA
    asked, which starts all GPUs at once.
    """
    devices = [d for d in pci.pci_facts(Host(str(node.root))) if d["vendor"] == pci.NVIDIA and d["driver"] == "nvidia"]
    known = {str(d["uuid"]): f"GPU {d['address']}" for d in devices if d["uuid"]}
    if args["gpus"]:
        return {uuid: known.get(uuid, uuid) for uuid in args["gpus"]}
    if devices and len(known) == len(devices):
        return known
    answer = _ask(node, {"": jobs.listing}, LISTING_SECONDS, user)[""]
    if answer.problem:
        return _trouble("CUDA", answer)
    listed = {one["uuid"]: f"GPU {one['address']}" for one in answer.data["devices"]}
    return listed or failed("CUDA lists no GPU", "", Remedy.DEVICE_FILES)


def _trouble(called: str, answer: Answer, *, others_work: bool = False) -> Finding:
    """A GPU, or CUDA itself, that gave no answer."""
    words = "\n".join(filter(None, [answer.problem, f"while: {answer.last}" if answer.last else ""]))
    if answer.hung:
        kernel = ", and its process cannot be killed" if answer.stuck else ""
        return failed(f"{called} hangs: {answer.problem}{kernel}", words, Remedy.KERNEL_LOG)
    if others_work and answer.last == jobs.STARTS:  # so it is neither the driver nor its device files
        return failed(f"{called} fails: CUDA starts on the others and not on it", words, Remedy.BAD_GPU)
    symptom = symptoms.diagnose("", answer.problem, "")
    cause = symptoms.cause(symptom, answer.problem) if symptom else answer.problem.splitlines()[0]
    return failed(f"{called}: {cause}", words, symptom.remedy if symptom else Remedy.KERNEL_LOG)
