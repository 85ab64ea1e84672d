"""A lab: nodes started, found again, saved, and removed without a trace."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gpustrap.errors import GpustrapError
from gpustrap.lab import container, images, network, preflight, state
from gpustrap.lab.engine import (
    LABEL_LAB,
    LABEL_SNAPSHOT,
    Engine,
    EngineError,
    refusal,
)
from gpustrap.lab.gpus import node as gpu_node
from gpustrap.lab.status import MIRROR, Status, read_statuses
from gpustrap.model.progress import Progress, Step, silent

DEFAULT_LAB = "lab"
USER = "ubuntu"
MIRROR_OS = "debian13"
BOOT_SECONDS = 180
T = TypeVar("T")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node to start.

    Attributes:
        name: Node and host name.
        os: One of `images.OS_NAMES`.
        bare: Without python3.
        snapshot: Start from this tag of `Lab.snapshot` instead of the fresh image.
        gpus: Simulated GPUs, ``PROFILE`` or ``PROFILE:BRANCH[:FLAVOUR]``; none where empty.
    """

    name: str
    os: str = "debian13"
    bare: bool = False
    snapshot: str | None = None
    gpus: str = ""


@dataclass(frozen=True, slots=True)
class LabNode:
    """A node that runs.

    Attributes:
        host_key_fingerprint: Of its ed25519 host key, as ``ssh-keygen`` prints it (``SHA256:…``).
    """

    lab: str
    name: str
    os: str
    address: str
    user: str
    password: str
    host_key_fingerprint: str
    engine: Engine

    def __repr__(self) -> str:
        """Without the password."""
        return f"LabNode({self.lab}/{self.name}, {self.os}, {self.address})"

    @property
    def container(self) -> str:
        """The container's name for the engine."""
        return container.name(self.lab, self.name)

    def exec(
        self, command: str | Sequence[str], *, user: str = "root", stdin: bytes | None = None, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the node behind SSH's back; a string is given to ``sh -c``."""
        words = ("sh", "-c", command) if isinstance(command, str) else tuple(command)
        interactive = () if stdin is None else ("--interactive",)
        done = self.engine.call(
            "exec", *interactive, f"--user={user}", self.container, *words, stdin=stdin, timeout=timeout
        )
        out, err = (part.decode(errors="replace") for part in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(words, done.returncode, out, err)


def check_name(what: str, text: str) -> None:
    """Refuse a name that is no host name.

    Raises:
        GpustrapError: It is not.
    """
    if not _NAME.fullmatch(text) or text == MIRROR:
        raise refusal(
            "lab-name-invalid",
            f"{what} {text!r}",
            f"a name has lower-case letters, digits and dashes, at most 32, and is not {MIRROR}",
            remedy="choose another name, e.g. node1",
        )


class Lab:
    """Throw-away nodes on one private bridge. Everything it makes carries its label."""

    def __init__(self, name: str = DEFAULT_LAB) -> None:
        check_name("lab", name)
        preflight.require()
        self.name = name
        self.engine = Engine.start()
        self._label = f"label={LABEL_LAB}={name}"

    @property
    def directory(self) -> Path:
        """What the lab keeps on this machine."""
        return state.directory(self.name)

    def up(self, specs: Sequence[NodeSpec], progress: Progress = silent) -> tuple[LabNode, ...]:
        """Start nodes; those that exist already are kept, and started again if they had stopped.

        Raises:
            GpustrapError: An image, the bridge or a node cannot be made; a node exists with another system.
        """
        for spec in specs:
            check_name("node", spec.name)
        sources = dict(zip(specs, _each(lambda spec: self._image(spec, progress), specs), strict=True))
        with state.lock(f"{self.name}/lab"):
            subnet = network.ensure(self.engine, self.name)
            known = {status.name: status for status in self.status()}
            self._refuse_other_systems(specs, known)
            for spec in specs:
                if spec.gpus:
                    gpu_node.ready(self.gpus(spec.name), self.name, spec.name, spec.gpus, known=spec.name in known)
            taken = {status.address for status in known.values()}
            free = network.free_addresses(subnet, taken, self.directory / "last-address")
            for spec in specs:
                self._run(spec, sources[spec], known.get(spec.name), free, progress)
        return _each(lambda spec: self.wait(spec.name, progress), specs)

    def _image(self, spec: NodeSpec, progress: Progress) -> str:
        if spec.snapshot is not None:
            return self._snapshot_reference(spec.snapshot)
        return images.ensure(self.engine, spec.os, bare=spec.bare, progress=progress)

    def _refuse_other_systems(self, specs: Sequence[NodeSpec], known: dict[str, Status]) -> None:
        for spec in specs:
            there = known.get(spec.name)
            if there is not None and there.os != spec.os:
                raise refusal(
                    "lab-node-differs",
                    f"node {spec.name}",
                    f"lab {self.name} has it already, with {there.os} instead of {spec.os}",
                    remedy=f"gpustrap lab down --lab {self.name}",
                )

    def gpus(self, node: str) -> Path:
        """The directory of a node's simulated GPUs; see `gpustrap.lab.gpus.node`."""
        return self.directory / "gpus" / node

    def _run(self, spec: NodeSpec, image: str, there: Status | None, free: Iterator[str], progress: Progress) -> None:
        volume = container.volume(self.name, spec.name)
        try:
            if there is None:
                progress(Step(spec.name, f"starting {spec.os}"))
                if not self.engine.exists("volume", volume):
                    self.engine.run("volume", "create", f"--label={LABEL_LAB}={self.name}", volume)
                gpus = self.gpus(spec.name) if spec.gpus else None
                self.engine.run(*container.node_arguments(self.name, spec.name, spec.os, next(free), image, gpus))
            elif there.state != "running":
                progress(Step(spec.name, "starting again"))
                self.engine.run("start", container.name(self.name, spec.name))
        except EngineError as error:
            raise refusal(
                "lab-node-failed",
                f"node {spec.name}",
                "its container does not start",
                evidence=error.words,
                remedy=f"gpustrap lab down --lab {self.name}",
            ) from error

    def wait(self, node: str, progress: Progress = silent) -> LabNode:
        """Wait until a node has booted and its sshd listens.

        Raises:
            GpustrapError: It did not within `BOOT_SECONDS`.
        """
        name = container.name(self.name, node)
        deadline = time.monotonic() + BOOT_SECONDS
        progress(Step(node, "booting"))
        while True:
            booted = self.engine.call("exec", name, "sh", "-c", READY)
            if booted.returncode == 0:
                break
            if time.monotonic() > deadline:
                log = self.engine.call("logs", "--tail=15", name)
                words = booted.stdout + booted.stderr + log.stdout + log.stderr
                raise refusal(
                    "lab-node-failed",
                    f"node {node}",
                    f"did not boot within {BOOT_SECONDS} s",
                    evidence=words.decode(errors="replace"),
                    remedy=f"gpustrap lab shell {node} --lab {self.name}",
                )
            time.sleep(0.3)
        self.engine.run(
            "exec", "--interactive", name, "chpasswd", stdin=f"{USER}:{state.password(self.name)}\n".encode()
        )
        found = self.node(node)
        progress(Step(node, f"{found.os} at {found.address}", done=True))
        return found

    def node(self, name: str) -> LabNode:
        """A node of this lab that runs.

        Raises:
            GpustrapError: It does not.
        """
        known = {status.name: status for status in self.status() if status.state == "running"}
        if name not in known:
            raise refusal(
                "lab-no-such-node",
                f"node {name}",
                f"does not run in lab {self.name}",
                evidence=f"running: {', '.join(known) or 'none'}",
                remedy=f"gpustrap lab up {name}:debian13 --lab {self.name}",
            )
        line = self.engine.run("exec", container.name(self.name, name), "ssh-keygen", "-lf", HOST_KEY)
        return LabNode(
            lab=self.name,
            name=name,
            os=known[name].os,
            address=known[name].address,
            user=USER,
            password=state.password(self.name),
            host_key_fingerprint=line.split()[1],
            engine=self.engine,
        )

    def nodes(self) -> tuple[LabNode, ...]:
        """The nodes of this lab that run."""
        running = (status.name for status in self.status() if status.state == "running" and status.name != MIRROR)
        return tuple(self.node(name) for name in running)

    def status(self) -> tuple[Status, ...]:
        """The containers of this lab, also what a crash left behind."""
        return read_statuses(self.engine, self._label)

    def reboot(self, node: str) -> LabNode:
        """Reboot a node as its user would, and wait until it is back.

        Raises:
            GpustrapError: It does not come back.
        """
        name = container.name(self.name, node)
        started = ("inspect", "--format={{.State.StartedAt}} {{.State.Running}}", name)
        before = self.engine.run(*started)
        self.engine.call("exec", name, "systemctl", "reboot")
        deadline = time.monotonic() + BOOT_SECONDS
        while (now := self.engine.run(*started)) == before or not now.endswith("true"):
            if time.monotonic() > deadline:
                raise refusal("lab-node-failed", f"node {node}", f"did not reboot within {BOOT_SECONDS} s")
            time.sleep(0.2)
        return self.wait(node)

    def snapshot(self, node: str, tag: str) -> str:
        """Save a node's files under a tag, to start other nodes from; ``/var/lib/docker`` is not among them."""
        reference = self._snapshot_reference(tag)
        labels = ("--change", f"LABEL {LABEL_SNAPSHOT}={self.name}")
        self.engine.run("commit", "--quiet", *labels, container.name(self.name, node), reference, timeout=300)
        return reference

    def _snapshot_reference(self, tag: str) -> str:
        return f"localhost/gpustrap-lab/snapshot-{self.name}:{tag}"

    def serve(self, directory: Path) -> str:
        """Show a directory of this machine to the nodes over HTTP, as host ``mirror``, and give its base URL."""
        image = images.ensure(self.engine, MIRROR_OS)
        name = container.name(self.name, MIRROR)
        with state.lock(f"{self.name}/lab"):
            address = str(network.ensure(self.engine, self.name)[network.MIRROR])
            self.engine.call("rm", "--force", "--time=0", name)
            self.engine.run(*container.mirror_arguments(self.name, address, str(directory.resolve()), image))
        deadline = time.monotonic() + BOOT_SECONDS
        while not network.listens(address, 80):
            if time.monotonic() > deadline:
                words = self.engine.call("logs", name).stderr.decode(errors="replace")
                raise refusal("lab-mirror-failed", "mirror", "its HTTP server does not answer", evidence=words)
            time.sleep(0.1)
        return f"http://{address}"

    def standins(self, progress: Progress = silent) -> dict[str, object]:
        """Build what cannot be reached from here, serve it, and give the request variables that point at it."""
        from gpustrap.lab import standins  # noqa: PLC0415 - heavy, and most labs have none

        directory = self.directory / "standins"
        state.make_directory(directory)
        base_url = self.serve(directory)
        return standins.build(directory, base_url=base_url, progress=progress)

    def spoil_standins(self, repositories: Sequence[str], faults: Sequence[str]) -> None:
        """Let NVIDIA's repositories of these names have these faults and no others; all, where none is named.

        Raises:
            GpustrapError: The lab serves none, or there is no such repository, fault or package.
        """
        from gpustrap.lab import standins  # noqa: PLC0415 - as above

        with state.lock(f"{self.name}/lab"):
            standins.spoil(self.directory / "standins", repositories, faults)

    def standin_faults(self) -> dict[str, list[str]]:
        """Name of each of NVIDIA's repositories that the lab serves -> its faults."""
        from gpustrap.lab import standins  # noqa: PLC0415 - as above

        return standins.faulty(self.directory / "standins")

    def remember_site(self, root: Path) -> None:
        """Note that a site has this lab's nodes, so that `down` can take them out."""
        roots = dict.fromkeys([*self.sites(), root.resolve()])
        state.write(self.directory / "sites", "".join(f"{path}\n" for path in roots))

    def sites(self) -> tuple[Path, ...]:
        """Sites that have this lab's nodes."""
        path = self.directory / "sites"
        return tuple(Path(line) for line in path.read_text(encoding="utf-8").splitlines()) if path.exists() else ()

    def remove(self, node: str) -> None:
        """Remove one node and its volume."""
        self.engine.call("rm", "--force", "--time=0", container.name(self.name, node))
        self.engine.call("volume", "rm", "--force", container.volume(self.name, node))
        shutil.rmtree(self.gpus(node), ignore_errors=True)

    def down(self, progress: Progress = silent) -> tuple[str, ...]:
        """Remove everything that carries the lab's label, and the lab's files; give the names of what went."""
        with state.lock(f"{self.name}/lab"):
            names = [status.name for status in self.status() if status.name]
            for name in names:
                progress(Step(name, "removing"))
                self.remove(name)
                progress(Step(name, "removed", done=True))
            for volume in self.engine.list("volume", self._label):
                self.engine.call("volume", "rm", "--force", volume["Name"])
            for image in self.engine.list("images", f"label={LABEL_SNAPSHOT}={self.name}"):
                self.engine.call("rmi", "--force", image["Id"])
            for bridge in self.engine.list("network", self._label):
                self.engine.run("network", "rm", "--force", bridge["name"])
            state.remove(self.name)
        state.sweep()
        return tuple(names)


HOST_KEY = "/etc/ssh/ssh_host_ed25519_key.pub"
# Booted: systemd has started everything and sshd has its key and listens (Ubuntu's by its socket).
READY = (
    f"systemctl is-system-running --wait >/dev/null; [ -s {HOST_KEY} ] && systemctl is-active -q ssh.service ssh.socket"
)


def all_statuses() -> tuple[Status, ...]:
    """The containers of every lab on this machine."""
    preflight.require()
    return read_statuses(Engine.start(), f"label={LABEL_LAB}")


def _each(function: Callable[[NodeSpec], T], specs: Sequence[NodeSpec]) -> tuple[T, ...]:
    """Do something for all nodes at a time; what went wrong with any of them is raised once, at the end."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        futures = [pool.submit(function, spec) for spec in specs]
    errors = [error for future in futures if isinstance(error := future.exception(), GpustrapError)]
    if errors:
        raise GpustrapError(*dict.fromkeys(problem for error in errors for problem in error.problems))
    return tuple(future.result() for future in futures)
