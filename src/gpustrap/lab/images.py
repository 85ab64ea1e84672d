"""Node images: Debian built from this machine's own apt configuration, Ubuntu pulled from a registry.

An image is kept in the engine's storage under a hash of its recipe, so that it is built once per machine.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from gpustrap.errors import GpustrapError
from gpustrap.lab import apt_host, state
from gpustrap.lab.engine import LABEL_OS, LABEL_RECIPE, Engine, EngineError, refusal
from gpustrap.model.progress import Progress, Step, silent

DEBIAN = {"debian12": "bookworm", "debian13": "trixie"}
UBUNTU = {"ubuntu2204": "22.04", "ubuntu2404": "24.04", "ubuntu2604": "26.04"}
OS_NAMES = (*DEBIAN, *UBUNTU)

REGISTRY_VARIABLE = "GPUSTRAP_LAB_REGISTRY"
DEFAULT_REGISTRY = "docker.io/library"
PULL_SECONDS = 90

PACKAGES = (
    "ca-certificates",
    "dbus",
    "initramfs-tools",
    "iproute2",
    "kmod",
    "libpam-systemd",
    "linux-base",
    "netbase",
    "openssh-server",
    "procps",
    "sudo",
    "systemd",
    "systemd-sysv",
    "tzdata",
)
PYTHON = "python3"
DPKG_OPTIONS = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
)
_FILES = files("gpustrap.lab") / "files"


def file_text(name: str) -> str:
    """The text of a file that is handed to nodes."""
    return (_FILES / name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything an image is made of.

    Attributes:
        os: Its name here, e.g. ``debian13``.
        packages: Installed beyond the minimal system.
        sources: deb822 text, or empty for the default of what makes the image.
        options: Lines for apt.conf.
        overlay: A tar archive laid over the tree before the provisioning script runs.
    """

    os: str
    packages: tuple[str, ...]
    sources: str
    options: tuple[str, ...]
    overlay: bytes

    @property
    def digest(self) -> str:
        """Names the image: changes when anything in it may."""
        parts = (self.os, *self.packages, self.sources, *self.options, *DPKG_OPTIONS, file_text("provision.sh"))
        return hashlib.sha256("\0".join(parts).encode() + self.overlay).hexdigest()[:16]

    @property
    def reference(self) -> str:
        """Image name in the engine's storage."""
        return f"localhost/gpustrap-lab/{self.os}:{self.digest}"


def recipe(os_name: str, *, bare: bool) -> Recipe:
    """The recipe of an image on this machine.

    Raises:
        GpustrapError: No such operating system.
    """
    if os_name not in OS_NAMES:
        raise refusal(
            "image-unknown",
            f"image {os_name}",
            "the lab has no such operating system",
            remedy=f"choose one of {', '.join(OS_NAMES)}",
        )
    archive = apt_host.find_archive() if os_name in DEBIAN else None
    return Recipe(
        os=os_name,
        packages=PACKAGES if bare else (*PACKAGES, PYTHON),
        sources=archive.sources(DEBIAN[os_name]) if archive else "",
        options=apt_host.apt_options(),
        overlay=overlay(apt_host.certificates(), apt_host.proxies(), apt_host.apt_options()),
    )


def overlay(certificates: tuple[Path, ...], proxies: tuple[str, ...], options: tuple[str, ...]) -> bytes:
    """The files of a node that do not come from a package, the same bytes for the same input."""
    content = {
        "etc/ssh/sshd_config.d/50-lab.conf": file_text("sshd.conf").encode(),
        "etc/systemd/system/lab-ssh-host-keys.service": file_text("lab-ssh-host-keys.service").encode(),
        **{f"usr/local/share/ca-certificates/{path.name}": path.read_bytes() for path in certificates},
    }
    if proxies:
        content["etc/environment"] = "".join(f"{line}\n" for line in proxies).encode()
    if options:
        content["etc/apt/apt.conf.d/90lab-host"] = "".join(f"{line}\n" for line in options).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in content.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def ensure(engine: Engine, os_name: str, *, bare: bool = False, progress: Progress = silent) -> str:
    """Make sure the image exists and give its reference.

    Raises:
        GpustrapError: It cannot be built, or its registry cannot be reached.
    """
    wanted = recipe(os_name, bare=bare)
    if engine.exists("image", wanted.reference):
        return wanted.reference
    full = ensure(engine, os_name, progress=progress) if bare else ""
    with state.lock(f"image-{wanted.digest}"):
        if engine.exists("image", wanted.reference):  # another process was faster
            return wanted.reference
        if bare:
            progress(Step("", f"taking python3 out of {os_name}"))
            derive(engine, full, wanted, f"apt-get -q purge -y --auto-remove {PYTHON}")
        elif os_name in DEBIAN:
            _debian(engine, wanted, progress)
        else:
            _ubuntu(engine, wanted, progress)
    progress(Step("", f"image of {os_name} is ready"))
    return wanted.reference


