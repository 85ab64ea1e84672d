"""The use-cases of the lab: start it, look at it, remove it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpustrap.errors import Problem
from gpustrap.lab import images, inventory, preflight, state
from gpustrap.lab.engine import Engine, refusal
from gpustrap.lab.manager import DEFAULT_LAB, Lab, LabNode, NodeSpec, all_statuses
from gpustrap.lab.status import Status
from gpustrap.model.progress import Progress, silent
from gpustrap.model.site import Site

DEFAULT_NODES = ("node1:debian13", "node2:debian12")


def parse_spec(text: str, *, bare: bool = False, gpus: str = "") -> NodeSpec:
    """Read ``NODE:OS``; the system may be left out.

    Raises:
        GpustrapError: It has more than one colon, or nothing before it.
    """
    name, _, os_name = text.partition(":")
    if not name or ":" in os_name:
        raise refusal("lab-spec-invalid", f"argument {text!r}", "a node is given as NODE:OS", remedy="node1:debian13")
    return NodeSpec(name, os_name or "debian13", bare=bare, gpus=gpus)


def up(
    nodes: Sequence[str] = (),
    *,
    lab: str = DEFAULT_LAB,
    site: Site | None = None,
    bare: bool = False,
    standins: bool = False,
    gpus: str = "",
    progress: Progress = silent,
) -> tuple[LabNode, ...]:
    """Start nodes and, if a site is given, put all nodes of the lab there; stand-ins are for a site only.

    All of them get the simulated GPUs that ``gpus`` names.

    Raises:
        GpustrapError: Containers cannot run here, or one does not start.
    """
    specs = [parse_spec(text, bare=bare, gpus=gpus) for text in nodes or DEFAULT_NODES]
    laboratory = Lab(lab)
    started = laboratory.up(specs, progress)
    if site is not None:
        everyone = laboratory.nodes()
        served = laboratory.standins(progress) if standins else None
        if gpus and served is None:
            served = {}  # nothing is served, and yet what is planned for these nodes is simulated
        inventory.write(site, everyone, served)
        laboratory.remember_site(site.root)
    return started


def down(lab: str = DEFAULT_LAB, progress: Progress = silent) -> tuple[str, ...]:
    """Remove a lab, also what a crash left of it, and its nodes from the sites they were written to.

    A lab that is not there is no error: scripts take down before they put up.
    """
    laboratory = Lab(lab)
    for root in laboratory.sites():
        inventory.remove(Site(root))
    return laboratory.down(progress)


def down_all(progress: Progress = silent) -> tuple[str, ...]:
    """Remove every lab of this machine, also what crashes left, and the images of nodes."""
    preflight.require()
    gone = [f"{lab}/{node}" for lab in labs() for node in down(lab, progress)]
    return (*gone, *images.remove_all(Engine.start()))


def labs() -> tuple[str, ...]:
    """The names of the labs of this machine."""
    return tuple(sorted({one.lab for one in all_statuses()} | set(state.labs())))


def status() -> tuple[Status, ...]:
    """The containers of every lab on this machine."""
    return all_statuses()


def standins(
    lab: str = DEFAULT_LAB, *, faults: Sequence[str] = (), heal: bool = False, repositories: Sequence[str] = ()
) -> dict[str, list[str]]:
    """Put faults into a lab's stand-ins of NVIDIA's repositories, or heal them; give the faults of each, by name.

    Raises:
        GpustrapError: The lab serves none, or there is no such repository, fault or package.
    """
    laboratory = Lab(lab)
    if faults or heal:
        laboratory.spoil_standins(repositories, faults)
    return laboratory.standin_faults()


def shell(node: str, lab: str = DEFAULT_LAB, *, terminal: bool = True) -> int:
    """Open a root shell in a node on this terminal and give its exit status.

    Raises:
        GpustrapError: The node does not run, or runs in another lab.
    """
    where = [one.lab for one in all_statuses() if one.name == node and one.state == "running"]
    if where and lab not in where:
        message, remedy = f"runs in lab {where[0]}, not in lab {lab}", f"gpustrap lab shell {node} --lab {where[0]}"
        raise refusal("lab-no-such-node", f"node {node}", message, remedy=remedy)
    there = Lab(lab).node(node)
    flags = ("--interactive", "--tty") if terminal else ("--interactive",)
    return there.engine.interactive(("exec", *flags, "--workdir=/root", there.container, "bash", "--login"))


def password_file(lab: str = DEFAULT_LAB) -> Path:
    """The file with the password of ``ubuntu``; its first line is the password.

    Raises:
        GpustrapError: There is no such lab.
    """
    path = state.password_file(lab)
    if not path.is_file():
        raise refusal("lab-no-such-lab", f"lab {lab}", "has no nodes", remedy=f"gpustrap lab up --lab {lab}")
    return path


def image(os_name: str, *, bare: bool = False, progress: Progress = silent) -> str:
    """Make sure a node image exists and give its reference.

    Raises:
        GpustrapError: It cannot be made.
    """
    preflight.require()
    return images.ensure(Engine.start(), os_name, bare=bare, progress=progress)


def missing() -> tuple[Problem, ...]:
    """What this machine lacks to run labs."""
    return preflight.missing()
