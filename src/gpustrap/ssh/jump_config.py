"""What the ssh client must be told to enter jump hosts as gpustrap itself does.

``ssh -J`` starts another ssh for each jump host and gives it nothing of its own command line but ``-F FILE``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpustrap.model.node import Endpoint
from gpustrap.ssh.config import Target, resolve, user_config


def jump_config(endpoint: Endpoint, *, known_hosts: Path, identity: Path | None) -> str:
    """The text of a configuration file that ssh is to read instead of the user's, which it includes.

    Args:
        endpoint: The node.
        known_hosts: The site's known_hosts; absolute.
        identity: The site's private key, if it has one yet; absolute.

    Returns:
        Empty where there is no jump host on the way.

    Raises:
        GpustrapError: The SSH configuration is broken.
    """
    jumps = list(_jumps(resolve(endpoint)))
    if not jumps:
        return ""
    lines: list[str] = []
    for jump in jumps:
        lines.append(f'Host "{jump.alias}"')
        lines.append(f"  UserKnownHostsFile {' '.join(_quoted(p) for p in (known_hosts, *jump.known_hosts))}")
        lines += [f"  IdentityFile {_quoted(p)}" for p in (identity, *jump.identities) if p is not None]
        lines.append("  BatchMode yes")  # it would ask on a terminal that nobody sees
    lines.append("Host *")
    lines += [f'  Include "{path}"' for path in user_config(endpoint)]
    return "".join(f"{line}\n" for line in lines)


def _jumps(target: Target) -> Iterator[Target]:
    """The machines on the way, nearest to the node first."""
    while target.jump is not None:
        target = target.jump
        yield target


def _quoted(path: Path) -> str:
    """A path in the syntax of ssh_config: quoted, and with its percent signs doubled."""
    return '"' + str(path).replace("%", "%%") + '"'
