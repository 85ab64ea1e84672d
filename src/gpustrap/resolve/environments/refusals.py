"""Why an environment cannot be, and every way out of that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpustrap.errors import Problem
from gpustrap.model.environment import HOROVOD, PYTHON
from gpustrap.model.lock import Choice
from gpustrap.model.plan import Finding
from gpustrap.model.urls import without_credentials
from gpustrap.resolve.environments.fit import Fit, best, fits
from gpustrap.resolve.environments.python import Python, python_for
from gpustrap.resolve.environments.target import VARIABLE, Target
from gpustrap.resolve.gpu.boards import NodeGpu
from gpustrap.resolve.parts import Inputs, Part

URL = re.compile(r"(https?|file)://\S+$")
# Package, as PyPI compares names -> the framework that it is, or is a part of.
FRAMEWORK_OF = {
    "jax": "jax",
    "jaxlib": "jax",
    "pytorch": "pytorch",
    "pytorch-gpu": "pytorch",
    "tensorflow": "tensorflow",
    "tensorflow-cpu": "tensorflow",
    "tensorflow-gpu": "tensorflow",
    "torch": "pytorch",
    "vllm": "vllm",
}


def asked_wrongly(target: Target) -> Iterator[Problem]:
    """What no node could have."""
    extras = [re.split(r"[^A-Za-z0-9._-]", extra)[0].lower() for extra in target.wish.extras]
    packages = [re.sub(r"[._]+", "-", name) for name in extras]
    if target.wish.framework == HOROVOD or HOROVOD in packages:
        yield _horovod(target)
        return
    own = target.wish.framework
    named = {FRAMEWORK_OF[name]: name for name in packages if name in FRAMEWORK_OF}
    if own != PYTHON and own in named:
        yield _twice(target, named.pop(own))
    if len({*named, own} - {PYTHON}) > 1:
        yield _two(target, named)
    if target.wish.engine == "conda" and not target.inputs.request.conda:
        message = f"{VARIABLE}: {target.name} has engine conda, and gpustrap_conda is false"
        remedy = f"set gpustrap_conda: true; or engine: uv for {target.name}"
        yield target.inputs.problem("environment-needs-conda", message, remedy, evidence="request")


def no_addresses(inputs: Inputs) -> Iterator[Problem]:
    """Indexes and mirrors that are no URLs."""
    for variable in ("python_index", "pytorch_index", "python_mirror"):
        value = getattr(inputs.request, variable) or ""
        if value and not URL.match(value):
            shown = without_credentials(value)
            remedy = f"write it as https://{shown.partition('://')[2] or shown}"
            message = f"gpustrap_{variable} is {shown!r}: that is no URL"
            yield inputs.problem("bad-url", message, remedy, usage=True)


def _horovod(target: Target) -> Problem:
    return target.inputs.problem(
        "horovod-unmaintained",
        f"{VARIABLE}: {target.name} asks for Horovod, which no current framework works with",
        "use PyTorch's DistributedDataParallel, which is in torch; or framework: pytorch with extras: [accelerate]; "
        "tf.distribute and jax.sharding are the others' own",
        evidence="PyPI: its last release is 0.28.1, of June 2023",
        usage=True,
    )


def _twice(target: Target, package: str) -> Problem:
    message = f"{VARIABLE}: {target.name} has {package} among its extras, which is its framework"
    remedy = f"leave {package} out of its extras: its version and its build follow from GPUs and driver; "
    remedy += "with framework: python they are yours to choose"
    return target.inputs.problem("framework-in-extras", message, remedy, evidence="request", usage=True)


def _two(target: Target, named: dict[str, str]) -> Problem:
    wish = target.wish
    frameworks = [*([] if wish.framework == PYTHON else [wish.framework]), *named]
    others = [name for framework, name in named.items() if framework != frameworks[0]]
    items = ", ".join(f"{{name: {framework}, framework: {framework}}}" for framework in frameworks)
    brings = f"; or leave {others[0]} out: vllm brings the torch that it needs" if frameworks[0] == "vllm" else ""
    return target.inputs.problem(
        "frameworks-in-one-environment",
        f"{VARIABLE}: {target.name} would hold {' and '.join(frameworks)}, and each pins NVIDIA libraries of its own: "
        "what is installed last breaks what was there",
        f"give each an environment of its own: {items}{brings}",
        evidence=f"extras: {', '.join(others)}",
        usage=True,
    )


def none_fits(target: Target, judged: tuple[Fit, ...]) -> Part:
    """No build can be: a refusal where somebody asked for it, else a warning."""
    inputs, wish = target.inputs, target.wish
    called = wish.framework + (" in conda's channels" if wish.engine == "conda" else "")
    message = f"environment {target.name}: no build of {called} that is known {_what_none_does(target, judged)}"
    evidence = "\n".join(f"{fit.called}: {fit.against}" for fit in judged)
    where = "" if target.stack else " without CUDA"
    evidence = evidence or f"catalog: frameworks has no {called}{where} for {inputs.facts.os.architecture}"
    ways = "; or ".join(_ways_out(target, judged))
    if not target.default:
        return Part(problems=(inputs.problem("no-wheel", message, ways, evidence=evidence),))
    finding = Finding(
        code="no-wheel",
        severity="warning",
        subject=f"environment {target.name}",
        message=message,
        evidence=evidence,
        advice=ways,
    )
    choice = Choice(item=target.item, value="none", reason=message, source="catalog: frameworks")
    return Part((choice,), findings=(finding,))


def _what_none_does(target: Target, judged: tuple[Fit, ...]) -> str:
    if any(_only_python(fit) for fit in judged):
        return "is for a Python that the node can have"
    if target.stack is None:
        return "computes without NVIDIA GPUs"
    return f"runs on {target.whose} with driver {target.stack.driver.branch.branch}"


def _only_python(fit: Fit) -> bool:
    """Whether a build needs nothing but another Python."""
    return not (fit.python.version or fit.lacking or fit.driver)


def no_python(target: Target, python: Python) -> Problem:
    """An environment of somebody's own packages for which there is no Python."""
    ways = "; or ".join((*_to_a_python(target), f"leave {target.name} out of {VARIABLE}"))
    message = f"environment {target.name}: {python.reason}"
    evidence = f"{target.inputs.distro.row}: python {target.inputs.distro.python}"
    return target.inputs.problem("python-unavailable", message, ways, evidence=evidence)


