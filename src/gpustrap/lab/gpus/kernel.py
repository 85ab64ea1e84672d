"""A stand-in for the distribution's kernel packages: of the kernel that runs here, and of a newer one.

The lab's nodes run this machine's kernel, for which their archive has no headers. With these, headers can be installed,
dkms builds, and a kernel that moved has packages that apt knows. Nothing in them is a kernel.
"""

from __future__ import annotations

import re
from pathlib import Path

from gpustrap.lab.standins.apt_repository import indexes, release, stanza
from gpustrap.lab.standins.deb import File, control_text, pack

ORIGIN = "gpustrap lab (simulated)"
NOTE = "simulated: stand-in of the gpustrap lab"
# Trusted: it lies in the node's own, read-only directory, and no key has to be left on the node.
SOURCES = "Types: deb\nURIs: file:/usr/lib/lab-gpu/kernel\nSuites: ./\nTrusted: yes\n"
IMAGE_POSTINST = """#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
depmod @kernel@
[ ! -d /etc/kernel/postinst.d ] || DEB_MAINT_PARAMS="$*" run-parts --arg=@kernel@ --arg=/boot/vmlinuz-@kernel@ \\
    /etc/kernel/postinst.d
"""
IMAGE_POSTRM = """#!/bin/sh
set -e
[ ! -d /etc/kernel/postrm.d ] || DEB_MAINT_PARAMS="$*" run-parts --arg=@kernel@ --arg=/boot/vmlinuz-@kernel@ \\
    /etc/kernel/postrm.d
"""
HEADERS_POSTINST = """#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
[ ! -d /etc/kernel/header_postinst.d ] || run-parts --arg=@kernel@ /etc/kernel/header_postinst.d
"""


def newer(kernel: str) -> str:
    """``6.12.43+deb13-amd64`` -> ``6.12.44+deb13-amd64``."""
    found = re.fullmatch(r"(\d+\.\d+\.)(\d+)(.*)", kernel)
    return f"{found[1]}{int(found[2]) + 1}{found[3]}" if found else f"{kernel}.1"


def write(directory: Path, kernel: str) -> None:
    """Write the repository, and ``image.deb``, the image package of the kernel that runs."""
    directory.mkdir(parents=True)
    stanzas = []
    for name in (kernel, newer(kernel)):
        for fields, files, scripts in (_image(name), _headers(name)):
            control = control_text(fields)
            deb = pack(control, files, {kind: text.replace("@kernel@", name) for kind, text in scripts.items()})
            filename = f"{fields['Package']}_{fields['Version']}_amd64.deb"
            (directory / filename).write_bytes(deb)
            stanzas.append(stanza(control, f"./{filename}", deb))
    (directory / "image.deb").symlink_to(f"linux-image-{kernel}_{_version(kernel)}_amd64.deb")
    found = indexes(stanzas)
    for filename, content in found.items():
        (directory / filename).write_bytes(content)
    about = {"Origin": ORIGIN, "Label": ORIGIN, "Architectures": "amd64", "Date": "", "Description": NOTE}
    (directory / "Release").write_bytes(release(about, found))
    (directory / "lab-kernel.sources").write_text(SOURCES, encoding="ascii")


def _version(kernel: str) -> str:
    return f"{re.split('[^0-9.]', kernel)[0]}-1"


def _fields(name: str, kernel: str, depends: str, summary: str) -> dict[str, str]:
    return {
        "Package": f"{name}-{kernel}",
        "Version": _version(kernel),
        "Architecture": "amd64",
        "Maintainer": "gpustrap lab <root@localhost>",
        "Section": "kernel",
        "Priority": "optional",
        "Depends": depends,
        "Description": f"{summary}\n {NOTE}",
    }


def _image(kernel: str) -> tuple[dict[str, str], dict[str, File], dict[str, str]]:
    note = File(f"{NOTE}\n".encode())
    files = {
        f"boot/vmlinuz-{kernel}": note,
        f"boot/config-{kernel}": File(b"CONFIG_MODULES=y\nCONFIG_RD_ZSTD=y\nCONFIG_RD_GZIP=y\n"),
        f"usr/lib/modules/{kernel}/modules.order": File(),
        f"usr/lib/modules/{kernel}/modules.builtin": File(),
    }
    fields = _fields("linux-image", kernel, "kmod, linux-base, initramfs-tools", f"Linux {kernel}")
    return fields, files, {"postinst": IMAGE_POSTINST, "postrm": IMAGE_POSTRM}


def _headers(kernel: str) -> tuple[dict[str, str], dict[str, File], dict[str, str]]:
    source = f"usr/src/linux-headers-{kernel}"
    files = {
        f"{source}/.config": File(b"CONFIG_MODULES=y\n"),
        f"{source}/Makefile": File(f"# {NOTE}\nmodules:\n".encode()),
        f"{source}/include/config/kernel.release": File(f"{kernel}\n".encode()),
        f"usr/lib/modules/{kernel}/build": File(link=f"/{source}", mode=0o777),
    }
    # The compiler comes with the headers: dkms of Debian 13 asks for none.
    fields = _fields("linux-headers", kernel, "gcc", f"Header files for Linux {kernel}")
    return fields, files, {"postinst": HEADERS_POSTINST}
