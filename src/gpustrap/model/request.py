"""What the user wants of a node: the inventory variables named ``gpustrap_*``, all documented here.

The field ``docker_users`` is the inventory variable ``gpustrap_docker_users``. docs/variables.md and the
comments of the example inventory are generated from the descriptions below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from gpustrap.model.base import Frozen
from gpustrap.model.environment import WORDS, EnvironmentWish


@dataclass(frozen=True, slots=True)
class Form:
    """What a pattern asks for, for a person: nobody is shown a regular expression.

    Attributes:
        words: After "must be".
        example: A value that fits.
    """

    words: str
    example: str


@dataclass(frozen=True, slots=True)
class Written:
    """What a person writes, where the type of the field does not tell all of it.

    Attributes:
        words: For the documentation.
        default: The default as YAML, where it is not that of the type.
        items: Words that may stand in it by themselves, where it is a list.
    """

    words: str
    default: str = ""
    items: tuple[str, ...] = ()


class Proxy(Frozen):
    """Proxies for package managers, docker and conda."""

    http: str | None = None
    https: str | None = None
    no_proxy: tuple[str, ...] = ()


def _as_text(value: object) -> object:
    """An unquoted whole number is as clear as a quoted one; a fraction is not: 12.10 is 12.1 to YAML."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _yaml_off(value: object) -> object:
    """YAML reads an unquoted ``off`` as false; nobody can know that."""
    return "off" if value is False else value


ANY = "any"


def _by_repository(value: object) -> object:
    """A list of keys is that of any repository."""
    if isinstance(value, str):
        words = "must be a list of fingerprints, or a mapping of such lists by the repository's name"
        raise ValueError(words)  # noqa: TRY004 - what pydantic reports
    return {ANY: value} if isinstance(value, list | tuple) else value


def _by_gpu(value: object) -> object:
    """A number is the limit of every GPU."""
    numbers = value.values() if isinstance(value, dict) else (value,)
    if value is not None and not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in numbers):
        words = "must be whole watts, e.g. 250, or a mapping to such numbers by a GPU's model or PCI address"
        raise ValueError(words)
    return {ANY: value} if isinstance(value, int) else value


def _named_once(wishes: tuple[EnvironmentWish, ...]) -> tuple[EnvironmentWish, ...]:
    """A name is a directory."""
    names = [wish.name for wish in wishes]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise ValueError(f"has two environments called {twice}: each needs a name of its own")
    return wishes


DEFAULT_ENVIRONMENTS = (EnvironmentWish(name="torch", framework="torch"),)


