"""One run of Ansible: everything it is given lies in a private directory that is gone afterwards."""

from __future__ import annotations

import configparser
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import ansible_runner
import yaml

from gpustrap.content import PACKAGE, ansible_config, content_root
from gpustrap.converge.claims import Claims, read_claims
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.node import Access, Endpoint, Escalation, Secrets

# A socket's path may have 104 bytes where it may have the least; ssh adds a dot and 16 random characters to what
# Ansible makes of the directory (a slash and 10 characters).
CONTROL_DIRECTORY_MAX = 104 - 1 - 28
PLANNING_TAG = "gpustrap_plan"  # of the tasks that plan a node without a lock: ours have one
CANCEL_SECONDS = 0.5  # how often ansible-runner looks whether it was cancelled
CANCELLED = "canceled"
SUDO_SECONDS = 120
ALIVE = "alive"  # in the directory of a run: locked by its process
SWEEPS = 20  # a worker may fork once more while it is being ended


@dataclass(frozen=True, slots=True)
class Target:
    """A node of a run: how to reach it, and what enroll found there.

    Attributes:
        ssh_config: Text of the configuration file its ssh is to read instead of the user's; empty for the user's.
    """

    endpoint: Endpoint
    access: Access
    ssh_config: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is asked to do.

    Attributes:
        playbook: Absolute path.
        inventories: Inventory sources, the user's first; ``localhost,`` is one that has this machine.
        targets: The nodes; no others of the inventories are touched.
        known_hosts: The site's file of host keys; the user's own are read too.
        identity: The site's private key, if there is one.
        vault_password_file: What opens the user's vault-encrypted variables.
        variables: Extra variables; may be secret.
        tags: Only these roles; all if empty.
        check: Only say what would change.
        diff: Show what changes in files.
        forks: Nodes worked on at a time.
    """

    playbook: Path
    inventories: tuple[Path | str, ...]
    targets: tuple[Target, ...]
    known_hosts: Path
    identity: Path | None = None
    vault_password_file: str | None = None
    variables: Mapping[str, Any] | None = None
    tags: tuple[str, ...] = ()
    check: bool = False
    diff: bool = False
    forks: int = 20


@dataclass(frozen=True, slots=True)
class SessionResult:
    """How Ansible ended: its exit code, whether it was cancelled, and what the roles claimed.

    ``claims_lost`` has what was written as a claim and is none.
    """

    code: int
    cancelled: bool
    claims: Claims
    claims_lost: tuple[str, ...] = ()


class _Unsafe(str):
    """A value that came out of the user's inventory as final: Ansible must not template it again."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes `_Unsafe` with Ansible's own tag for it."""


_Dumper.add_representer(_Unsafe, lambda dumper, value: dumper.represent_scalar("!unsafe", str(value)))


def run_ansible(settings: Settings, secrets: Secrets, handle: Callable[[Mapping[str, Any]], None]) -> SessionResult:
    """Run a playbook.

    Ctrl-C (and SIGTERM) cancels it; that is no exception here, because the caller has a state to record.

    Args:
        settings: What to do.
        secrets: The sudo password goes to Ansible in a file, never as argument, variable or in the environment.
        handle: Gets every event of ansible-runner, in order, on this thread.

    Raises:
        GpustrapError: ansible-playbook is not where this Python is.
    """

    def take(event: Mapping[str, Any]) -> bool:
        handle(event)
        return False  # ansible-runner need not keep it

    bin_directory = Path(sys.executable).parent
    if not (bin_directory / "ansible-playbook").exists():
        raise GpustrapError(_no_ansible(bin_directory))
    with private_directory() as private, cancellable() as cancelled, _usual_umask():
        _write_inputs(private, settings, secrets)
        try:
            runner = ansible_runner.run(
                private_data_dir=str(private),
                project_dir=str(Path.cwd()),  # Ansible's working directory: the user's, as relative paths are meant
                ident="run",
                playbook=str(settings.playbook),
                inventory=[str(p) for p in settings.inventories] + [str(private / "inventory")],
                cmdline=shlex.join(_arguments(private, settings)),
                envvars=_environment(private, bin_directory),
                suppress_env_files=True,
                fact_cache_type="",
                quiet=True,
                event_handler=take,
                cancel_callback=cancelled.is_set,
            )
        finally:
            _end_connections(private)
            _end_processes(private)
        claims, lost = read_claims(private / "claims.jsonl")
        return SessionResult(
            code=int(runner.rc if runner.rc is not None else 1),
            cancelled=runner.status == CANCELLED or cancelled.is_set(),
            claims=claims,
            claims_lost=lost,
        )


@contextmanager
def private_directory() -> Iterator[Path]:
    """A fresh directory, 0700; gone afterwards, whatever happens.

    Its path is short enough for sockets, and plain: ssh hands it on to jump hosts' ssh through a shell, unquoted.
    """
    place = tempfile.gettempdir()
    too_long = len(os.fsencode(place)) + len("/gpustrap-12345678/cp") > CONTROL_DIRECTORY_MAX
    if too_long or not re.fullmatch(r"[\w/.-]+", place):
        place = "/tmp"  # noqa: S108 - only a parent: mkdtemp makes a fresh 0700 directory in it
    _sweep(Path(place))
    private = Path(tempfile.mkdtemp(prefix="gpustrap-", dir=place))
    try:
        with (private / "new").open("w", encoding="utf-8") as alive:
            fcntl.flock(alive, fcntl.LOCK_EX)
            (private / "new").rename(private / ALIVE)  # from now on it is locked as long as this process lives
            yield private
    finally:
        shutil.rmtree(private, ignore_errors=True)


def _sweep(place: Path) -> None:
    """Remove the directories of runs that were killed: a sudo password may lie in them."""
    for directory in place.glob("gpustrap-*"):
        with suppress(OSError):  # a run is alive there, or it is none of ours
            if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
                continue
            with (directory / ALIVE).open(encoding="utf-8") as alive:
                fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _usual_umask() -> Iterator[None]:
    """Roles on this machine itself inherit ours, through sudo, too: packages' files would be for root alone."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def cancellable() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set while the block runs; only the main thread can listen to them."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(_signal: int, _frame: FrameType | None) -> None:
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_inputs(private: Path, settings: Settings, secrets: Secrets) -> None:
    """Write variables, password, node list and connection variables, each 0600."""
    for name in ("cp", "env", "inventory", "inventory/host_vars", "ssh"):
        (private / name).mkdir(mode=0o700)
    _write(private / "env" / "settings", json.dumps({"pexpect_timeout": CANCEL_SECONDS}))
    _write(private / "variables.json", json.dumps(dict(settings.variables or {})))
    _write(private / "nodes", "".join(f"{t.endpoint.name}\n" for t in settings.targets))
    if secrets.become_password is not None:
        _write(private / "become", secrets.become_password + "\n")
    hosts: dict[str, None] = {t.endpoint.name: None for t in settings.targets}
    _write(private / "inventory" / "nodes.yml", yaml.safe_dump({"all": {"hosts": hosts}}))
    default_arguments = ssh_defaults()
    for target in settings.targets:
        arguments = default_arguments
        if target.ssh_config:
            config = private / "ssh" / target.endpoint.name
            _write(config, target.ssh_config)
            arguments += ("-F", str(config))  # the last -F counts
        variables = connection_variables(target, settings.known_hosts, settings.identity, arguments)
        text = yaml.dump(variables, Dumper=_Dumper, allow_unicode=True)
        _write(private / "inventory" / "host_vars" / f"{target.endpoint.name}.yml", text)


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.write(text)


