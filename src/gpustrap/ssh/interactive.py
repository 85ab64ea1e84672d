"""The command line of OpenSSH's client for a person: what gpustrap itself does, said to ssh."""

from __future__ import annotations

from pathlib import Path

from gpustrap.model.node import Endpoint
from gpustrap.ssh.config import resolve


def interactive(
    endpoint: Endpoint, *, known_hosts: Path, identity: Path | None, config: Path | None, command: str
) -> list[str]:
    """A command with a terminal on a node.

    Args:
        endpoint: The node.
        known_hosts: The site's known_hosts; absolute.
        identity: The site's private key, if it has one.
        config: What `jump_config` made, if there is a jump host on the way.
        command: What to run there; the login's shell reads it.

    Raises:
        GpustrapError: The SSH configuration is broken.
    """
    target = resolve(endpoint)
    files = " ".join(_quoted(path) for path in (known_hosts, *target.known_hosts))
    words = ["ssh", "-t", *(["-F", str(config)] if config else []), "-o", f"UserKnownHostsFile={files}"]
    # An agent with many keys would use up the server's tries before the site's key has its turn.
    words += ["-o", "IdentitiesOnly=yes", "-i", str(identity).replace("%", "%%")] if identity else []
    words += ["-i", endpoint.private_key] if endpoint.private_key else []
    words += endpoint.ssh_args
    words += ["-p", str(endpoint.port)] if endpoint.port else []
    words += ["-l", endpoint.user] if endpoint.user else []
    return [*words, "--", endpoint.host, command]


def _quoted(path: Path) -> str:
    """A path in the syntax of ssh_config: quoted, and with its percent signs doubled."""
    return '"' + str(path).replace("%", "%%") + '"'