class Request(Frozen):
    """One node's request."""

    hostname: str | None = Field(None, description="Host name to set; unset keeps the node's own")
    timezone: str | None = Field(None, description="Time zone, e.g. Europe/Berlin; unset keeps the node's own")
    packages: tuple[str, ...] = Field((), description="Further distribution packages to install")
    time_sync: bool = Field(True, description="Keep the clock in sync; an existing chrony or ntpsec is kept")
    unattended_upgrades: Annotated[Literal["keep", "security", "off"], BeforeValidator(_yaml_off)] = Field(
        "keep", description="Policy of unattended-upgrades; keep leaves what is there"
    )
    ssh_hardening: bool = Field(
        False, description="Refuse password logins over SSH; only after key login has been proved"
    )
    reboot: bool = Field(
        False, description="Whether apply may reboot the node where the driver needs it; apply --reboot does once"
    )
    reboot_minutes: int = Field(
        30, ge=1, le=240, description="How long it may take to come back; servers with many GPUs test themselves long"
    )
    proxy: Proxy = Field(Proxy(), description="Proxies for apt, docker and conda")

    policy: Literal["stable", "latest"] = Field(
        "stable",
        description="stable: the long-term driver branch that fits all GPUs, and frameworks whose CUDA it knows; "
        "latest: the newest of both",
    )
    gpu: Literal["auto", "none"] = Field("auto", description="none plans the node without a GPU stack")
    driver_branch: Annotated[str, BeforeValidator(_as_text), Form("auto or the three digits of a branch", "580")] = (
        Field("auto", pattern=r"^(auto|\d{3})$", description="NVIDIA driver branch, e.g. 580, with or without quotes")
    )
    driver_flavour: Literal["auto", "open", "proprietary"] = Field("auto", description="Kernel module flavour")
    driver_origin: Literal["auto", "distribution", "nvidia"] = Field(
        "auto", description="Whose driver packages: the distribution's archive, or NVIDIA's repository"
    )
    driver_version: Annotated[str | None, BeforeValidator(_as_text), Form("a whole driver version", "580.178.04")] = (
        Field(None, pattern=r"^\d{3}(\.\d+){1,2}$", description="Exact driver version, e.g. 580.178.04")
    )
    driver_mok: bool = Field(
        False, description="Build modules under Secure Boot; a person enrols their key once at the node's console"
    )
    gpu_users: Literal["refuse", "allow"] = Field(
        "refuse", description="allow replaces a driver while processes have the GPUs open, which breaks them"
    )
    gpu_power_limit: Annotated[dict[str, int] | None, BeforeValidator(_by_gpu), Written("number or mapping")] = Field(
        None,
        description="Power limit in watts of every GPU; or a mapping by model or PCI address, e.g. "
        '`{RTX 3090: 250, "0000:65:00.0": 200}`; set at every boot; unset gives back the limit from before',
    )
    gpu_group: Annotated[str | None, Form("a group's name", "gpu")] = Field(
        None,
        pattern=r"^[a-z_][a-z0-9_-]*$",
        description="Group that alone may use the GPUs, which must exist; unset lets every user, as NVIDIA does",
    )
    cuda_version: Annotated[
        str, BeforeValidator(_as_text), Form("auto, none or the two numbers of a CUDA version", "12.9")
    ] = Field(
        "auto",
        pattern=r"^(auto|none|\d+\.\d+)$",
        description='CUDA toolkit, e.g. "12.9", in quotes as YAML reads 12.10 as 12.1; none installs no toolkit',
    )
    cuda_further_versions: Annotated[
        tuple[Annotated[str, BeforeValidator(_as_text), Field(pattern=r"^\d+\.\d+$")], ...],
        Form("the two numbers of a CUDA version", "12.9"),
    ] = Field((), description="Further toolkits beside the first, which stays that of /usr/local/cuda")
    cudnn: bool = Field(True, description="Install cuDNN for the first toolkit")
    nccl: bool = Field(True, description="Install NCCL for the first toolkit")
    nvidia_repository: str | None = Field(
        None, description="Base URL of a mirror of NVIDIA's CUDA repositories; unset takes NVIDIA's own"
    )
    nvidia_key_fingerprints: Annotated[
        dict[str, tuple[str, ...]], BeforeValidator(_by_repository), Written("list or mapping")
    ] = Field(
        default_factory=dict,
        description="Primary keys that mirror signs with, or such a list for each repository; unset takes NVIDIA's own",
    )
    container_toolkit: bool = Field(True, description="Let docker's containers use the GPUs")
    container_toolkit_containerd: bool = Field(
        False, description="Let containers of Kubernetes' containerd on the node use the GPUs, too"
    )
    container_toolkit_repository: str | None = Field(
        None, description="Base URL of a mirror of the NVIDIA Container Toolkit's repository; unset takes NVIDIA's own"
    )
    container_toolkit_key_fingerprints: tuple[str, ...] = Field(
        (), description="Primary keys that mirror signs with; unset takes NVIDIA's own"
    )
    environments: Annotated[
        tuple[EnvironmentWish, ...],
        AfterValidator(_named_once),
        Written("list, see [environments](environments.md)", '["torch"]', tuple(WORDS)),
    ] = Field(
        DEFAULT_ENVIRONMENTS,
        description="Environments with a framework each: torch, tensorflow, jax, vllm, or a mapping with name and "
        "framework; the default is for nodes with GPUs only",
    )
    environments_prefix: Annotated[str, Form("an absolute path without spaces", "/opt/gpustrap/envs")] = Field(
        "/opt/gpustrap/envs", pattern=r"^/[^\s]+$", description="Where environments are built"
    )
    python_index: str | None = Field(None, description="Package index of Python, e.g. a mirror; unset takes PyPI")
    pytorch_index: str | None = Field(
        None,
        description="Base of PyTorch's own indexes, e.g. a mirror; unset takes https://download.pytorch.org/whl",
    )
    python_mirror: str | None = Field(
        None, description="Mirror of uv's own Pythons (python-build-standalone's releases); unset uses none of them"
    )
    ca_bundle: Annotated[str | None, Form("an absolute path on the node", "/etc/ssl/certs/site.pem")] = Field(
        None,
        pattern=r"^/[^\s]+$",
        description="File on the node with the certificates that indexes are trusted by; unset takes the system's",
    )
    pcie_width: Literal[1, 2, 4, 8, 16] | None = Field(
        None, description="PCIe lanes every GPU should have; unset expects what the card itself has"
    )

    docker: bool = Field(True, description="Install docker")
    docker_origin: Literal["distribution", "upstream"] = Field(
        "distribution", description="The distribution's docker.io, or docker's own repository"
    )
    docker_version: str | None = Field(None, description="Exact package version; unset takes the newest known")
    docker_repository: str | None = Field(
        None, description="Base URL of docker's repository or a mirror of it; unset takes docker's own"
    )
    docker_key_fingerprints: tuple[str, ...] = Field(
        (), description="Primary keys a mirror signs with; unset takes docker's own key"
    )
    docker_users: tuple[str, ...] = Field((), description="Users to add to group docker; membership is root access")
    docker_daemon: dict[str, Any] = Field(
        default_factory=dict, description="Further keys merged into /etc/docker/daemon.json"
    )
    docker_address_pools: tuple[str, ...] = Field(
        (), description="Networks (CIDR) docker may use; unset picks some that no route of the node overlaps"
    )
    docker_log_max_size: str = Field("50m", description="Size at which a container's log is rotated")
    docker_log_max_file: int = Field(3, ge=1, description="Rotated logs kept per container")
    docker_replace_snap: bool = Field(
        False, description="Remove docker's snap, with its containers and volumes, before installing"
    )

    conda: bool = Field(True, description="Install conda")
    conda_distribution: Literal["miniforge", "miniconda"] = Field("miniforge", description="Which installer")
    conda_version: str | None = Field(None, description="Installer version; unset takes the catalog's")
    conda_installer_url: str | None = Field(None, description="Installer URL, e.g. a mirror; needs the checksum")
    conda_installer_sha256: Annotated[
        str | None, Form("the 64 digits, 0-9 and a-f, that sha256sum prints", "0123456789abcdef" * 4)
    ] = Field(None, pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the installer at that URL")
    conda_prefix: Annotated[str, Form("an absolute path without spaces", "/opt/conda")] = Field(
        "/opt/conda", pattern=r"^/[^\s]+$", description="Where conda is installed"
    )
    conda_channels: tuple[str, ...] = Field(("conda-forge",), description="Channels, in order; no defaults")
    conda_accept_anaconda_terms: bool = Field(
        False, description="You have read and accept Anaconda's terms of service (Miniconda only)"
    )

    simulated: bool = Field(False, description="The lab sets this where repositories or installers are stand-ins")