def connection_variables(
    target: Target, known_hosts: Path, identity: Path | None, default_arguments: Sequence[str]
) -> dict[str, Any]:
    """The connection variables of one node. They lie in a host_vars directory of the last inventory, so they win.

    All arguments of ssh are put into one variable, each once and the user's before the defaults, because ssh takes
    the first value of an option and refuses a second ``-J``.
    """
    access, endpoint = target.access, target.endpoint
    variables: dict[str, Any] = {
        "ansible_become": access.escalation is not Escalation.ROOT,
        "ansible_become_method": "ansible.builtin.sudo",
        "ansible_become_exe": _Unsafe(access.become_exe),
        "ansible_python_interpreter": _Unsafe(endpoint.python or access.python),
    }
    if access.requiretty:
        variables["ansible_pipelining"] = False  # pipelining and a terminal exclude each other
    if endpoint.local:
        # Ansible gives sudo 10 s here: too little where it asks LDAP, or where the machine is busy.
        patience = {"ansible_local_become_success_timeout": SUDO_SECONDS}
        return variables | {"ansible_connection": "ansible.builtin.local"} | patience
    words = ["-o", f"UserKnownHostsFile={_quoted(known_hosts)} {_quoted(Path.home() / '.ssh' / 'known_hosts')}"]
    if identity is not None:
        variables["ansible_ssh_private_key_file"] = _Unsafe(str(identity).replace("%", "%%"))  # ssh expands it
        # An agent with many keys would use up the server's tries before the site's key has its turn.
        words += ["-o", "IdentitiesOnly=yes"]
        words += ["-i", endpoint.private_key] if endpoint.private_key else []
    words += [*endpoint.ssh_args, *default_arguments]
    return variables | {
        "ansible_ssh_args": _Unsafe(shlex.join(words)),
        "ansible_ssh_common_args": "",
        "ansible_ssh_extra_args": "",
    }


