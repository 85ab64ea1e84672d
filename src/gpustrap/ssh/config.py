"""What ``ssh -G`` says about a node: OpenSSH reads its own configuration, so that Include and Match hold here too."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.node import Endpoint

MAX_JUMPS = 8
_HOP = re.compile(r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?:\[(?P<v6>[^]]+)]|(?P<host>[^:]+))(?::(?P<port>\d+))?/?")


@dataclass(frozen=True, slots=True)
class Target:
    """One machine to connect to, with everything OpenSSH's configuration says about it.

    Attributes:
        node: Inventory name of the node it is, or leads to.
        host: Address or name to connect to.
        port: TCP port.
        user: Login.
        key_name: The name its host key is filed under in known_hosts.
        fallback_key_name: The name without the port, under which OpenSSH looks too; empty if it does not.
        identities: Private keys to try, in order; they need not exist.
        identities_only: Keys of the agent that are not among `identities` are not to be used.
        agent: Whether the agent may be asked.
        known_hosts: The user's and the machine's own known_hosts files.
        jump: The machine to go through, if any.
        proxy_command: The command that makes the connection, if any; tokens expanded.
        hints: Configured login methods that are not available here.
        is_jump: It is a jump host, not the node itself.
        alias: The name by which ssh was asked for it.
    """

    node: str
    host: str
    port: int
    user: str
    key_name: str
    fallback_key_name: str = ""
    identities: tuple[Path, ...] = ()
    identities_only: bool = False
    agent: bool = True
    known_hosts: tuple[Path, ...] = ()
    jump: Target | None = None
    proxy_command: str | None = None
    hints: tuple[str, ...] = ()
    is_jump: bool = False
    alias: str = ""

    @property
    def where(self) -> str:
        """``user@host``, with the port where it is not 22, for messages."""
        port = f":{self.port}" if self.port != 22 else ""
        return f"{'jump host ' if self.is_jump else ''}{self.user}@{self.host}{port}"


@cache
def resolve(endpoint: Endpoint) -> Target:
    """Ask ``ssh -G`` about a node. Cached for the life of the process.

    Raises:
        GpustrapError: The SSH configuration is broken, or there is no ssh client.
    """
    arguments = list(endpoint.ssh_args)
    if endpoint.port:
        arguments += ["-p", str(endpoint.port)]
    if endpoint.user:
        arguments += ["-l", endpoint.user]
    if endpoint.private_key:
        arguments += ["-i", str(Path(endpoint.private_key).expanduser())]
    return _resolve(endpoint.name, endpoint.host, arguments, _config_file(endpoint.ssh_args), depth=0)


def _resolve(name: str, host: str, arguments: list[str], config_file: list[str], depth: int) -> Target:
    if depth > MAX_JUMPS:
        raise _broken(name, f"ProxyJump goes through more than {MAX_JUMPS} machines, or in a circle")
    options = _ask_ssh(name, host, arguments)
    address, port, user = options["hostname"][0], int(options["port"][0]), options["user"][0]
    alias = _one(options, "hostkeyalias")
    tokens = {"%": "%", "h": address, "n": host, "p": str(port), "r": user, "d": str(Path.home()), "k": alias or host}
    proxy_command = _one(options, "proxycommand")
    jump = _one(options, "proxyjump")
    plain = (alias or address).lower()
    return Target(
        node=name,
        host=address,
        port=port,
        user=user,
        key_name=plain if alias or port == 22 else f"[{plain}]:{port}",
        fallback_key_name="" if alias or port == 22 else plain,
        identities=tuple(_paths(options.get("identityfile", ()), tokens)),
        identities_only=_one(options, "identitiesonly") == "yes",
        agent=options.get("identityagent", [""])[0] != "none",
        known_hosts=tuple(
            _paths(
                _words(" ".join(options.get("userknownhostsfile", []) + options.get("globalknownhostsfile", []))),
                tokens,
            )
        ),
        jump=_hop(name, jump, config_file, depth) if jump and not proxy_command else None,
        proxy_command=_expand(proxy_command, tokens) if proxy_command else None,
        hints=_hints(options),
        is_jump=depth > 0,
        alias=host,
    )


def _words(text: str) -> list[str]:
    """File names as ``ssh -G`` prints them, which are not quoted again: an apostrophe in one closes nothing."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _hop(name: str, jumps: str, config_file: list[str], depth: int) -> Target:
    """The last machine of a ProxyJump list; those before it are how to reach that one (as ssh itself does)."""
    before, _, last = jumps.rpartition(",")
    match = _HOP.fullmatch(last.strip())
    if not match:
        raise _broken(name, f"ProxyJump {last!r} is not [user@]host[:port]")
    arguments = [*config_file]
    if before:
        arguments += ["-J", before]
    if match["user"]:
        arguments += ["-l", match["user"]]
    if match["port"]:
        arguments += ["-p", match["port"]]
    host = match["v6"] or match["host"]
    return _resolve(name, host, arguments, config_file, depth + 1)


