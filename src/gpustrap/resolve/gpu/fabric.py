"""Decides fabric manager, subnet manager and IMEX: what NVLink needs to come up, at exactly the driver's version."""

from __future__ import annotations

from gpustrap.errors import Problem
from gpustrap.model.facts import Facts
from gpustrap.model.lock import Choice
from gpustrap.model.plan import Finding, Reasoning
from gpustrap.resolve.confidence import confidence
from gpustrap.resolve.gpu.boards import counted, in_virtual_machine
from gpustrap.resolve.gpu.candidates import fill
from gpustrap.resolve.gpu.components import components_off
from gpustrap.resolve.gpu.fabric_needs import Kind, fabric_needs, fabric_packages, with_fabric
from gpustrap.resolve.gpu.installed import is_nvidias, upstream_version
from gpustrap.resolve.gpu.packages import known, listed, locked_versions, numbers
from gpustrap.resolve.gpu.stack import Stack
from gpustrap.resolve.parts import Part

ROLE = "nvidia_fabric_manager"
ITEM = "fabric-manager"
# The subnet manager has none of its own: the fabric manager's starts it.
SERVICES: dict[Kind, str] = {"fabric manager": "nvidia-fabricmanager.service", "IMEX": "nvidia-imex.service"}

ERROR_802 = "CUDA ends with error 802, system not yet initialized"


def plan_fabric(stack: Stack) -> Part:
    """Decide the variables of role nvidia_fabric_manager."""
    needs = fabric_needs(stack.inputs.facts, stack.gpus)
    if not needs.kinds:
        return _without(stack)
    versions: dict[str, str] = {}
    problems: dict[str, Problem] = {}  # one of a kind says it all
    with_own = {_name(stack, template) for template in stack.driver.packages.subnet_manager}
    for kind in needs.kinds:
        for name in sorted(_name(stack, template) for template in fabric_packages(stack.driver.packages, kind)):
            version = _any_version(stack, name) if name in with_own else _exact_version(stack, name)
            if isinstance(version, Problem):
                problems.setdefault(version.code, version)
            else:
                versions[name] = version
    if problems:
        return Part(problems=tuple(problems.values()))
    inputs, row = stack.inputs, stack.driver.packages
    repository = inputs.catalog.repository(row.repository, inputs.facts.os.architecture)
    reason = f"{needs.why}; exactly the driver's version"
    if still_open := ", ".join(name for name, version in versions.items() if not version):
        reason += f"; version open: {still_open}, as only a package manager with its repository knows it"
    choice = Choice(
        item=ITEM,
        value=_value(stack, needs.kinds),
        reason=reason,
        source=row.row,
        confidence=confidence(stack.driver.branch, row, repository, unread=_unread(stack, versions)),
        simulated=inputs.simulated and (row.origin == "nvidia" or inputs.facts.nvidia.simulated),
    )
    packages = ", ".join(f"{name} {version or '(version open)'}" for name, version in versions.items())
    lines = (f"The node needs {' and '.join(needs.kinds)}: {needs.why}.", f"Chosen: {packages} ({row.row}).")
    return Part(
        choices=(choice,),
        variables={
            f"{ROLE}_packages": listed(versions),
            f"{ROLE}_services": [SERVICES[kind] for kind in needs.kinds if kind in SERVICES],
            f"{ROLE}_driver": stack.driver.version,
            f"{ROLE}_pin": row.pin,
            **(_through_infiniband(stack) if "subnet manager" in needs.kinds else {}),
        },
        findings=(*_subnet_findings(stack), *_perhaps_on_host(stack)) if "subnet manager" in needs.kinds else (),
        reasoning=(Reasoning(item=ITEM, sentences=lines),),
    )


def _without(stack: Stack) -> Part:
    """No NVSwitch is seen. Said only where boards have the plugs for one, or a fabric manager is there."""
    facts, findings = stack.inputs.facts, _left_behind(stack)
    pluggable = with_fabric(stack.gpus, "nvswitch")
    if not pluggable:
        return Part(findings=findings)
    names = counted(tuple(gpu.name for gpu in pluggable))
    reason = "no NVSwitch among the node's PCI devices"
    if in_virtual_machine(facts):
        reason += ": in a virtual machine, the host runs it"
        message = "the node is a virtual machine that sees no NVSwitch: where its GPUs hang on one, the host must run"
        findings += (_on_host(facts, names, f"{message} the fabric manager, or {ERROR_802}"),)
    choice = Choice(item=ITEM, value="none", reason=reason, source="node: PCI")
    lines = (f"{names} can hang on NVSwitches.", f"None is planned: {reason}.")
    return Part((choice,), findings=findings, reasoning=(Reasoning(item=ITEM, sentences=lines),))


def _left_behind(stack: Stack) -> tuple[Finding, ...]:
    """A fabric manager that has nothing to manage: it fails at every boot, and gpustrap did not put it there."""
    inputs = stack.inputs
    there = inputs.facts.package_manager.packages
    left = {name: there[name] for name in sorted(there) if name.startswith("nvidia-fabric") and there[name]}
    if not left:
        return ()
    tool = "dnf" if inputs.distro.family == "redhat" else "apt-get"
    return (
        Finding(
            code="fabric-manager-left",
            severity="warning",
            subject=", ".join(left),
            message="a fabric manager is installed, and the node has no NVSwitch: its unit fails at every boot",
            evidence="; ".join(f"{name} {version}" for name, version in left.items()),
            advice=f"on {inputs.name}: sudo {tool} remove {' '.join(left)}",
        ),
    )


