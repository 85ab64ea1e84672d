"""Why uv finds no packages, in our words; uv's own explanation stands beside them."""

from __future__ import annotations

import re

from gpustrap.environments.closure import Closure, ClosureError
from gpustrap.model.urls import without_credentials

NOT_LOCKED, REFUSED, CONFLICT = "environment-not-locked", "environment-index-refused", "environment-conflict"
YANKED = re.compile(r"^warning: (`.+` is yanked.*)$", re.MULTILINE)
NOISE = re.compile(
    r"^(warning: (The requested Python version|Requirements file|`.+` is yanked).*\n?|Resolved .*\n?)", re.MULTILINE
)
ADDRESS = re.compile(r"https?://[^\s`)(]+")
LAST = 1500  # characters of evidence


def yanked(said: str) -> tuple[str, ...]:
    """What uv says of versions that their authors took back."""
    return tuple(found.replace("`", "") for found in YANKED.findall(said))


def explain(closure: Closure, said: str) -> ClosureError:
    """The cause of a failure.

    Args:
        closure: What was to be locked.
        said: What uv wrote.
    """
    evidence = without_credentials(NOISE.sub("", said)).strip()[-LAST:]
    at = ADDRESS.search(evidence)
    url = at[0].rstrip(".,`") if at else closure.index
    for pattern, code, message, remedy in RULES:
        if re.search(pattern, said, re.IGNORECASE):
            words = message.format(url=url, python=closure.python, glibc=closure.glibc, machine=closure.machine)
            unreachable = code == NOT_LOCKED
            return ClosureError(
                code, words, remedy.format(url=url, name=closure.name), evidence, unreachable=unreachable
            )
    return ClosureError(CONFLICT, "uv cannot lock it", "read uv's words; then gpustrap plan", evidence)


# The first that matches. Each is a text of uv's: its tests hold them against the uv that is installed.
RULES = (
    (
        r"network was disabled",
        NOT_LOCKED,
        "this machine is told to stay offline (UV_OFFLINE), and not all of it is in uv's cache",
        "env -u UV_OFFLINE gpustrap plan",
    ),
    (
        r"invalid peer certificate|certificate verify|UnknownIssuer|CertExpired|NotValidForName",
        REFUSED,
        "{url} shows a certificate that this machine does not trust",
        "SSL_CERT_FILE=/path/to/the/CA.pem gpustrap plan, or add the CA to this machine's",
    ),
    (
        r"received corrupt message|InvalidContentType|tls handshake|HandshakeFailure",
        REFUSED,
        "{url} does not speak TLS",
        "correct gpustrap_python_index or gpustrap_pytorch_index: http instead of https, or another port",
    ),
    (
        r"401 Unauthorized|403 Forbidden|407 Proxy",
        REFUSED,
        "{url} wants a login, or refuses this one",
        "put it into ~/.netrc on this machine, and into root's on the nodes (machine, login, password)",
    ),
    (
        r"dns error|client error|error sending request|timed out|connection (reset|closed)|HTTP status server error",
        NOT_LOCKED,
        "{url} cannot be reached from this machine",
        "curl -sSI {url} (shows why); a mirror is set by gpustrap_python_index and gpustrap_pytorch_index",
    ),
    (
        r"hash mismatch|Hash mismatch",
        REFUSED,
        "a file of {url} is not what the index says of it: its hash is another",
        "try again, or ask who runs the index",
    ),
    (
        r"no wheels with a matching Python (ABI tag|implementation tag|version tag)|Requires-Python|depends on Python",
        CONFLICT,
        "a package of it is not made for Python {python}",
        "set python of it to another version, or ask for other versions of the package that uv names",
    ),
    (
        r"no wheels with a matching platform tag|has no wheels",
        CONFLICT,
        "a package of it is not made for {machine} with glibc {glibc}",
        "ask for other versions of the package that uv names, or use a later distribution",
    ),
    (
        r"was not found in the package registry|was not found in the provided package locations",
        CONFLICT,
        "a package of it is not in its index",
        "correct its name in gpustrap_environments or its requirements file",
    ),
    (
        r"No solution found",
        CONFLICT,
        "no versions of its packages go together",
        "change what uv names in gpustrap_environments or its requirements file; another environment may have it",
    ),
    (
        r"Failed to build|build backend",
        CONFLICT,
        "a package of it has no wheel, and cannot be built on this machine to learn what it needs",
        "ask for a version that has a wheel",
    ),
    (
        r"No space left|Disk quota|Permission denied|Read-only file system",
        NOT_LOCKED,
        "uv cannot write on this machine",
        "uv cache clean, or set UV_CACHE_DIR to a directory with room; then gpustrap plan",
    ),
)
