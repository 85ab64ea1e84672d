"""Environments for frameworks: what is asked for of one, and what the lock has of one.

What is asked for is an item of ``gpustrap_environments``: a word (``torch``) or a mapping. What the lock has is an
item of the role's variable ``ml_environments_environments``; the resolver fills in all but ``lock`` and ``digest``,
which the closure adds.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from gpustrap.model.base import Frozen

Engine = Literal["uv", "conda"]
Interpreter = Literal["distribution", "conda", "uv"]

ALL = "all"
PYTHON = "python"  # an environment of packages of the user's own, without a framework
FRAMEWORKS = ("pytorch", "tensorflow", "jax", "vllm", PYTHON)
# A word that names an environment and its framework at once.
WORDS = {"torch": "pytorch", "pytorch": "pytorch", "tensorflow": "tensorflow", "jax": "jax", "vllm": "vllm"}
LOCK_ID = 16  # digits of a lock file's digest by which a node knows it
HOROVOD = "horovod"  # asked for often enough that the resolver refuses it in words of its own
NAME = r"^[a-z0-9][a-z0-9_-]{0,39}$"
GROUP = r"^[a-z_][a-z0-9_-]*$"
# As pip or conda write it: a name, extras of its own, versions. Neither an address nor an option.
PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._, -]+\])?( *[<>=!~]=?=?[A-Za-z0-9.*+!_, <>=~-]+)?")
FILE = "-r "  # before a file of the site among the requirements, as pip has it


def _like(pattern: str, words: str) -> BeforeValidator:
    """A text of some shape: nobody is shown a regular expression."""

    def check(value: object) -> object:
        if isinstance(value, float):
            raise ValueError("must be in quotes: without them, YAML reads 3.10 as 3.1")  # noqa: TRY004 - for pydantic
        if isinstance(value, str) and not re.fullmatch(pattern, value):
            raise ValueError(f"must be {words}")
        return value

    return BeforeValidator(check)


def _framework(value: object) -> object:
    """``torch`` names a framework, too."""
    word = WORDS.get(value, value) if isinstance(value, str) else ""
    if word not in {*FRAMEWORKS, HOROVOD}:
        raise ValueError(f"must be {', '.join(FRAMEWORKS[:-1])} or {FRAMEWORKS[-1]}")
    return word


def _every(value: object) -> object:
    """``all`` is what an empty list stands for."""
    if isinstance(value, str) and value != ALL:
        words = 'must be all, or a list of models or PCI addresses, e.g. [RTX 3090, "0000:65:00.0"]'
        raise ValueError(words)
    return () if value == ALL else value


def _inside(value: object) -> object:
    path = PurePosixPath(value) if isinstance(value, str) else PurePosixPath()
    if path.is_absolute() or ".." in path.parts or re.search(r"\s", str(path)):
        raise ValueError("must be a file of the site, without spaces, e.g. requirements/analysis.txt")
    return value


def _packages(value: object) -> object:
    for item in value if isinstance(value, list | tuple) else ():
        if not (isinstance(item, str) and PACKAGE.fullmatch(item)):
            raise ValueError(f'must be names of packages, e.g. [accelerate, "transformers>=5"]; {item!r} is none')
    return value


class EnvironmentWish(Frozen):
    """One environment that is asked for.

    Attributes:
        name: Of its directory and of the command that activates it.
        framework: One of `FRAMEWORKS`, or `HOROVOD`, which the resolver refuses.
        python: ``auto``, or major and minor.
        extras: Packages besides the framework.
        users: ``all``, or a group that alone may use it.
        requirements: A file of the site with further packages; empty for none.
        jupyter: Whether Jupyter shows it as a kernel.
        gpus: Models or PCI addresses of the GPUs that it is for; empty for all of the node.
    """

    name: Annotated[str, _like(NAME, "small letters, digits, - and _, e.g. torch")]
    framework: Annotated[str, BeforeValidator(_framework)]
    python: Annotated[str, _like(r"auto|3\.\d{1,2}", 'auto, or two numbers in quotes, e.g. "3.12"')] = "auto"
    extras: Annotated[tuple[str, ...], BeforeValidator(_packages)] = ()
    engine: Engine = "uv"
    users: Annotated[str, _like(GROUP, "all, or the name of a group")] = ALL
    requirements: Annotated[str, BeforeValidator(_inside)] = ""
    jupyter: bool = False
    gpus: Annotated[tuple[str, ...], BeforeValidator(_every)] = ()

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: Any) -> Any:  # noqa: ANN401 - whatever a person wrote
        """A word is both; a mapping needs one of both."""
        if isinstance(value, str):
            if value not in {*WORDS, HOROVOD}:
                raise ValueError(f"must be {', '.join(WORDS)}, or a mapping with name and framework")
            return {"name": value, "framework": value}
        if isinstance(value, dict):
            name, framework = value.get("name"), value.get("framework")
            if name is None and isinstance(framework, str):
                return {"name": framework, **value}
            if framework is None and isinstance(name, str) and name in {*WORDS, HOROVOD}:
                return {"framework": name, **value}
        return value

    @model_validator(mode="after")
    def _holds_something(self) -> EnvironmentWish:
        if self.framework == PYTHON and not self.extras and not self.requirements:
            raise ValueError("has framework python, and neither extras nor a requirements file: it would be empty")
        return self


class Environment(Frozen):
    """One environment of the lock, ready to be built.

    Attributes:
        name: As asked for.
        framework: ``pytorch``, ``tensorflow``, ``jax``, ``vllm`` or ``python``.
        version: Of the framework; empty for ``python``.
        variant: Which build: ``cu130``, ``cpu``; empty for ``python``.
        engine: What resolves and installs it.
        python: Major and minor, ``3.12``.
        interpreter: Whose Python: the distribution's, conda's, or uv's own. With engine ``conda`` always conda's.
        users: ``all``, or the group that alone may use it.
        jupyter: Whether Jupyter shows it as a kernel.
        requirements: What the engine is asked for, as the engine writes it; ``-r FILE`` is a file of the site.
        constraints: What whatever it takes besides must keep to.
        index: PyTorch's index for the variant, before the package index; empty where there is none.
        channels: Of conda; empty where neither engine nor interpreter is conda's.
        cuda: What the driver knows (CONDA_OVERRIDE_CUDA); empty on a node without GPUs.
        compute: Compute capabilities of its GPUs, lowest first; empty: it computes on the processor.
        modules: What must import.
        gpus: PCI addresses of its GPUs; empty for all of the node.
        size: Bytes of it, an estimate.
        lock: The file of the site with its whole closure, ``environments/<name>-<class>.txt``.
        digest: SHA-256 of that file.
    """

    name: str = Field(pattern=NAME)
    framework: Literal["pytorch", "tensorflow", "jax", "vllm", "python"]
    version: str = ""
    variant: str = ""
    engine: Engine = "uv"
    python: str = Field(pattern=r"^3\.\d{1,2}$")
    interpreter: Interpreter = "distribution"
    users: str = Field(ALL, pattern=GROUP)
    jupyter: bool = False
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    index: str = ""
    channels: tuple[str, ...] = ()
    cuda: str = ""
    compute: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    size: int = 0
    lock: str = ""
    digest: str = ""


class Uv(Frozen):
    """The uv that builds them, as the package index has it (``ml_environments_uv``).

    Attributes:
        file: Name of the wheel for the node's machine.
        sha256: Of that file.
    """

    version: str
    file: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
