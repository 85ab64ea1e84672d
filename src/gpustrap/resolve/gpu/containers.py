"""Decides how docker's containers get at the GPUs: the toolkit's version, and CDI where docker is new enough for it."""

from __future__ import annotations

from dataclasses import dataclass

from gpustrap.catalog.schema_stack import CdiSupport
from gpustrap.model.lock import Choice
from gpustrap.model.plan import Finding, Reasoning
from gpustrap.resolve.confidence import confidence
from gpustrap.resolve.docker_packages import ENGINE
from gpustrap.resolve.gpu.packages import known_to_all, listed, locked_versions, numbers, or_newer, upstream
from gpustrap.resolve.gpu.stack import Stack
from gpustrap.resolve.parts import Part
from gpustrap.resolve.repository import locked, variables

ROLE = "nvidia_container_toolkit"
ITEM = "container-toolkit"


@dataclass(frozen=True, slots=True)
class Mode:
    """How docker is told of GPUs.

    Attributes:
        name: ``cdi``, or ``runtime``: NVIDIA's runtime in daemon.json.
        feature: docker needs ``features.cdi`` for it.
        why: As a sentence without a full stop.
        findings: What a person should know of it.
    """

    name: str
    feature: bool
    why: str
    findings: tuple[Finding, ...] = ()


def plan_containers(stack: Stack, docker: Part) -> Part:
    """Decide the variables of role nvidia_container_toolkit; ``docker`` is what was decided of docker."""
    inputs = stack.inputs
    if not inputs.request.docker or not inputs.request.container_toolkit:
        switch = "gpustrap_container_toolkit" if inputs.request.docker else "gpustrap_docker"
        return Part((Choice(item=ITEM, value="none", reason=f"{switch} is false", source="request"),))
    row = inputs.catalog.container_toolkit
    name = row.rpm_repository if inputs.distro.family == "redhat" else row.repository
    repository = inputs.catalog.repository(name, inputs.facts.os.architecture)
    engine = _engine(docker)
    if repository is None or not engine:
        return Part()  # without docker's version, its own refusal says why
    versions, whence = _versions(stack)
    version = next(iter(versions.values()))
    mode = _mode(stack, *engine)
    choice = Choice(
        item=ITEM,
        value=f"{version} {mode.name}",
        reason=f"{whence}; {mode.why}",
        source="catalog: containers, toolkit and cdi",
        confidence=confidence(row, repository, _cdi(stack)),
        simulated=inputs.simulated,
    )
    lines = (f"Version {version}: {whence} ({row.source}).", f"Mode {mode.name}: {mode.why}.")
    return Part(
        choices=(choice,),
        variables={
            f"{ROLE}_packages": listed(versions),
            f"{ROLE}_mode": mode.name,
            f"{ROLE}_docker_cdi_feature": mode.feature,
            f"{ROLE}_podman_min": _podman(stack),
            f"{ROLE}_proxy": inputs.proxy,
            f"{ROLE}_containerd": inputs.request.container_toolkit_containerd,
            **{f"{ROLE}_{key}": value for key, value in variables(inputs, repository).items()},
        },
        findings=mode.findings,
        reasoning=(Reasoning(item=ITEM, sentences=lines),),
        repositories=(locked(inputs, repository),),
    )


def _engine(docker: Part) -> tuple[str, str] | None:
    """Name and version of docker's engine, as decided."""
    packages = (docker.variables or {}).get("docker_packages", ())
    return next(((p["name"], upstream(p["version"])) for p in packages if p["name"] in ENGINE.values()), None)


def _versions(stack: Stack) -> tuple[dict[str, str], str]:
    """Package -> version, all the same, and where it is from."""
    inputs, row = stack.inputs, stack.inputs.catalog.container_toolkit
    own = row.rpm_version if inputs.distro.family == "redhat" else row.version
    on_node = next(iter(known_to_all(inputs, row.packages)), "")
    lock = locked_versions(inputs, ITEM, ROLE)
    if lock and lock.keys() == set(row.packages):
        version = next(iter(lock.values()))
        return dict(lock), f"locked{or_newer(on_node or own, version)}"
    if on_node:
        return dict.fromkeys(row.packages, on_node), "the newest that the node's package manager knows"
    return dict.fromkeys(row.packages, own), "the version that the catalog knows"


def _mode(stack: Stack, engine: str, version: str) -> Mode:
    toolkit = stack.inputs.catalog.container_toolkit
    if _features(stack).get("cdi") is False:
        return Mode("runtime", feature=False, why="gpustrap_docker_daemon switches features.cdi off")
    row = _cdi(stack)
    if row and not version:
        why = f"CDI, if {engine} turns out to be {row.docker_min} or newer; its version is left open"
        return Mode("cdi", feature=False, why=why)
    spec = f"version {toolkit.cdi_spec} of the CDI spec, which toolkit {upstream(toolkit.version)} writes"
    if row is None or numbers(version) < numbers(row.docker_min):
        needs = f"{spec}, needs docker {row.docker_min}" if row else f"no docker is known to read {spec}"
        finding = Finding(
            code="docker-too-old-for-cdi",
            severity="warning",
            subject=f"{engine} {version}",
            message=f"{needs}: containers get the GPUs through NVIDIA's runtime instead, and may lose them when "
            "systemd reloads its units",
            evidence=f"catalog: containers, cdi {toolkit.cdi_spec}" + (f": {row.source}" if row else ""),
            advice="set gpustrap_docker_origin: upstream for a newer docker",
        )
        why = f"{engine} {version} is too old for CDI: {needs}"
        return Mode("runtime", feature=False, why=why, findings=(finding,))
    feature = numbers(version) < numbers(row.docker_default)
    switch = "with features.cdi switched on" if feature else "on by default"
    findings = (_no_restart(engine, version),) if feature else ()
    return Mode("cdi", feature=feature, why=f"{engine} {version} reads {spec}: CDI, {switch}", findings=findings)


def _no_restart(engine: str, version: str) -> Finding:
    """Docker 28.2, which has CDI on by default, is the first that knows it before it restarts containers."""
    return Finding(
        code="docker-cdi-no-restart",
        severity="note",
        subject=f"{engine} {version}",
        message="when this docker starts, containers with a restart policy that have GPUs by --device stay down",
        evidence="moby/moby#49989, mended in docker 28.2",
        advice="start those with --runtime=nvidia instead, or set gpustrap_docker_origin: upstream",
    )


def _cdi(stack: Stack) -> CdiSupport | None:
    """Which docker reads the CDI spec that the toolkit writes."""
    catalog = stack.inputs.catalog
    return next((row for row in catalog.cdi if row.spec == catalog.container_toolkit.cdi_spec), None)


def _podman(stack: Stack) -> str:
    """The oldest podman that reads it, as far as that is known."""
    row = _cdi(stack)
    return row.podman_min if row else "0"


def _features(stack: Stack) -> dict[str, object]:
    """What the user's own daemon.json says of features; any type of value may be there."""
    features = stack.inputs.request.docker_daemon.get("features")
    return features if isinstance(features, dict) else {}