def _ask_ssh(name: str, host: str, arguments: list[str]) -> dict[str, list[str]]:
    try:
        done = subprocess.run(
            ["ssh", "-G", *arguments, "--", host], capture_output=True, text=True, check=False, timeout=20
        )
    except FileNotFoundError as error:
        raise GpustrapError(
            Problem(
                "ssh-client-missing",
                "this machine",
                "there is no ssh client",
                ExitCode.USAGE,
                remedy="apt-get install openssh-client",
            )
        ) from error
    except subprocess.TimeoutExpired as error:
        raise _broken(name, "ssh -G did not answer within 20 s") from error
    if done.returncode:
        raise _broken(name, done.stderr)
    options: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        options.setdefault(key, []).append(value)
    return options


def _broken(name: str, evidence: str) -> GpustrapError:
    return GpustrapError(
        Problem(
            "ssh-config-broken",
            f"node {name}",
            "the SSH configuration for it cannot be used",
            ExitCode.USAGE,
            evidence.strip(),
            "correct ~/.ssh/config or the ansible_ssh_*args of the node",
        )
    )


def _config_file(arguments: Iterable[str]) -> list[str]:
    """The ``-F FILE`` of the arguments: all that ssh itself passes on to a jump host."""
    words = iter(arguments)
    for word in words:
        if word.startswith("-F"):
            return ["-F", word[2:] or next(words, "")]
    return []


def user_config(endpoint: Endpoint) -> tuple[Path, ...]:
    """The configuration files that ssh reads for a node, in their order; they need not exist."""
    match _config_file(endpoint.ssh_args):
        case [_, "none"]:
            return ()
        case [_, name]:
            return (Path(name).expanduser().absolute(),)
        case _:
            return Path.home() / ".ssh" / "config", Path("/etc/ssh/ssh_config")


def _one(options: dict[str, list[str]], key: str) -> str | None:
    value = options.get(key, ["none"])[0]
    return None if value in {"none", ""} else value


def _expand(text: str, tokens: dict[str, str]) -> str:
    return re.sub(r"%(.)", lambda m: tokens.get(m[1], m[0]), text)


def _paths(values: Iterable[str], tokens: dict[str, str]) -> Iterable[Path]:
    return (Path(_expand(value, tokens)).expanduser() for value in values if value != "none")


def _hints(options: dict[str, list[str]]) -> tuple[str, ...]:
    """Only what the user asked for: compiled-in defaults (GSSAPI on Debian) are no wish."""
    found = []
    if provider := _one(options, "pkcs11provider"):
        found.append(f"PKCS11Provider {provider}: keys on a smart card cannot be used by gpustrap")
    if _one(options, "gssapidelegatecredentials") == "yes":
        found.append("GSSAPI (Kerberos) logins cannot be used by gpustrap")
    return tuple(found)
