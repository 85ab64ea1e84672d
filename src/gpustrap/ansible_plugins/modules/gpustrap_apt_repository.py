"""Ansible module: a vendor's apt repository: its key, its deb822 entry and its pins, as one thing."""

from __future__ import annotations

import os
import tempfile
import time
from glob import glob
from typing import Any
from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_native
from ansible.module_utils.gpustrap_apt_sources import switch_off
from ansible.module_utils.gpustrap_openpgp import BadKeyError, expiry, keyring, normal, primary_keys
from ansible.module_utils.urls import open_url

DOCUMENTATION = r"""
module: gpustrap_apt_repository
short_description: An apt repository whose key is pinned by fingerprint
description:
  - Takes a key file only if it holds exactly the pinned primary keys. Entries of the same repository elsewhere in apt's
    sources are switched off, with a backup, because apt refuses to work when two of them differ in Signed-By. The named
    packages are pinned to their versions; nothing else is preferred from this repository.
  - Roles that share a repository give it the same name, so that it is written once, and each its own C(pins).
options:
  name: {type: str, required: true, description: The repository's short name; its files are called gpustrap-NAME.}
  uri: {type: str, required: true, description: Base URI.}
  suite: {type: str, required: true, description: "Suite; C(/) for a flat repository, which has no components."}
  components: {type: list, elements: str, required: true, description: Components.}
  architectures: {type: list, elements: str, required: true, description: Architectures as dpkg names them.}
  key_url: {type: str, required: true, description: Where the key file is.}
  key_fingerprints: {type: list, elements: str, required: true, description: The primary keys it must hold.}
  packages: {type: list, elements: dict, default: [], description: Packages to pin, each with name and version.}
  pins: {type: str, description: "What the file of pins is called after; the repository, where left out."}
  refused: {type: list, elements: str, default: [], description: "Packages (globs) never to be taken from it."}
  allowed: {type: list, elements: str, default: [], description: "Packages (globs) that are not meant by refused."}
author: gpustrap
"""
EXAMPLES = r"""
- gpustrap_apt_repository:
    name: docker
    uri: https://download.docker.com/linux/debian
    suite: trixie
    components: [stable]
    architectures: [amd64]
    key_url: https://download.docker.com/linux/debian/gpg
    key_fingerprints: [9DC858229FC7DD38854AE2D88D81803C0EBFCD88]
"""
RETURN = r"""
replaced: {type: list, returned: success, description: Files in which another entry was switched off.}
claims: {type: list, returned: success, description: The three files.}
"""

APT = "/etc/apt"
KEY_LIMIT = 1 << 20
MANAGED = "# Managed by gpustrap; changes are overwritten.\n"


def main() -> None:
    """Key first, then the entry: a source without its key stops apt."""
    module = AnsibleModule(argument_spec=arguments(), supports_check_mode=True)
    given = module.params
    key = "{0}/keyrings/gpustrap-{1}.gpg".format(APT, given["name"])
    source = "{0}/sources.list.d/gpustrap-{1}.sources".format(APT, given["name"])
    pins = "{0}/preferences.d/gpustrap-{1}".format(APT, given["pins"] or given["name"])
    changed = []
    if not key_is_there(key, given["key_fingerprints"]):
        changed.append(key)
        data = fetch(module, given["key_url"], given["key_fingerprints"])
        put(module, key, data)
    replaced = replace_others(module, source, given["uri"], given["suite"])
    for path, text in ((pins, preferences(given)), (source, entry(given, key))):
        if read(path) != text.encode():
            changed.append(path)
            put(module, path, text.encode())
    module.exit_json(
        changed=bool(changed or replaced),
        replaced=replaced,
        written=changed,
        claims=[{"kind": "file", "name": path} for path in (key, source, pins)],
    )


def arguments() -> dict[str, Any]:
    """The argument spec."""
    text, texts = {"type": "str", "required": True}, {"type": "list", "elements": "str", "required": True}
    package = {"name": {"type": "str", "required": True}, "version": {"type": "str", "required": True}}
    return {
        "name": text,
        "uri": text,
        "suite": text,
        "components": texts,
        "architectures": texts,
        "key_url": dict(text, no_log=False),
        "key_fingerprints": dict(texts, no_log=False),
        "packages": {"type": "list", "elements": "dict", "default": [], "options": package},
        "pins": {"type": "str"},
        "refused": {"type": "list", "elements": "str", "default": []},
        "allowed": {"type": "list", "elements": "str", "default": []},
    }


