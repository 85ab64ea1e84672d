"""Has uv find the packages of an environment: exact versions, and the hash of every file of each.

PyTorch's index also has old copies of other people's packages, and the package index has PyTorch's packages for another
CUDA. So each name comes from where it belongs, and from nowhere else: PyTorch's own from its index, all others from the
package index. https://docs.astral.sh/uv/guides/integration/pytorch/
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from gpustrap.environments.closure import Closure, ClosureError, Compiled
from gpustrap.environments.text import packages, without_hash
from gpustrap.environments.uv_words import explain, yanked

# Of PyTorch's packages those whose files are for one CUDA and fit no other torch.
OF_PYTORCH = ("torch", "torchaudio", "torchvision")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MANYLINUX = (28, *range(31, 41))  # those that uv has a name for
SECONDS = 1800  # with sources that must be built to know what they need
# What a program of this machine has of its person: where things are, and how the network is reached.
KEPT = ("HOME", "LANG", "LOGNAME", "NETRC", "PATH", "TMPDIR", "USER", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
OF_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
OF_UV = ("UV_CACHE_DIR", "UV_OFFLINE", "UV_HTTP_TIMEOUT")


def compile_uv(closure: Closure, preferred: str) -> Compiled:
    """Find the packages.

    Args:
        closure: What they follow from.
        preferred: A lock file whose versions are taken where they still fit; empty for the newest.

    Raises:
        ClosureError: There are none, or the index cannot be asked.
    """
    own = [text for text in closure.requirements if closure.framework_index and _name(text) in OF_PYTORCH]
    others = [text for text in closure.requirements if text not in own]
    compiled = _compile(closure, own, others, preferred)
    if closure.framework_index:
        # One that only comes with another package: uv looks for it where it belongs once it is asked for, too.
        told = {_name(text) for text in own}
        late = [name for name in packages(compiled.body) if name in OF_PYTORCH and name not in told]
        if late:
            compiled = _compile(closure, [*own, *late], others, preferred)
    if bare := without_hash(compiled.body):
        words = f"the index has no hash of {', '.join(bare)}, so nothing could prove what a node gets"
        raise ClosureError("environment-hash-missing", words, "use an index that has hashes (gpustrap_python_index)")
    return compiled


def _name(requirement: str) -> str:
    found = NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def _compile(closure: Closure, own: Iterable[str], others: Iterable[str], preferred: str) -> Compiled:
    with TemporaryDirectory(prefix="gpustrap-lock-") as directory:
        place = Path(directory)
        (place / "pyproject.toml").write_text(_project(closure, own), encoding="utf-8")
        (place / "requirements.in").write_text(_as_lines(others), encoding="utf-8")
        (place / "constraints.txt").write_text(_as_lines(closure.constraints), encoding="utf-8")
        (place / "locked.txt").write_text(preferred.partition("@EXPLICIT")[0], encoding="utf-8")
        argv = [_program(), *_words(closure)]
        try:
            done = subprocess.run(
                argv, cwd=place, env=environment(), capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            words = f"uv had no answer after {SECONDS} seconds"
            raise ClosureError("environment-not-locked", words, "try again", str(error.stderr or "")) from error
        if done.returncode:
            raise explain(closure, done.stderr)
        body = (place / "locked.txt").read_text(encoding="utf-8").strip() + "\n"
    return Compiled(body, yanked(done.stderr))


def _as_lines(texts: Iterable[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def _project(closure: Closure, own: Iterable[str]) -> str:
    """PyTorch's own packages, and the index that is asked for them and for nothing else."""
    wanted = list(own)
    lines = [
        "[project]",
        'name = "gpustrap-environment"',
        'version = "0"',
        f'requires-python = "=={closure.python}.*"',
        f"dependencies = {json.dumps(wanted)}",
    ]
    if wanted:
        lines += ["[[tool.uv.index]]", 'name = "pytorch"', f"url = {json.dumps(closure.framework_index)}"]
        lines += ["explicit = true", "[tool.uv.sources]"]
        lines += [f'{name} = {{ index = "pytorch" }}' for name in dict.fromkeys(map(_name, wanted))]
    return _as_lines(lines)


def _words(closure: Closure) -> list[str]:
    words = ["pip", "compile", "pyproject.toml", "requirements.in", "--constraints", "constraints.txt"]
    words += ["--output-file", "locked.txt", "--generate-hashes", "--no-header", "--no-annotate"]
    words += ["--emit-index-annotation", "--no-progress", "--no-config", "--color", "never"]
    words += ["--system-certs", *(["--default-index", closure.index] if closure.index else [])]
    words += ["--python", sys.executable, "--python-version", closure.python, "--python-platform", platform(closure)]
    return words


def platform(closure: Closure) -> str:
    """How uv calls the machine: the latest glibc it has a name for that is not later than the node's."""
    minor = int(closure.glibc.split(".")[1])
    return f"{closure.machine}-manylinux_2_{max(known for known in MANYLINUX if known <= minor)}"


def environment() -> dict[str, str]:
    """What uv is started with: this machine's network and cache, and nobody's settings of uv or pip."""
    both = [name for upper in OF_NETWORK for name in (upper, upper.lower())]
    made = {name: os.environ[name] for name in (*KEPT, *both, *OF_UV) if name in os.environ}
    return made | {"UV_PYTHON_DOWNLOADS": "never", "UV_HTTP_RETRIES": "1", "PYTHONNOUSERSITE": "1"}


def _program() -> str:
    try:
        from uv import find_uv_bin  # noqa: PLC0415 - it is looked for only where something is to be locked

        return find_uv_bin()
    except (ImportError, FileNotFoundError) as error:
        words = f"uv is not installed beside gpustrap, in {sys.prefix}"
        raise ClosureError(
            "environment-not-locked", words, f"{sys.executable} -m pip install uv", str(error)
        ) from error