def _perhaps_on_host(stack: Stack) -> tuple[Finding, ...]:
    """The switches of NVLink 5 are not told by PCI: a virtual machine may have been given all of them, or none."""
    facts = stack.inputs.facts
    if not in_virtual_machine(facts):
        return ()
    names = counted(tuple(gpu.name for gpu in with_fabric(stack.gpus, "nvlink5")))
    message = "the node is a virtual machine: unless it was given the whole board, the host must run the fabric manager"
    return (_on_host(facts, names, f"{message}, or {ERROR_802}, and the planned one finds nothing to manage"),)


def _on_host(facts: Facts, names: str, message: str) -> Finding:
    return Finding(
        code="fabric-manager-on-host",
        severity="note",
        subject=names,
        message=message,
        evidence=f"virtualization {facts.virtualization}; no NVSwitch among the PCI devices",
        advice="ask whoever runs the host for its fabric manager's state",
    )


def _name(stack: Stack, template: str) -> str:
    return fill(stack.inputs, template, stack.driver.branch, stack.driver.version)


def _value(stack: Stack, kinds: tuple[Kind, ...]) -> str:
    """``580.178.04``; with what there is besides the fabric manager, or instead of it."""
    version = stack.driver.version or f"{stack.driver.branch.branch} (version open)"
    return version if kinds == ("fabric manager",) else f"{version}, {' and '.join(kinds)}"


def _available(stack: Stack, name: str) -> tuple[str, ...]:
    """The versions in the node's package manager, as far as they are of the driver's origin."""
    inputs, driver = stack.inputs, stack.driver
    manager = inputs.facts.package_manager
    archive = manager.candidate_origins.get(name, "")
    other = archive and is_nvidias(archive, inputs.request.nvidia_repository) != (driver.packages.origin == "nvidia")
    return () if other else known(inputs, name)


def _exact_version(stack: Stack, name: str) -> str | Problem:
    """The package's version that is the driver's."""
    inputs, driver = stack.inputs, stack.driver
    if not driver.version:
        return ""
    here = _available(stack, name)
    there = inputs.facts.package_manager.packages.get(name, "")
    lock = locked_versions(inputs, "driver", ROLE).get(name, "")  # it moves with the driver, never alone
    found = next((version for version in (lock, there, *here) if upstream_version(version) == driver.version), "")
    if found:
        return found
    if here:
        return _mismatch(stack, name, here)
    if driver.packages.version:
        return driver.package_version
    if inputs.offline or components_off(inputs.facts, driver.packages):
        return ""
    message = f"apt on the node knows no version of {name}, which its NVLinks need"
    remedy = f"on {inputs.name}: sudo apt-get update; then gpustrap plan {inputs.name}"
    return inputs.problem("package-unavailable", message, remedy)


def _mismatch(stack: Stack, name: str, here: tuple[str, ...]) -> Problem:
    inputs, driver = stack.inputs, stack.driver
    message = f"the fabric manager must be of exactly the driver's version, {driver.version}, and apt has only "
    message += f"{name} {here[0]}"
    again = f"on {inputs.name}: sudo apt-get update; then gpustrap plan {inputs.name}"
    same = next((v for v in map(upstream_version, here) if v.partition(".")[0] == driver.branch.branch), "")
    if numbers(same) > numbers(driver.version) and not inputs.request.driver_version:
        remedy = "gpustrap plan --upgrade --only driver, which takes the newest of both"
    elif same:
        remedy = f"set gpustrap_driver_version: {same}, so that both are the same; or {again}"
    else:
        remedy = again
    return inputs.problem("fabric-manager-mismatch", message, remedy, evidence=f"{name}: {', '.join(here)}")


def _unread(stack: Stack, versions: dict[str, str]) -> bool:
    """Whether a version is the driver's by rule alone: the node knows no such package, and nobody saw that driver."""
    packages, driver = stack.inputs.facts.package_manager.packages, stack.driver
    guessed = [n for n, v in versions.items() if v and v not in {packages.get(n), *_available(stack, n)}]
    return bool(guessed) and driver.version not in driver.packages.seen


def _any_version(stack: Stack, name: str) -> str:
    """The driver's version where there is one, else the newest; empty where only a repository still to come knows."""
    here = known(stack.inputs, name)
    exact = next((version for version in here if upstream_version(version) == stack.driver.version), "")
    return exact or next(iter(here), "")


def _through_infiniband(stack: Stack) -> dict[str, object]:
    """The kernel module that the subnet manager works through; Ubuntu has it in a package of its own."""
    packages = ["linux-modules-extra-{kernel}"] if stack.inputs.distro.id == "ubuntu" else []
    return {f"{ROLE}_kernel_packages": packages, f"{ROLE}_kernel_modules": ["ib_umad"]}


def _subnet_findings(stack: Stack) -> tuple[Finding, ...]:
    """On Ubuntu the role installs the package that has it."""
    if stack.inputs.distro.id == "ubuntu":
        return ()
    gpus = counted(tuple(gpu.name for gpu in with_fabric(stack.gpus, "nvlink5")))
    return (
        Finding(
            code="nvlink5-needs-ib-umad",
            severity="note",
            subject=gpus,
            message="the subnet manager of NVLink 5 works through the kernel module ib_umad, or the fabric stays in "
            "progress and CUDA ends with error 802",
            evidence="NVIDIA/gpu-operator#2781",
            advice=f"on the node: modinfo -k {stack.inputs.facts.kernel.running} ib_umad",
        ),
    )
