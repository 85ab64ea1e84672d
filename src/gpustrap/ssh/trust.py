"""Whether a machine's host key is taken. Nothing is ever taken silently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpustrap.errors import GpustrapError
from gpustrap.ssh import known_hosts
from gpustrap.ssh.config import Target
from gpustrap.ssh.known_hosts import Finding, Standing, fingerprint
from gpustrap.ssh.problems import refuse


@dataclass(frozen=True, slots=True)
class Trust:
    """What, beside a known_hosts entry, makes a key acceptable. Only enroll gives any of it.

    Attributes:
        accept_new: Take the key of a machine that is not known yet, jump hosts included.
        fingerprint: Take the node's key if it has exactly this fingerprint.
        replace: Forget what the site knows about the node, and take the key it shows now.
        record: Write a key that only the user's own files know into the site's file too, which Ansible reads.
    """

    accept_new: bool = False
    fingerprint: str | None = None
    replace: bool = False
    record: bool = False

    def for_jump_host(self) -> Trust:
        """What of it holds for a machine on the way."""
        return Trust(accept_new=self.accept_new, record=self.record)


NOTHING_ELSE = Trust()


@dataclass(frozen=True, slots=True)
class HostKey:
    """A key that was taken.

    Attributes:
        key_type: ``ssh-ed25519`` …
        fingerprint: ``SHA256:…``.
        how: It was in known_hosts, is new, or takes the place of another.
    """

    key_type: str
    fingerprint: str
    how: Literal["known", "new", "replaced"]


def judge(target: Target, key_type: str, blob: bytes, site_file: Path, trust: Trust) -> HostKey:
    """Take a host key or refuse it; a key taken anew is written to the site's file.

    Raises:
        GpustrapError: The key is unknown, has changed, is revoked, is not the expected one, or is a certificate.
    """
    files = (site_file, *target.known_hosts)
    shown = fingerprint(blob)
    finding = known_hosts.look_up(files, target.key_name, target.fallback_key_name, blob)
    how: Literal["known", "new", "replaced"] = "new"
    if finding.standing is Standing.CHANGED and trust.replace and trust.fingerprint in {None, shown}:
        known_hosts.forget(site_file, target.key_name)
        # What a file of the user's or a wildcard says still counts: that is not ours to change.
        finding = known_hosts.look_up(files, target.key_name, target.fallback_key_name, blob)
        how = "replaced"
    key = HostKey(key_type, shown, "known" if finding.standing is Standing.KNOWN else how)
    if refusal := _refusal(target, key, finding, trust, site_file):
        raise refusal
    if key.how != "known" or trust.record:
        known_hosts.append(site_file, target.key_name, key_type, blob)
    return key


def _refusal(target: Target, key: HostKey, finding: Finding, trust: Trust, site_file: Path) -> GpustrapError | None:
    standing = finding.standing
    if standing is Standing.REVOKED:
        return _revoked(target, key, finding)
    if trust.fingerprint and trust.fingerprint != key.fingerprint:
        return _unexpected(target, key, trust.fingerprint)
    if standing is Standing.CHANGED:
        return _changed(target, key, finding, site_file)
    taken = standing is Standing.KNOWN or trust.accept_new or trust.fingerprint or trust.replace
    if "-cert-" in key.key_type or (standing is Standing.CERTIFICATE and not taken):
        return _certificate(target, key, finding)
    return None if taken else _unknown(target, key)


def preferred(target: Target, site_file: Path, offered: Sequence[str]) -> tuple[str, ...]:
    """Host key algorithms to ask for, those of known keys first (an RSA key serves two algorithms)."""
    types = known_hosts.known_types((site_file, *target.known_hosts), target.key_name, target.fallback_key_name)
    known = [a for t in types for a in offered if a == t or (t == "ssh-rsa" and a.startswith("rsa-sha2-"))]
    return tuple(dict.fromkeys([*known, *offered]))


def _changed(target: Target, key: HostKey, finding: Finding, site_file: Path) -> GpustrapError:
    file = finding.because[0].place.rpartition(":")[0]
    if file == str(site_file) and not target.is_jump:
        way_out = f"gpustrap enroll --replace {target.node}"
    else:
        way_out = f"ssh-keygen -R '{target.key_name}' -f {file}"
    lines = [f"known: {fingerprint(e.blob)} ({e.key_type}) in {e.place}" for e in finding.because]
    return refuse(
        "host-key-changed",
        target.node,
        f"the host key of {target.where} has changed; nothing was sent to it",
        evidence="\n".join([*lines, f"shown: {key.fingerprint} ({key.key_type})"]),
        remedy=f"find out why; if the machine was reinstalled: {way_out}",
    )


def _unknown(target: Target, key: HostKey) -> GpustrapError:
    if target.is_jump:
        take_it = f"connect once with: ssh -p {target.port} {target.user}@{target.host}"
    else:
        take_it = f"gpustrap enroll --fingerprint {key.fingerprint} {target.node}"
    return refuse(
        "host-key-unknown",
        target.node,
        f"the host key of {target.where} is not known",
        evidence=f"shown: {key.fingerprint} ({key.key_type})",
        remedy=f"compare it with the machine's console, then {take_it}",
    )


def _unexpected(target: Target, key: HostKey, expected: str) -> GpustrapError:
    return refuse(
        "host-key-unexpected",
        target.node,
        f"the host key of {target.where} is not the expected one; nothing was sent to it",
        evidence=f"expected: {expected}\nshown:    {key.fingerprint}",
        remedy="check it on the node's console: for f in /etc/ssh/*_key.pub; do ssh-keygen -lf $f; done",
    )


def _revoked(target: Target, key: HostKey, finding: Finding) -> GpustrapError:
    return refuse(
        "host-key-revoked",
        target.node,
        f"the host key of {target.where} is marked as revoked; nothing was sent to it",
        evidence=f"{key.fingerprint} in {finding.because[0].place}",
        remedy="give the machine new host keys: rm /etc/ssh/ssh_host_*; ssh-keygen -A; systemctl restart ssh",
    )


def _certificate(target: Target, key: HostKey, finding: Finding) -> GpustrapError:
    return refuse(
        "host-certificate-unsupported",
        target.node,
        f"{target.where} is known only through a certificate authority, and gpustrap cannot check host certificates",
        evidence="\n".join([*(f"@cert-authority in {e.place}" for e in finding.because), f"shown: {key.fingerprint}"]),
        remedy=f"compare the plain key with the machine's console, then gpustrap enroll --accept-new {target.node}",
    )