def _ways_out(target: Target, judged: tuple[Fit, ...]) -> Iterator[str]:
    branches = [fit.driver for fit in judged if fit.driver.isdigit() and not fit.lacking and fit.python.version]
    if branches:
        yield f'set gpustrap_driver_branch to "{min(branches, key=int)}" or newer, if all GPUs take it'
    if any(map(_only_python, judged)):
        yield from _to_a_python(target)
    if any(fit.lacking for fit in judged):
        yield from _for_some(target)
    if best(fits(_with_uv(target))):
        yield f"set engine: uv for {target.name}"
    if target.default:
        yield f"build it from source for these GPUs, or set {VARIABLE}: [] to plan without it"
    else:
        yield f"leave {target.name} out of {VARIABLE}"


def _to_a_python(target: Target) -> Iterator[str]:
    """What alone leads to a Python that there is a build for, or else both together."""
    auto = replace(target, wish=target.wish.model_copy(update={"python": "auto"}))
    alone = {
        f"set python: auto for {target.name}": auto,
        "set gpustrap_conda: true, which has Pythons of every version": _with_conda(target),
    }
    ways = [way for way, changed in alone.items() if _can_be(changed)]
    yield from ways
    if not ways and _can_be(_with_conda(auto)):
        yield f"set python: auto for {target.name}, and gpustrap_conda to true"


def _can_be(target: Target) -> bool:
    if target.wish.framework == PYTHON:
        return bool(python_for(target, ()).version)
    return best(fits(target)) is not None


def _with_conda(target: Target) -> Target:
    request = target.inputs.request.model_copy(update={"conda": True})
    return replace(target, inputs=replace(target.inputs, request=request))


def _for_some(target: Target) -> Iterator[str]:
    """Environments for some of its GPUs each, where no build is for all of them."""
    sets: dict[str, list[NodeGpu]] = {}
    alone: dict[str, bool] = {}
    for gpu in target.gpus:
        if gpu.name not in alone:
            alone[gpu.name] = best(fits(target.for_gpus((gpu,)))) is not None
        if not alone[gpu.name]:
            continue
        key = next((key for key, there in sets.items() if best(fits(target.for_gpus((*there, gpu))))), gpu.name)
        sets.setdefault(key, []).append(gpu)
    if not sets or (len(sets) == 1 and all(alone.values())):
        return
    framework, name = target.wish.framework, target.name
    if len(sets) == 1:
        (gpus,) = sets.values()
        yield f"have it for the others only: {{name: {name}, framework: {framework}, gpus: {_keys(gpus)}}}"
        return
    items = (
        f"{{name: {name}-{number}, framework: {framework}, gpus: {_keys(gpus)}}}"
        for number, gpus in enumerate(sets.values(), 1)
    )
    yield f"have an environment for each set of GPUs: {', '.join(items)}"


def _keys(gpus: list[NodeGpu]) -> str:
    """Models as the variable takes them; addresses where the model is not sure."""
    keys = (gpu.name if len(gpu.boards) == 1 else f'"{gpu.pci.address}"' for gpu in gpus)
    return f"[{', '.join(dict.fromkeys(keys))}]"


def _with_uv(target: Target) -> Target:
    return replace(target, wish=target.wish.model_copy(update={"engine": "uv"}))