def _debian(engine: Engine, wanted: Recipe, progress: Progress) -> None:
    progress(Step("", f"building the image of {wanted.os}; takes about a minute, only the first time"))
    with state.scratch() as place:
        for directory in (place, place.parent):
            directory.chmod(0o755)  # apt's own user reads the sources
        (place / "overlay.tar").write_bytes(wanted.overlay)
        (place / "provision.sh").write_text(file_text("provision.sh"), encoding="utf-8")
        sources = place / "debian.sources"
        sources.write_text(wanted.sources, encoding="utf-8")
        sources.chmod(0o644)
        image = place / "image.tar"
        _mmdebstrap(wanted, place, image)
        progress(Step("", f"importing the image of {wanted.os}"))
        try:
            engine.run("import", *_label_changes(wanted), str(image), wanted.reference, timeout=300)
        except EngineError as error:
            raise _build_failed(wanted, "podman could not import it", error.words) from error


def _mmdebstrap(wanted: Recipe, place: Path, image: Path) -> None:
    command = [
        "mmdebstrap",
        "--mode=root",
        "--variant=minbase",
        f"--include={','.join(wanted.packages)}",
        *(f"--aptopt={option}" for option in wanted.options),
        *(f"--dpkgopt={option}" for option in DPKG_OPTIONS),
        f"--customize-hook=tar-in {place}/overlay.tar /",
        f'--customize-hook=chroot "$1" sh <{place}/provision.sh',
        '--customize-hook=rm -f "$1/etc/hostname" "$1/etc/resolv.conf" "$1/etc/apt/apt.conf.d/99mmdebstrap"',
    ]
    if wanted.sources:  # mmdebstrap numbers the file; a machine of this release calls it debian.sources
        rename = 'cd "$1/etc/apt/sources.list.d" && mv ./*debian.sources debian.sources'
        command += [f"--customize-hook={rename}", DEBIAN[wanted.os], str(image), str(place / "debian.sources")]
    else:
        command += [DEBIAN[wanted.os], str(image)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, umask=0o022)
    if done.returncode != 0:
        raise _build_failed(
            wanted,
            "mmdebstrap could not build it from this machine's apt sources",
            "\n".join(done.stderr.strip().splitlines()[-12:]),
        )


def _build_failed(wanted: Recipe, message: str, words: str) -> GpustrapError:
    return refusal(
        "image-build-failed",
        f"image {wanted.os}",
        message,
        evidence=words,
        remedy="apt-get update   (it must work on this machine; then the same command again)",
    )


def _label_changes(wanted: Recipe) -> tuple[str, ...]:
    labels = {LABEL_OS: wanted.os, LABEL_RECIPE: wanted.digest}
    return tuple(word for name, value in labels.items() for word in ("--change", f"LABEL {name}={value}"))


def _ubuntu(engine: Engine, wanted: Recipe, progress: Progress) -> None:
    base = f"{os.environ.get(REGISTRY_VARIABLE, DEFAULT_REGISTRY)}/ubuntu:{UBUNTU[wanted.os]}"
    progress(Step("", f"pulling {base}"))
    try:
        engine.run("pull", "--quiet", base, timeout=PULL_SECONDS)
    except EngineError as error:
        raise refusal(
            "image-not-reachable",
            f"image {wanted.os}",
            f"{base} cannot be pulled",
            evidence=error.words.splitlines()[-1],
            remedy=f"use debian12 or debian13, or set {REGISTRY_VARIABLE} to a registry this machine reaches",
        ) from error
    progress(Step("", f"installing systemd and sshd into {base}; takes about a minute, only the first time"))
    provision(engine, base, wanted)


def provision(engine: Engine, base: str, wanted: Recipe) -> None:
    """Make a node image out of an image that a registry serves.

    Raises:
        GpustrapError: A step in the container failed.
    """
    script = (
        "cat >/tmp/overlay.tar; tar -C / -xf /tmp/overlay.tar; rm /tmp/overlay.tar; apt-get -q update; "
        f"apt-get -q install -y --no-install-recommends {' '.join(wanted.packages)}; {file_text('provision.sh')}\n"
        # what images for single programs have and machines have not: no service starts, no package list is kept
        "rm -f /usr/sbin/policy-rc.d /etc/apt/apt.conf.d/docker-* /etc/dpkg/dpkg.cfg.d/docker-*"
    )
    derive(engine, base, wanted, script, stdin=wanted.overlay)


def derive(engine: Engine, base: str, wanted: Recipe, script: str, *, stdin: bytes = b"") -> None:
    """Run a script as root in a container of an image, and keep what comes out as another image.

    Raises:
        GpustrapError: The script failed.
    """
    command = ("sh", "-c", f"set -eu; export DEBIAN_FRONTEND=noninteractive; {script}")
    container = engine.run("create", "--interactive", "--network=host", base, *command)
    try:
        engine.run("start", "--attach", "--interactive", container, stdin=stdin, timeout=600)
        engine.run("commit", "--quiet", *_label_changes(wanted), container, wanted.reference, timeout=300)
    except EngineError as error:
        raise _build_failed(wanted, f"{base} could not be changed into it", error.words[-1500:]) from error
    finally:
        engine.call("rm", "--force", container)


def remove_all(engine: Engine) -> tuple[str, ...]:
    """Remove every node image, of whatever recipe; give their names."""
    gone: list[str] = []
    for image in engine.list("images", f"label={LABEL_RECIPE}"):
        engine.call("rmi", "--force", image["Id"])
        gone += image.get("Names") or [image["Id"][:12]]
    return tuple(gone)
