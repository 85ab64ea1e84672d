"""The key that DKMS signs modules with, and asking shim to enrol it. Standard library only."""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Sequence

from ansible.module_utils.gpustrap_node import mok, pci, reboots
from ansible.module_utils.gpustrap_node.host import Host

SUBJECT = "/CN=DKMS module signing key"  # the name that dkms itself gives it
STAGE = "mok"

# argv, what it reads on standard input, what its environment has besides -> exit status, output
Run = Callable[[Sequence[str], str, Mapping[str, str]], "tuple[int, str]"]


class MokError(Exception):
    """What was asked for cannot be done here; the way out is in it."""


def ensure(host: Host, run: Run, password: str, check_mode: bool) -> dict[str, Any]:
    """Have a key, and its enrolment asked for where a person still has to do it.

    Args:
        host: The machine.
        run: Runs a program.
        password: The one-time password that the person types at the console.
        check_mode: Change nothing.

    Returns:
        The module's result: ``staged`` where the enrolment was asked for just now, ``missed`` where it was before and
        the boot since went by without anybody, and ``state`` in a word.
    """
    if not pci.secure_boot(host)["enabled"]:
        return {"changed": False, "state": "secure boot is off"}
    key, certificate = mok.signing_paths(host)
    made = not (host.exists(certificate) and (key.startswith("pkcs11:") or host.exists(key)))
    claims = [{"kind": "file", "name": path} for path in (key, certificate) if path.startswith("/")]
    if made and check_mode:
        return {"changed": True, "state": "would follow: a key, and its enrolment asked for", "claims": claims}
    if made:
        make_key(host, run, key, certificate)
    der = host.read_bytes(certificate) or b""
    enrolled, requested = mok.state(host, certificate, der)
    if enrolled:
        if not check_mode:
            reboots.forget(host, STAGE)
        return {"changed": made, "state": "enrolled", "claims": claims}
    if requested:
        return {"changed": made, "state": "asked for", "claims": claims}
    serial = mok.mok_facts(host)["serial"]
    missed = reboots.tried(host, STAGE, str(serial))
    if not check_mode:
        ask_for(host, run, certificate, der, password)
        reboots.remember(host, STAGE, str(serial))
    return {"changed": True, "state": "asked for", "staged": True, "missed": missed, "claims": claims}


def make_key(host: Host, run: Run, key: str, certificate: str) -> None:
    """A key of this machine's own, as dkms makes it at its first build: only root may read it.

    Raises:
        MokError: No key came of it.
    """
    there = host.exists(key)  # somebody's: a certificate is made for it, and it stays
    if (key, certificate) == mok.UBUNTU and not there and host.exists("/usr/sbin/update-secureboot-policy"):
        said = run(["/usr/sbin/update-secureboot-policy", "--new-key"], "", {"SHIM_NOTRIGGER": "y"})[1]
    elif key.startswith("pkcs11:"):
        raise MokError("its key is in a token (%s), and %s is not there: export it" % (key, certificate))
    else:
        for path in {os.path.dirname(key), os.path.dirname(certificate)}:
            os.makedirs(host.path(path), mode=0o755, exist_ok=True)
        made = ["openssl", "req", "-new", "-x509", "-nodes", "-days", "36500", "-subj", SUBJECT]
        # openssl writes a new key 0600.
        made += ["-key", host.path(key)] if there else ["-newkey", "rsa:2048", "-keyout", host.path(key)]
        said = run([*made, "-outform", "DER", "-out", host.path(certificate)], "", {})[1]
    if not host.exists(key) or not host.exists(certificate):
        raise MokError("no key for modules could be made: %s" % (said.strip() or "openssl said nothing"))


def ask_for(host: Host, run: Run, certificate: str, der: bytes, password: str) -> None:
    """Ask shim to enrol a certificate at the next boot; the password goes in by standard input, never as argument.

    Raises:
        MokError: Nobody gave a password, or the request did not arrive.
    """
    if not password:
        raise MokError(
            "a person enrols the node's key with a one-time password that the playbook must know: set"
            " gpustrap_mok_password (8 to 16 letters), in a vault"
        )
    code, said = run(["mokutil", "--import", host.path(certificate)], "%s\n%s\n" % (password, password), {})
    if code == 127:
        raise MokError("mokutil is not installed; Next: sudo apt-get install mokutil, on the node")
    requested = mok.state(host, certificate, der)[1]
    if code != 0 or requested is False:
        words = said.replace(password, "********").strip()
        raise MokError("mokutil --import %s: %s" % (certificate, words or "the request did not arrive in the firmware"))
