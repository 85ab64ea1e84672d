"""Which checks a node is asked for at each level, and with which arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpustrap.model.check import LEVELS, Level
from gpustrap.model.environment import PYTHON, Environment
from gpustrap.model.lock import NodeLock

SECONDS = 600  # for all checks of a node; a first environment from a slow mirror takes minutes
GPU_SECONDS = 900  # more for the thorough checks of GPUs
ENVIRONMENT_SECONDS = 300  # more for each environment: frameworks start slowly, and are used on every GPU
ENVIRONMENTS = "ml_environments"
SIZE, SIMULATED_SIZE = 1024, 32  # rows and columns of matrices; stand-ins of frameworks reckon in Python
GPU_SIZE, GPU_SIMULATED_SIZE = 1024, 128  # the same of our own kernels, a multiple of 64
CUBLAS_SIZE = 8192  # large enough for its full speed
COPY, SIMULATED_COPY = 256 << 20, 1 << 20  # bytes
GPU_LIMIT, QUICK_GPU_LIMIT = 180, 90  # seconds for one check on all GPUs at once; one that is not done by then hangs
LOGIN_SECONDS = 60  # connecting and becoming root, at most; a clock that is ahead is known no better than this

# What the lock's choices call that of a role, where it is not the role's name; an environment's is its check's id.
ITEMS = {"nvidia_driver": "driver"}

Variables = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One check of the node program.

    Attributes:
        id: Its name there and here.
        title: For people.
        role: The role whose work it proves; left out (skip) when the lock does not give the node that role.
            Empty: asked of every node.
        arguments: From the roles' variables to the check's arguments.
        level: The lowest at which it is made.
        may_skip: The node may have nothing to check: no cuBLAS, or a single GPU.
        kernels: Whether it runs kernels of ours, which are sent along.
    """

    id: str
    title: str
    role: str
    arguments: Callable[[NodeLock], Variables]
    level: Level = "quick"
    may_skip: bool = False
    kernels: bool = False


def _role(lock: NodeLock, role: str) -> Variables:
    """A role's variables without their prefix."""
    return {name.removeprefix(f"{role}_"): value for name, value in lock.roles.get(role, {}).items()}


def units(lock: NodeLock) -> Variables:
    """The units of ours that must not have failed."""
    units = ["ssh.service", "sshd.service"]
    if "docker" in lock.roles:
        units += ["docker.service", "docker.socket", "containerd.service"]
    return {"units": [*units, *filter(None, [_time_service(lock)])]}


def _time_service(lock: NodeLock) -> str:
    server = _role(lock, "ubuntu_server")
    if not server.get("time_sync"):
        return ""
    service = str(server.get("time_sync_service") or "")
    return service if not service or "." in service else f"{service}.service"


def _clock(lock: NodeLock) -> Variables:
    return {"ahead": LOGIN_SECONDS, "service": _time_service(lock)}  # the controller's time is added when it is sent


def _disk(lock: NodeLock) -> Variables:
    paths = ["/", "/boot", "/boot/efi", "/var", "/tmp", "/var/tmp"]  # noqa: S108 - looked at, not written to
    if "docker" in lock.roles:
        daemon = _role(lock, "docker").get("daemon") or {}
        paths.append(str(daemon.get("data-root") or "/var/lib/docker"))
    if "conda" in lock.roles:
        paths.append(str(_role(lock, "conda")["prefix"]))
    return {"paths": paths}


def _conda_environment(lock: NodeLock) -> Variables:
    conda = _role(lock, "conda")
    return {
        "prefix": conda["prefix"],
        "channels": list(conda["channels"]),
        "packages": ["python"],
        "program": ["bin/python", "-c", "print('TOKEN')"],
        "proxy": _proxy(conda.get("proxy") or {}),
    }


def _proxy(proxy: Variables) -> dict[str, str]:
    no_proxy = proxy.get("no_proxy") or ()
    values = {
        "http_proxy": proxy.get("http"),
        "https_proxy": proxy.get("https"),
        "no_proxy": no_proxy if isinstance(no_proxy, str) else ",".join(no_proxy),
    }
    return {name: str(value) for name, value in values.items() if value}


def _gpus(lock: NodeLock) -> Variables:
    """All GPUs, used by who may use them and is nobody else."""
    group = str(_role(lock, "nvidia_driver").get("group") or "")
    return {"gpus": [], "limit": GPU_LIMIT, "groups": [group] if group else []}


def _matmul(lock: NodeLock) -> Variables:
    size = GPU_SIMULATED_SIZE if lock.simulated else GPU_SIZE
    return {**_gpus(lock), "limit": QUICK_GPU_LIMIT, "size": size, "seeds": [1], "seconds": 1}


