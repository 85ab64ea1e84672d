"""enroll: the first contact with a node. Afterwards the site's key gets in, and the site knows how to become root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.node import Access, Escalation, Node, Secrets
from gpustrap.model.progress import Progress, Step, silent
from gpustrap.model.site import Site
from gpustrap.site.access import save_access
from gpustrap.ssh import problems
from gpustrap.ssh.auth import SITE_KEY
from gpustrap.ssh.fanout import for_each
from gpustrap.ssh.identity import ensure_key, install_key
from gpustrap.ssh.root_shell import allow_passwordless_sudo, find_access, install_python
from gpustrap.ssh.session import Session, connect
from gpustrap.ssh.survey import OLDEST_PYTHON, SLOW_SECONDS, Survey, survey
from gpustrap.ssh.trust import HostKey, Trust

DEFAULT_PYTHON = "/usr/bin/python3"  # never looked up: PATH may lead to pyenv's or conda's


@dataclass(frozen=True, slots=True)
class Terms:
    """What the user allows.

    Attributes:
        accept_new: Take host keys of machines that are not known yet.
        fingerprint: Take exactly this host key; for one node.
        replace: Nodes whose changed host key is to be taken.
        passwordless_sudo: Write a sudoers drop-in where sudo asks for a password.
    """

    accept_new: bool = False
    fingerprint: str | None = None
    replace: frozenset[str] = frozenset()
    passwordless_sudo: bool = False


@dataclass(frozen=True, slots=True)
class Enrolled:
    """How it went on one node.

    Attributes:
        node: Inventory name.
        address: ``user@host``.
        host_key: The key it has shown.
        login: What let us in this time; from now on it is the site's key.
        access: How to become root, as stored in the site.
        python: Version of its python3.
        changes: What was changed on the node.
        warnings: What will be a nuisance.
    """

    node: str
    address: str
    host_key: HostKey
    login: str
    access: Access
    python: str
    changes: tuple[str, ...]
    warnings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """For ``--format json``."""
        return {
            "node": self.node,
            "address": self.address,
            "host_key": {
                "type": self.host_key.key_type,
                "fingerprint": self.host_key.fingerprint,
                "was": self.host_key.how,
            },
            "login": self.login,
            "sudo": {
                "escalation": self.access.escalation.value,
                "command": self.access.become_exe,
                "requiretty": self.access.requiretty,
            },
            "python": {"path": self.access.python, "version": self.python},
            "changes": list(self.changes),
            "warnings": list(self.warnings),
        }


def enroll_nodes(
    site: Site,
    nodes: Sequence[Node],
    *,
    secrets: Secrets,
    terms: Terms,
    forks: int = 20,
    progress: Progress = silent,
) -> dict[str, Enrolled | GpustrapError]:
    """Enroll nodes; can be repeated, and does only what is missing.

    Args:
        site: Gets the host keys, the site's key, and what was found out.
        nodes: Which nodes.
        secrets: Passwords of this run.
        terms: What the user allows.
        forks: Nodes worked on at a time.
        progress: Told how it goes.

    Raises:
        GpustrapError: A fingerprint was given for more than one node, or something else than a node is to be replaced.
    """
    wrong = _wrong_terms(terms, {node.name for node in nodes})
    if wrong:
        raise GpustrapError(*wrong)
    identity = ensure_key(site)

    def enroll(node: Node) -> Enrolled:
        result = _Enrolling(site, node, secrets, terms, identity, progress).run()
        progress(Step(node.name, "; ".join(("enrolled", *result.changes)), done=True))
        return result

    return for_each(nodes, enroll, forks=forks, progress=progress)


@dataclass(frozen=True, slots=True)
class _Enrolling:
    """One node's way through it."""

    site: Site
    node: Node
    secrets: Secrets
    terms: Terms
    identity: Path
    progress: Progress

    def run(self) -> Enrolled:
        changes: list[str] = []
        self.say("connecting")
        with self.connect(self.secrets) as session:
            key = session.host_key
            self.say(f"host key {key.fingerprint} ({key.how})")
            found = survey(session, self.node.endpoint.python or DEFAULT_PYTHON)
            if session.login != SITE_KEY:
                self.say("installing the site's key")
                install_key(session, self.identity, self.site.root.resolve().name)
                self.prove_key()
                changes.append("site's key installed")
            found, access = self.become_root(session, found, changes)
            save_access(self.site, self.node.name, access)
            if access.escalation is Escalation.NOT_ALLOWED:
                raise problems.no_root(self.node.name, found.user, found.sudo_words)
            if access.escalation is Escalation.MISSING:
                raise problems.sudo_missing(self.node.name, found.user)
            return Enrolled(
                node=self.node.name,
                address=session.target.where,
                host_key=key,
                login=session.login,
                access=access,
                python=found.python,
                changes=tuple(changes),
                warnings=_warnings(found, access),
            )

    def connect(self, secrets: Secrets) -> Session:
        terms = self.terms
        trust = Trust(
            accept_new=terms.accept_new,
            fingerprint=terms.fingerprint,
            replace=self.node.name in terms.replace,
            record=True,
        )
        return connect(
            self.node.endpoint, known_hosts=self.site.known_hosts, identity=self.identity, secrets=secrets, trust=trust
        )

    def prove_key(self) -> None:
        """Log in anew: what sshd thinks of the key is known only then."""
        try:
            with self.connect(Secrets()) as session:
                if session.login == SITE_KEY and session.run("true").rc == 0:
                    return
                evidence = f"the node took: {session.login}"
        except GpustrapError as error:
            evidence = error.problems[0].evidence
        raise problems.refuse(
            "key-login-failed",
            self.node.name,
            "the site's key is in ~/.ssh/authorized_keys, but the node does not take it",
            evidence=evidence,
            remedy="see on the node why: journalctl -u ssh -n 20 (often PubkeyAuthentication, AuthorizedKeysFile, "
            "or a home directory others may write to)",
        )

    def become_root(self, session: Session, found: Survey, changes: list[str]) -> tuple[Survey, Access]:
        """Find out about sudo, and do what needs it."""
        self.say("testing sudo")
        python = self.node.endpoint.python or DEFAULT_PYTHON
        access = find_access(session, found, self.secrets, python)
        root = access.escalation not in {Escalation.NOT_ALLOWED, Escalation.MISSING}
        if not found.python and root and python == DEFAULT_PYTHON:
            self.say("installing python3")
            install_python(session, access, self.secrets)
            found = replace(found, python=survey(session, python).python)
            changes.append("python3 installed")
        if not found.python_usable:
            raise _python_problem(self.node.name, python, found.python)
        if self.terms.passwordless_sudo and access.escalation is Escalation.PASSWORD:
            self.say("writing the sudoers drop-in")
            allow_passwordless_sudo(session, access, self.secrets, found.user)
            access = replace(access, escalation=Escalation.NOPASSWD, requiretty=False)
            changes.append("sudo without password")
        return found, access

    def say(self, text: str) -> None:
        self.progress(Step(self.node.name, text))


