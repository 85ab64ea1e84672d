"""Credentials in addresses: the lock is committed, and what roles write of it every user of the node can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpustrap.errors import Problem
from gpustrap.model.urls import CONDA_TOKEN, holds_credentials
from gpustrap.resolve.parts import Inputs

INDEXES = {"gpustrap_python_index", "gpustrap_pytorch_index", "gpustrap_python_mirror"}
NETRC = "take them out, and put them into ~/.netrc: yours, for planning, and root's on the node"


def refuse_credentials(inputs: Inputs) -> tuple[Problem, ...]:
    """One problem for each variable, or part of one, that would put a password or token into the lock."""
    texts = _texts("gpustrap", inputs.request.model_dump(mode="json", exclude_none=True), "_")
    return tuple(
        inputs.problem(
            "url-with-password",
            f"{name} holds a user name, password or token, which would end in the lock",
            NETRC if name in INDEXES else "use an address that needs none, e.g. a mirror or proxy of your own network",
        )
        for name, text in texts
        if _is_secret(name, text)
    )


def _is_secret(name: str, text: str) -> bool:
    if name.startswith("gpustrap_conda_") and CONDA_TOKEN.search(text):
        return True
    # A channel needs no scheme.
    return holds_credentials(text) or (name.startswith("gpustrap_conda_channels") and "@" in text)


def _texts(name: str, value: object, join: str = ".") -> Iterator[tuple[str, str]]:
    """Every text of a variable with its place, as gpustrap_docker_daemon.registry-mirrors[0]."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(f"{name}{join}{key}", inner)
    elif isinstance(value, Sequence):
        for number, inner in enumerate(value):
            yield from _texts(f"{name}[{number}]", inner)