def _cublas(lock: NodeLock) -> Variables:
    prefix = str(_role(lock, ENVIRONMENTS).get("prefix") or "")
    places = [f"{prefix}/{one.name}/current" for one in _environments(lock)]
    return {**_gpus(lock), "size": CUBLAS_SIZE, "seeds": [1], "seconds": 4, "prefixes": places}


def _memory(lock: NodeLock) -> Variables:
    return {**_gpus(lock), "seed": 1, "most": None}


def _bandwidth(lock: NodeLock) -> Variables:
    return {**_gpus(lock), "size": SIMULATED_COPY if lock.simulated else COPY, "seconds": 1}


def _peers(lock: NodeLock) -> Variables:
    return {**_gpus(lock), "size": SIMULATED_COPY if lock.simulated else COPY, "seconds": 0.2}


WANTED: tuple[Wanted, ...] = (
    Wanted("sudo-works", "The login becomes root", "", lambda _lock: {}),
    Wanted("systemd-healthy", "No unit has failed", "", units),
    Wanted("clock-sane", "The clock is right", "", _clock),
    Wanted("disk-has-room", "Filesystems have room", "", _disk),
    Wanted(
        "driver-loaded",
        "The locked driver is loaded",
        "nvidia_driver",
        lambda lock: {"version": str(_role(lock, "nvidia_driver").get("version") or "")},
    ),
    Wanted("gpu-matmul", "Every GPU multiplies without a wrong bit", "nvidia_driver", _matmul, kernels=True),
    Wanted(
        "gpu-cublas", "cuBLAS multiplies without a wrong bit", "nvidia_driver", _cublas, "standard", True, kernels=True
    ),
    Wanted("gpu-memory", "GPU memory keeps what is written", "nvidia_driver", _memory, "standard", kernels=True),
    Wanted("gpu-bandwidth", "Copies bring the same data", "nvidia_driver", _bandwidth, "standard", kernels=True),
    Wanted("gpu-peers", "GPUs reach each other", "nvidia_driver", _peers, "standard", True, kernels=True),
    Wanted(
        "docker-daemon",
        "The docker daemon runs, in the locked version",
        "docker",
        lambda lock: {"packages": _role(lock, "docker").get("packages") or []},
    ),
    Wanted(
        "docker-config",
        "Docker is configured as locked",
        "docker",
        lambda lock: {"daemon": _role(lock, "docker").get("daemon") or {}},
    ),
    Wanted("docker-runs-a-container", "Docker runs a container", "docker", lambda _lock: {}),
    Wanted(
        "conda-version",
        "Conda is the locked version",
        "conda",
        lambda lock: {key: _role(lock, "conda")[key] for key in ("prefix", "version")},
    ),
    Wanted("conda-creates-an-environment", "Conda makes an environment", "conda", _conda_environment),
)


def _environments(lock: NodeLock) -> tuple[Environment, ...]:
    return tuple(Environment.model_validate(found) for found in _role(lock, ENVIRONMENTS).get("environments") or ())


def _environment(lock: NodeLock, wanted: Environment, *, thorough: bool) -> Variables:
    role = _role(lock, ENVIRONMENTS)
    return {
        "name": wanted.name,
        "prefix": role["prefix"],
        "digest": wanted.digest,
        "framework": wanted.framework,
        "modules": list(wanted.modules),
        "compute": [] if wanted.framework == PYTHON else list(wanted.compute),
        "gpus": list(wanted.gpus),
        "users": wanted.users,
        "gpu_group": str(_role(lock, "nvidia_driver").get("group") or ""),
        "conda": wanted.engine == "conda",
        "size": SIMULATED_SIZE if lock.simulated else SIZE,
        "thorough": thorough,
    }


def _title(wanted: Environment) -> str:
    if wanted.framework == PYTHON:
        return f"Environment {wanted.name} is complete"
    if not wanted.compute:
        return f"Environment {wanted.name} works on the CPU"
    return f"Environment {wanted.name} uses {'its' if wanted.gpus else 'all'} GPUs"


def wanted_checks(lock: NodeLock, level: Level) -> tuple[Wanted, ...]:
    """Every check of a node at a level: those of all nodes, and one for each environment that its lock has."""
    thorough = LEVELS.index(level) >= LEVELS.index("standard")
    found = (
        Wanted(
            f"environment-{one.name}",
            _title(one),
            ENVIRONMENTS,
            partial(_environment, wanted=one, thorough=thorough),
        )
        for one in _environments(lock)
    )
    here = (one for one in WANTED if LEVELS.index(one.level) <= LEVELS.index(level))
    return (*here, *found)


def seconds(lock: NodeLock, level: Level) -> int:
    """How long all checks of a node may take."""
    more = GPU_SECONDS if level != "quick" else 0
    return SECONDS + more + ENVIRONMENT_SECONDS * len(_environments(lock))
