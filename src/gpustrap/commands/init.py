"""init: makes a site."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.site.create import Created, create_site


def init(path: Path, hosts: Sequence[str], user: str | None) -> Created:
    """Make a site.

    Args:
        path: The directory.
        hosts: ``NAME=ADDRESS`` each.
        user: The login for all of them.

    Raises:
        GpustrapError: See `create_site`; or a host has no ``=``, or is named twice.
    """
    named: dict[str, str] = {}
    for word in hosts:
        name, equals, address = word.partition("=")
        if not equals or name in named:
            why = "is named twice" if equals else "has no address"
            raise GpustrapError(
                Problem(
                    code="bad-host",
                    subject=f"--host {word}",
                    message=f"{name} {why}",
                    exit_code=ExitCode.USAGE,
                    remedy="write --host n1=192.0.2.11 --host n2=192.0.2.12",
                )
            )
        named[name] = address
    return create_site(path, named, user)