def _quoted(path: Path) -> str:
    """A path in the syntax of ssh_config: quoted, and with its percent signs doubled."""
    return '"' + str(path).replace("%", "%%") + '"'


def ssh_defaults() -> tuple[str, ...]:
    """The arguments of ssh in our ansible.cfg."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ansible_config(), encoding="utf-8")
    return tuple(shlex.split(parser.get("ssh_connection", "ssh_args", fallback="")))


def _arguments(private: Path, settings: Settings) -> list[str]:
    """The command line of ansible-playbook; what may be secret is only named, never in it."""
    words = ["--limit", f"@{private / 'nodes'}", "-e", f"@{private / 'variables.json'}"]
    words += ["--forks", str(settings.forks), "--skip-tags", PLANNING_TAG]
    if (private / "become").exists():
        words += ["--become-password-file", str(private / "become")]
    if settings.vault_password_file:
        words += ["--vault-password-file", settings.vault_password_file]
    if settings.tags:
        words += ["--tags", ",".join(settings.tags)]
    words += ["--check"] if settings.check else []
    words += ["--diff"] if settings.diff else []
    return words


def _environment(private: Path, bin_directory: Path) -> dict[str, str]:
    """What Ansible's environment must say. Some of it only undoes what ansible-runner or the user's shell sets."""
    return {
        "PATH": f"{bin_directory}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "ANSIBLE_CONFIG": str(ansible_config()),
        "ANSIBLE_HOST_KEY_CHECKING": "True",  # ansible-runner would set False
        "ANSIBLE_CALLBACK_PLUGINS": str(PACKAGE / "ansible_plugins" / "callback"),  # ansible-runner adds its own
        "ANSIBLE_CALLBACKS_ENABLED": "gpustrap_claims",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(private / "cp"),
        "ANSIBLE_LOCAL_TEMP": str(private / "tmp"),
        "ANSIBLE_ANY_ERRORS_FATAL": "False",
        "ANSIBLE_DISPLAY_ARGS_TO_STDOUT": "False",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_FORCE_COLOR": "0",
        "GPUSTRAP_CLAIMS": str(private / "claims.jsonl"),
    }


def _end_connections(private: Path) -> None:
    """Close the SSH connections Ansible keeps open for the next task."""
    for socket in (private / "cp").glob("*"):
        argv = ["ssh", "-O", "exit", "-o", f"ControlPath={socket}", "node"]
        with suppress(OSError, subprocess.TimeoutExpired):  # what does not answer is ended with the run's processes
            subprocess.run(argv, capture_output=True, check=False, timeout=10)


def _end_processes(private: Path) -> None:
    """End what a cancelled run left: Ansible's workers have sessions of their own and survive their parent.

    Every process of this run, and no other, has the private directory in its environment.
    """
    mark = f"AWX_ISOLATED_DATA_DIR={private}/".encode()
    for _ in range(SWEEPS):
        found = list(_processes_with(mark))
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if not found:
            return
        time.sleep(0.05)


def _processes_with(mark: bytes) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone, or another user's
            if mark in (entry / "environ").read_bytes():
                yield int(entry.name)


def _no_ansible(directory: Path) -> Problem:
    return Problem(
        code="ansible-missing",
        subject=str(directory),
        message="ansible-playbook is not beside this Python",
        exit_code=ExitCode.INTERNAL,
        remedy=f"in the checkout of gpustrap: {sys.executable} -m pip install --force-reinstall .",
    )


def site_playbook() -> Path:
    """The playbook that runs all roles of a site in order."""
    return content_root() / "playbooks" / "site.yml"