def key_is_there(path: str, fingerprints: list[Any]) -> bool:
    """Whether our keyring holds exactly the pinned keys, and they are valid; then nothing is downloaded."""
    try:
        data = read(path)
        return sorted(primary_keys(data)) == sorted(normal(text) for text in fingerprints) and not expired(data)
    except BadKeyError:
        return False


def fetch(module: AnsibleModule, url: str, fingerprints: list[Any]) -> bytes:
    """The vendor's key file as a binary keyring, if it is what was pinned."""
    try:
        data = open_url(url, timeout=30, http_agent="gpustrap").read(KEY_LIMIT)
    except Exception as error:  # noqa: BLE001 - urllib's, ssl's and socket's errors have no common base
        module.fail_json(msg="the key at {0} cannot be had: {1}".format(url, to_native(error)))
    try:
        return accepted(data, fingerprints)
    except BadKeyError as error:
        module.fail_json(msg="the key at {0} was refused: {1}".format(url, error))
        raise


def accepted(data: bytes, fingerprints: list[Any]) -> bytes:
    """The binary keyring, if it is what was pinned and apt will take it."""
    ring: bytes = keyring(data, fingerprints)
    if expired(ring):
        since = time.strftime("%Y-%m-%d", time.gmtime(expiry(ring)))
        raise BadKeyError("it has been invalid since {0}; its publisher must renew it".format(since))
    return ring


def expired(data: bytes) -> bool:
    """Whether apt would no longer take what a key signs; a vendor renews it under the same fingerprint."""
    return bool(0 < expiry(data) < time.time())


def replace_others(module: AnsibleModule, ours: str, uri: str, suite: str) -> list[Any]:
    """Switches off other entries of this repository; the old files stay beside as backups."""
    replaced = []
    lists = sorted(glob(APT + "/sources.list.d/*.list")) + sorted(glob(APT + "/sources.list.d/*.sources"))
    for path in [APT + "/sources.list", *lists]:
        if path == ours or not os.path.isfile(path):
            continue
        before = read(path).decode("utf-8", "surrogateescape")
        after = switch_off(before, path.endswith(".sources"), uri, suite)
        if after != before:
            replaced.append(path)
            put(module, path, after.encode("utf-8", "surrogateescape"), backup=True)
    return replaced


def entry(given: dict[str, Any], key: str) -> str:
    """The deb822 stanza."""
    fields = [
        ("Types", "deb"),
        ("URIs", given["uri"]),
        ("Suites", given["suite"]),
        ("Components", " ".join(given["components"])),  # a flat repository (suite /) has none
        ("Architectures", " ".join(given["architectures"])),
        ("Signed-By", key),
    ]
    return MANAGED + "".join("{0}: {1}\n".format(name, value) for name, value in fields if value)


def preferences(given: dict[str, Any]) -> str:
    """Locked packages stay at their version; the rest of the repository is a last resort, or refused.

    Above 1000, so that an older one is taken, too: the module apt finds no candidate otherwise. Of several entries that
    match a version by its package's name, apt takes the first.
    """
    here = 'Pin: origin "{0}"'.format(urlsplit(given["uri"]).hostname or "")
    pins = ["Package: *\n{0}\nPin-Priority: 100\n".format(here)]
    pins.extend(
        "Package: {0}\nPin: version {1}\nPin-Priority: 1001\n".format(one["name"], one["version"])
        for one in given["packages"]
    )
    pins.extend(
        "Package: {0}\n{1}\nPin-Priority: {2}\n".format(" ".join(globs), here, priority)
        for globs, priority in ((given["allowed"], 100), (given["refused"], -1))
        if globs
    )
    return MANAGED + "\n".join(pins)


def read(path: str) -> bytes:
    """The file, or nothing."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def put(module: AnsibleModule, path: str, data: bytes, backup: bool = False) -> None:
    """Replaces a file in one step; apt reads them as an ordinary user, so 0644."""
    if module.check_mode:
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if backup:
        module.backup_local(path)
    handle, scratch = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.chmod(scratch, 0o644)
    module.atomic_move(scratch, path)


if __name__ == "__main__":
    main()
