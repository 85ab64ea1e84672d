"""The key that DKMS signs modules with on this node, and whether the firmware's shim knows it.

Secure Boot's shim has a list of its own (MOK, machine owner keys). Linux shows it in efivars, which also a recorded
tree has; mokutil reads the same variables, and is asked where they are out of sight.
"""

from __future__ import annotations

import re

from .der import certificate
from .host import Host

EFIVARS = "/sys/firmware/efi/efivars"
SHIM = "605dab50-e046-4300-abb6-3dd810dd8b23"
DATABASE = EFIVARS + "/db-d719b2cb-3d3a-4596-a3bc-dad00e67656f"
REQUEST = EFIVARS + "/MokNew-" + SHIM
TABLES = "/sys/firmware/efi/mok-variables"
FRAMEWORK = ("/etc/dkms/framework.conf", "/etc/dkms/framework.conf.d")
DKMS = ("/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub")
UBUNTU = ("/var/lib/shim-signed/mok/MOK.priv", "/var/lib/shim-signed/mok/MOK.der")


def signing_paths(host: Host) -> tuple[str, str]:
    """Where DKMS looks for key and certificate: its configuration, else Ubuntu's place on Ubuntu, else its own.

    As prepare_signing() of dkms 3 has it.
    """
    files = [FRAMEWORK[0], *host.match(FRAMEWORK[1], "*.conf")]
    text = "\n".join(host.read(path) or "" for path in files)
    release = host.read("/etc/os-release") or ""
    key, cert = UBUNTU if re.search(r"^ID=[\"']?ubuntu", release, re.MULTILINE) else DKMS
    return _setting(text, "mok_signing_key") or key, _setting(text, "mok_certificate") or cert


def _setting(text: str, name: str) -> str:
    """The last assignment of a shell variable that is not commented out."""
    found = re.findall(r"^[ \t]*%s=[\"']?([^\"'\s]+)" % name, text, re.MULTILINE)
    return found[-1] if found else ""


def mok_facts(host: Host) -> dict[str, object]:
    """The node's own signing certificate, and what shim knows of it; None: could not be found out."""
    _key, path = signing_paths(host)
    der = host.read_bytes(path) or b""
    subject, serial = certificate(der)
    if not serial:
        return {"certificate": "", "subject": "", "serial": "", "enrolled": None, "requested": None}
    enrolled, requested = state(host, path, der)
    return {"certificate": path, "subject": subject, "serial": serial, "enrolled": enrolled, "requested": requested}


def state(host: Host, path: str, der: bytes) -> tuple[bool | None, bool | None]:
    """Whether a certificate is enrolled, and whether its enrolment is asked for at the next boot."""
    enrolled, requested = _by_variables(host, der)
    if enrolled is None:
        answer = host.run(["mokutil", "--test-key", path])
        return parse_test_key(answer.stdout) if answer else (None, None)
    return enrolled, requested


def _by_variables(host: Host, der: bytes) -> tuple[bool | None, bool | None]:
    if not host.is_dir(EFIVARS) or not host.names(EFIVARS):
        return None, None
    lists = host.match(EFIVARS, "MokListRT*-" + SHIM) + host.match(TABLES, "MokListRT*") + [DATABASE]
    # Lists of signatures hold each certificate in one piece, so that it is there if its bytes are.
    enrolled = any(der in (host.read_bytes(one) or b"") for one in lists)
    return enrolled, der in (host.read_bytes(REQUEST) or b"")


def parse_test_key(said: str) -> tuple[bool | None, bool | None]:
    """Mokutil's answer about one certificate: enrolled, asked for, or neither."""
    if "in the enrollment request" in said:
        return False, True
    if "is not enrolled" in said:
        return False, False
    if "already" in said:  # enrolled, in db, in the built-in keyring
        return True, False
    return None, None