def _warnings(found: Survey, access: Access) -> tuple[str, ...]:
    warnings = []
    if found.sudo_seconds >= SLOW_SECONDS:
        warnings.append(
            f"sudo took {found.sudo_seconds} s: usually its own name is missing in /etc/hosts, or LDAP is slow"
        )
    if found.shell_seconds >= SLOW_SECONDS:
        warnings.append(
            f"its shell took {found.shell_seconds:.0f} s to start: look at the start-up files of {found.user}"
        )
    if found.noise:
        warnings.append(f"the start-up files of {found.user} print text, which breaks scp and rsync: {found.noise}")
    if access.requiretty:
        warnings.append("sudo insists on a terminal (requiretty): every task is slower; --passwordless-sudo lifts it")
    if "sudo-rs" in found.sudo_version and access.become_exe == "sudo":
        warnings.append("sudo is sudo-rs without sudo.ws: Ansible may not know its password prompt")
    return tuple(warnings)


def _python_problem(name: str, path: str, version: str) -> GpustrapError:
    oldest = ".".join(map(str, OLDEST_PYTHON))
    if version:
        return problems.refuse(
            "python-unusable",
            name,
            f"{path} is no Python {oldest} or newer",
            evidence=version,
            remedy=f"install one and set ansible_python_interpreter of {name} to its path",
        )
    return problems.refuse(
        "python-missing",
        name,
        f"{path} is missing on the node",
        remedy=f"install it there as root, or correct ansible_python_interpreter, then gpustrap enroll {name}",
    )


def _wrong_terms(terms: Terms, names: set[str]) -> list[Problem]:
    wrong = [
        Problem(
            "no-such-node",
            f"option --replace {name}",
            "is not the name of one of the nodes",
            ExitCode.USAGE,
            remedy="give each node by its inventory name: gpustrap enroll --replace n1 --replace n2",
        )
        for name in sorted(terms.replace - names)
    ]
    if terms.fingerprint and len(names) != 1:
        wrong.append(
            Problem(
                "fingerprint-for-many",
                "option --fingerprint",
                f"one fingerprint cannot be that of {len(names)} nodes",
                ExitCode.USAGE,
                remedy="gpustrap enroll --fingerprint SHA256:… NODE, one node at a time",
            )
        )
    return wrong
