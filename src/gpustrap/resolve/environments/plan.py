"""Decides the environments of a node: for each the newest build whose code covers its GPUs, and a Python it runs on."""

from __future__ import annotations

from typing import Any

from gpustrap.errors import Problem
from gpustrap.model.environment import FILE, LOCK_ID, PYTHON, Environment, Uv
from gpustrap.model.lock import Choice
from gpustrap.model.plan import Finding, Reasoning
from gpustrap.model.request import DEFAULT_ENVIRONMENTS
from gpustrap.resolve.confidence import confidence
from gpustrap.resolve.environments import words
from gpustrap.resolve.environments.fit import Fit, best, fits
from gpustrap.resolve.environments.python import Python, python_for
from gpustrap.resolve.environments.refusals import asked_wrongly, no_addresses, no_python, none_fits
from gpustrap.resolve.environments.target import ROLE, Target, narrowed
from gpustrap.resolve.gpu.boards import capability
from gpustrap.resolve.gpu.stack import Stack
from gpustrap.resolve.parts import Inputs, Part

PYTORCH = "https://download.pytorch.org/whl"
MODULES = {"pytorch": "torch", "tensorflow": "tensorflow", "jax": "jax", "vllm": "vllm"}
KERNEL = "ipykernel"  # what Jupyter needs of an environment
OWN_SIZE = 2_000_000_000  # bytes for packages of somebody's own, of which nothing is known


def plan_environments(inputs: Inputs, stack: Stack | None) -> Part:
    """Decide the variables of role ml_environments.

    Args:
        inputs: The node, the request, the catalog.
        stack: Its GPUs and their driver; None where it has none.
    """
    wishes = inputs.request.environments
    default = wishes == DEFAULT_ENVIRONMENTS
    if not wishes or (default and stack is None):
        return Part()
    parts = [_environment(Target(inputs, wish, stack, default)) for wish in wishes]
    environments = [part.variables for part in parts if part.variables]
    uv = _uv(inputs) if environments else None
    choices = tuple(choice for part in parts for choice in part.choices)
    return Part(
        choices=(*choices, _uv_choice(inputs, uv)) if uv else choices,
        variables=_variables(inputs, uv, environments) if uv else None,
        problems=(*no_addresses(inputs), *(problem for part in parts for problem in part.problems)),
        findings=tuple(finding for part in parts for finding in part.findings),
        reasoning=tuple(line for part in parts for line in part.reasoning),
        disk=tuple(size for part in parts for size in part.disk),
    )


def _environment(asked: Target) -> Part:
    """One environment's share; its variables are its item."""
    problems = tuple(asked_wrongly(asked))
    if problems:
        return Part(problems=problems)
    target = narrowed(asked)
    if isinstance(target, Problem):
        return Part(problems=(target,))
    if isinstance(target, Finding):
        return Part(findings=(target,))
    return _of_packages(target) if target.wish.framework == PYTHON else _of_framework(target)


def _of_framework(target: Target) -> Part:
    judged = fits(target)
    newest = best(judged)
    chosen = next((fit for fit in judged if not fit.against and _is_locked(target, fit)), newest)
    if chosen is None:
        return none_fits(target, judged)
    row = chosen.row
    why = words.reason(target, chosen, newest)
    environment = _item(target, chosen.python, chosen)
    choice = Choice(
        item=target.item,
        value=f"{chosen.called}, Python {chosen.python.version}",
        reason=why,
        source=row.row,
        confidence=confidence(row, unread=chosen.doubted),
        simulated=target.inputs.simulated,
    )
    return Part(
        choices=(choice,),
        variables=environment.model_dump(mode="json"),
        findings=tuple(words.findings(target, chosen)),
        reasoning=(words.reasoning(target, judged, chosen, why),),
        disk=_disk(target, environment),
    )


def _of_packages(target: Target) -> Part:
    """One without a framework: only its Python is to be decided."""
    python = python_for(target, ())
    if not python.version:
        return Part(problems=(no_python(target, python),))
    environment = _item(target, python, None)
    what = target.wish.requirements or ", ".join(target.wish.extras)
    choice = Choice(
        item=target.item,
        value=f"Python {python.version} with {what}",
        reason=f"gpustrap_environments asks for it; its Python is {python.reason}",
        source=target.inputs.distro.row if python.interpreter == "distribution" else "request",
        simulated=target.inputs.simulated,
    )
    return Part(
        choices=(choice,),
        variables=environment.model_dump(mode="json"),
        reasoning=(Reasoning(item=target.item, sentences=(f"Python {python.version}: {python.reason}.",)),),
        disk=_disk(target, environment),
    )


