"""Has rattler solve environments of conda: an explicit list, with the hash of every package.

rattler runs in a process of its own: one that ends while its threads still run aborts now and then, see
docs/decisions/0070.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

from gpustrap.environments.closure import Closure, ClosureError, Compiled
from gpustrap.environments.text import LINKED
from gpustrap.environments.uv import environment
from gpustrap.environments.uv_words import CONFLICT, LAST, NOT_LOCKED, REFUSED
from gpustrap.model.urls import without_credentials

SECONDS = 900
SUBDIRS = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}
LINUX = "5.14"  # the oldest kernel of a supported distribution


def compile_conda(closure: Closure, specs: tuple[str, ...], preferred: str) -> Compiled:
    """Solve one.

    Args:
        closure: What its packages follow from.
        specs: What is asked for besides Python: of a closure by uv, nothing.
        preferred: A lock file whose packages are taken where they still fit; empty for the newest.

    Raises:
        ClosureError: Nothing fits, or a channel cannot be asked.
    """
    asked = {
        "channels": closure.channels,
        "specs": [f"python={closure.python}", *specs],
        "constraints": closure.constraints if closure.engine == "conda" else (),
        "subdirs": [SUBDIRS[closure.machine], "noarch"],
        "virtual": virtual(closure),
        "preferred": _names(preferred),
    }
    answer = _ask(asked)
    if "error" in answer:
        raise _explain(closure, answer["error"], without_credentials(answer["words"])[-LAST:])
    lines = []
    for package in answer["packages"]:
        if not package["sha256"]:
            words = f"the channel has no SHA-256 of {package['name']}, so nothing could prove what a node gets"
            raise ClosureError(
                "environment-hash-missing", words, "use a channel that has them (gpustrap_conda_channels)"
            )
        lines.append(f"{package['url']}#{package['sha256']}\n")
    return Compiled("@EXPLICIT\n" + "".join(sorted(lines, key=lambda line: line.rsplit("/", 1)[1])))


def _names(text: str) -> list[str]:
    """The files of a lock file."""
    return [line.partition("#")[0].rsplit("/", 1)[1] for line in text.splitlines() if LINKED.match(line)]


def virtual(closure: Closure) -> list[tuple[str, str, str]]:
    """What conda would find on a node of this kind: name, version, build."""
    found = [("__unix", "0", "0"), ("__linux", LINUX, "0"), ("__glibc", closure.glibc, "0")]
    found += [("__archspec", "1", closure.machine)]
    return [*found, *((("__cuda", closure.cuda, "0"),) if closure.cuda else ())]


def _ask(asked: dict[str, Any]) -> dict[str, Any]:
    argv = [sys.executable, "-m", "gpustrap.environments.rattler_program"]
    try:
        done = subprocess.run(
            argv,
            input=json.dumps(asked),
            env=environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ClosureError(NOT_LOCKED, f"rattler had no answer after {SECONDS} seconds", "try again") from error
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        answer = {"error": "broken", "words": done.stderr}
    return answer


def _explain(closure: Closure, kind: str, words: str) -> ClosureError:
    said, channels = f"{kind}: {words}", ", ".join(closure.channels)
    code, message, remedy = next(rule[1:] for rule in RULES if re.search(rule[0], said))
    text = message.format(channels=channels)
    return ClosureError(code, text, remedy, words, unreachable=code == NOT_LOCKED)


# The first that matches: rattler's kind of failure, a colon, its words.
RULES = (
    (
        r"^SolverError:",
        CONFLICT,
        "no packages of {channels} go together",
        "change what conda names in gpustrap_environments or its file; another environment may have it",
    ),
    (r"^offline:", NOT_LOCKED, "this machine is told to stay offline (UV_OFFLINE)", "env -u UV_OFFLINE gpustrap plan"),
    (
        r"^missing:",
        NOT_LOCKED,
        "py-rattler is not installed beside gpustrap",
        f"{sys.executable} -m pip install py-rattler",
    ),
    (
        r"^InvalidMatchSpecError:",
        "environment-requirements",
        "conda has no such way to write a package",
        "correct it in gpustrap_environments or its file",
    ),
    (
        r"certificate|UnknownIssuer",
        REFUSED,
        "{channels}: its certificate is not trusted by this machine",
        "SSL_CERT_FILE=/path/to/the/CA.pem gpustrap plan, or add the CA to this machine's",
    ),
    (
        r"\b(401|403|407)\b",
        REFUSED,
        "{channels}: wants a login, or refuses this one",
        "put it into ~/.netrc on this machine, and into root's on the nodes (machine, login, password)",
    ),
    (
        r"error sending request|HTTP status|timed out|Gateway|FetchRepoData|could not find subdir",
        NOT_LOCKED,
        "{channels} cannot be reached from this machine",
        "set gpustrap_conda_channels to what can be reached, e.g. a mirror; then gpustrap plan",
    ),
    (r"", CONFLICT, "rattler cannot lock it", "read rattler's words; then gpustrap plan"),
)
