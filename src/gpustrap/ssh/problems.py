"""The refusals of this room, each with its cause and the one next step."""

from __future__ import annotations

from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode

NOT_ALLOWED = "sudo-not-allowed"


def refuse(
    code: str,
    name: str,
    message: str,
    *,
    evidence: str = "",
    remedy: str = "",
    exit_code: ExitCode = ExitCode.UNREACHABLE,
) -> GpustrapError:
    """An error about one node. Nearly all of them mean "could not get in", hence the default exit code."""
    return GpustrapError(Problem(code, f"node {name}", message, exit_code, evidence.strip(), remedy))


def unreachable(name: str, where: str, evidence: str) -> GpustrapError:
    """Nobody answers, or not with SSH."""
    return refuse(
        "unreachable",
        name,
        f"no SSH connection to {where}",
        evidence=evidence,
        remedy=f"check that the machine is up and that ansible_host and ansible_port of {name} are right",
    )


def timed_out(name: str, what: str, seconds: float) -> GpustrapError:
    """It answered too late or not at all."""
    return refuse(
        "timeout",
        name,
        f"{what} took longer than {seconds:.0f} s",
        remedy=f"look at the load of {name} and try again",
    )


def output_too_large(name: str, limit: int, beginning: bytes) -> GpustrapError:
    """It talks without end."""
    return refuse(
        "output-too-large",
        name,
        f"the node sent more than {limit} bytes",
        evidence=beginning[:200].decode("utf-8", "replace"),
        remedy="look at the login's shell start-up files (.bashrc, .profile): they may print without end",
    )


def connection_lost(name: str, what: str, evidence: str = "") -> GpustrapError:
    """The connection broke in the middle; what the node did after that is not known."""
    return refuse(
        "connection-lost",
        name,
        f"the connection broke while {what}",
        evidence=evidence,
        remedy="check that the node is up (it may be rebooting) and run the same command again",
    )


def sudo_password_missing(name: str, evidence: str = "") -> GpustrapError:
    """Sudo wants a password and none was given."""
    return refuse(
        "sudo-password-missing",
        name,
        "sudo asks for a password and none was given",
        evidence=evidence,
        remedy="add -K to be asked for it, or pass --become-password-fd N, or set GPUSTRAP_BECOME_PASSWORD",
    )


def sudo_password_wrong(name: str, evidence: str = "") -> GpustrapError:
    """Sudo refused the password; it was tried once, so that no account gets locked."""
    return refuse(
        "sudo-password-wrong",
        name,
        "sudo refused the password (tried once)",
        evidence=evidence,
        remedy="give the right one with -K, --become-password-fd N or GPUSTRAP_BECOME_PASSWORD",
    )


def no_root(name: str, user: str, evidence: str = "") -> GpustrapError:
    """The login cannot become root."""
    return refuse(
        NOT_ALLOWED,
        name,
        f"{user} may not become root with sudo",
        evidence=evidence,
        remedy=f"on the node, as root: usermod -aG sudo {user} (or set ansible_user to a login that may), "
        f"then gpustrap enroll {name}",
    )


def sudo_missing(name: str, user: str) -> GpustrapError:
    """There is no sudo on the node."""
    return refuse(
        "sudo-missing",
        name,
        f"there is no sudo on the node, and {user} is not root",
        remedy=f"on the node, as root: apt-get install sudo && usermod -aG sudo {user}, then gpustrap enroll {name}",
    )


def python_missing(name: str, evidence: str = "") -> GpustrapError:
    """No python3 where enroll found it, or none at all."""
    return refuse(
        "python-missing", name, "python3 is missing on the node", evidence=evidence, remedy=f"gpustrap enroll {name}"
    )


def local_no_root(name: str, user: str, evidence: str, *, sudo: bool) -> GpustrapError:
    """The user who runs gpustrap cannot become root on this machine."""
    how = f"as root: usermod -aG sudo {user}, then log in anew"
    return refuse(
        NOT_ALLOWED if sudo else "sudo-missing",
        name,
        f"{user} may not become root with sudo" if sudo else f"there is no sudo here, and {user} is not root",
        evidence=evidence,
        remedy=f"{how if sudo else f'{how} (after apt-get install sudo)'}; or run gpustrap as root (su -)",
    )


def local_requiretty(name: str) -> GpustrapError:
    """The sudoers of this machine demand a terminal of every command."""
    return refuse(
        "sudo-requiretty",
        name,
        "sudo insists on a terminal here, and roles run without one",
        remedy='run it as root: sudo "$(command -v gpustrap)" apply --local',
    )