def _disk(target: Target, environment: Environment) -> tuple[tuple[str, int], ...]:
    """What is still to be built; nothing where the node has it from the very lock."""
    prefix, locked = target.inputs.request.environments_prefix, target.locked
    item = environment.model_dump(mode="json")
    same = bool(locked.get("digest")) and locked == item | {key: locked.get(key) for key in ("lock", "digest")}
    here = (f"{prefix}/{environment.name}", f"lock {str(locked.get('digest', ''))[:LOCK_ID]}")
    there = {(found.path, found.origin) for found in target.inputs.facts.installs if found.what == "environment"}
    return () if same and here in there else ((prefix, environment.size),)


def _is_locked(target: Target, fit: Fit) -> bool:
    """Whether the lock has this build."""
    locked = target.locked
    same = (locked.get("framework"), locked.get("version"), locked.get("variant"), locked.get("engine"))
    row = fit.row
    return same == (row.framework, row.version, row.variant, target.wish.engine)


def _item(target: Target, python: Python, chosen: Fit | None) -> Environment:
    """The item of the lock; without a build it has no framework of ours."""
    inputs, wish, row = target.inputs, target.wish, chosen.row if chosen else None
    by_conda = "conda" in {wish.engine, python.interpreter}
    return Environment(
        name=wish.name,
        framework=wish.framework,
        version=row.version if row else "",
        variant=row.variant if row else "",
        engine=wish.engine,
        python=python.version,
        interpreter=python.interpreter,
        users=wish.users,
        jupyter=wish.jupyter,
        requirements=(
            *((row.requirement,) if row else ()),
            *wish.extras,
            *((KERNEL,) if wish.jupyter else ()),
            *((f"{FILE}{wish.requirements}",) if wish.requirements else ()),
        ),
        constraints=row.constraints if row else (),
        index=row.index.replace(PYTORCH, (inputs.request.pytorch_index or PYTORCH).rstrip("/"), 1) if row else "",
        channels=inputs.request.conda_channels if by_conda else (),
        cuda=target.stack.driver.branch.cuda if target.stack else "",
        compute=tuple(sorted(target.stack.compute_capabilities, key=capability)) if target.stack else (),
        modules=(MODULES[wish.framework],) if row else (),
        gpus=tuple(gpu.pci.address for gpu in target.gpus) if wish.gpus else (),
        size=row.size if row else OWN_SIZE,
    )


def _variables(inputs: Inputs, uv: Uv, environments: list[dict[str, Any]]) -> dict[str, Any]:
    request = inputs.request
    return {
        f"{ROLE}_prefix": request.environments_prefix,
        f"{ROLE}_uv": uv.model_dump(mode="json"),
        f"{ROLE}_index": request.python_index or "",  # uv knows its own; the closure writes down which
        f"{ROLE}_python_mirror": request.python_mirror or "",
        f"{ROLE}_ca_bundle": request.ca_bundle or "",
        f"{ROLE}_proxy": inputs.proxy,
        f"{ROLE}_conda_prefix": request.conda_prefix,
        f"{ROLE}_environments": environments,
    }


def _uv(inputs: Inputs) -> Uv:
    """The locked one, else the catalog's, which has one for every architecture that is supported."""
    locked = None if "environments" in inputs.upgrade else inputs.kept(ROLE, f"{ROLE}_uv")
    if locked:
        return Uv.model_validate(locked)
    machine = inputs.facts.os.architecture
    row = next(row for row in inputs.catalog.uv if row.architecture == machine)
    return Uv(version=row.version, file=row.file, sha256=row.sha256)


def _uv_choice(inputs: Inputs, uv: Uv) -> Choice:
    row = next(row for row in inputs.catalog.uv if row.architecture == inputs.facts.os.architecture)
    newer = "" if row.version == uv.version else f"locked; {row.version} is known: gpustrap plan --upgrade takes it"
    reason = newer or "builds environments; its wheel is proved by a checksum"
    return Choice(item="uv", value=uv.version, reason=reason, source=row.row, confidence=row.confidence)
