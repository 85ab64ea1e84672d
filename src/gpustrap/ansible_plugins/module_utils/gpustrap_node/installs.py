"""What of ours is already there, and who put it there: a package, a snap, an installer, or nobody known."""

from __future__ import annotations

import json
import re

from . import environments
from .dpkg import Package
from .host import Host
from .nvidia import parse_module_version
from .storage import on_share

INFO = "/var/lib/dpkg/info"
MAX = 100

# What each package means; only the ones that say which installation it is, not their hundred libraries.
PACKAGES = (
    ("docker", r"docker\.io|docker-ce|moby-engine|docker-desktop"),
    ("podman-docker", r"podman-docker"),
    (
        "nvidia-driver",
        r"nvidia-(driver|headless(-no-dkms)?|dkms|open)(-\d[\w-]*|-open|-cuda)?|nvidia-legacy\S+-driver",
    ),
    ("nvidia-driver", r"nvidia-(open-)?kernel(-open)?-dkms|kmod-nvidia-\w+-dkms"),
    ("nvidia-driver", r"cuda-drivers(-\d+)?|libnvidia-ml1|libnvidia-compute-\d[\w-]*|linux-modules-nvidia-\S+"),
    ("cuda", r"cuda-toolkit(-\d[\d-]*)?|nvidia-cuda-toolkit|cuda(-\d+-\d+)?"),
    ("container-toolkit", r"nvidia-container-toolkit|nvidia-docker2|libnvidia-container1"),
    ("conda", r"conda"),
)
# Programs that a package should own.
PROGRAMS = (
    ("docker", ("/usr/bin/dockerd", "/usr/local/bin/dockerd", "/usr/bin/docker", "/usr/local/bin/docker")),
    ("nvidia-driver", ("/usr/bin/nvidia-smi", "/usr/local/bin/nvidia-smi")),
    ("container-toolkit", ("/usr/bin/nvidia-ctk", "/usr/bin/nvidia-container-runtime", "/usr/local/bin/nvidia-ctk")),
)
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
RUNFILE = ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer", "/var/lib/nvidia/dirs")
CONDA_TOPS = ("/opt", "/usr/local", "/usr/share", "/root")
CONDA_NAME = re.compile(r"(\.?(ana|mini)?conda[23]?|(mini|mamba)forge[23]?)\Z")


def install_facts(
    host: Host, known: dict[str, Package] | None, prefix: str = environments.PREFIX
) -> list[dict[str, object]]:
    """Every installation found, at most a hundred rows; of environments those below a prefix."""
    rows = [
        *_packages(known or {}),
        *_snaps(host),
        *_driver(host),
        *_cuda_trees(host),
        *_condas(host),
        *_environments(host, prefix),
    ]
    owners = Owners(host, known or {})
    rows += _programs(host, owners)
    rows += _libraries(host, owners)
    return [row for number, row in enumerate(rows) if row not in rows[:number]][:MAX]


def _row(what: str, version: str = "", origin: str = "", path: str = "") -> dict[str, object]:
    return {"what": what, "version": version, "origin": origin, "path": path}


def _packages(known: dict[str, Package]) -> list[dict[str, object]]:
    rows = []
    for what, pattern in PACKAGES:
        match = re.compile("^(?:%s)$" % pattern).match
        hits = [p for name, p in sorted(known.items()) if ":" not in name and match(name) and p.present]
        rows += [_row(what, p.version, "package " + p.name) for p in hits]
    return rows


def _snaps(host: Host) -> list[dict[str, object]]:
    """Docker's snap, mounted or only stored (snapd may be stopped)."""
    here = "/snap/docker/current"
    if not host.exists(here) and not host.match("/var/lib/snapd/snaps", "docker_*.snap"):
        return []
    version = re.search(r"^version: *['\"]?([^'\"\s]+)", host.read(here + "/meta/snap.yaml") or "", re.MULTILINE)
    return [_row("docker", version.group(1) if version else "", "snap", "/snap/docker")]


class Owners:
    """Which package a file is from, read from dpkg's lists; nothing is read until the first question."""

    def __init__(self, host: Host, known: dict[str, Package]) -> None:
        self.host = host
        self.known = known
        self.lists: dict[str, str] | None = None

    def owner(self, path: str) -> Package | None:
        """The package that owns a path, by any of its names (links, and /usr merged or not)."""
        names = {path, self.host.real(path)}
        names |= {name[4:] for name in names if name.startswith("/usr/")}
        if self.lists is None:
            lists = self.host.match(INFO, "*.list")
            self.lists = {one: self.host.read(one) or "" for one in lists}
        for file, text in self.lists.items():
            if any("\n%s\n" % name in "\n" + text for name in names):
                package = file[len(INFO) + 1 : -len(".list")]
                return self.known.get(package) or self.known.get(package.partition(":")[0])
        return None


def _programs(host: Host, owners: Owners) -> list[dict[str, object]]:
    """Programs that no package owns."""
    rows = []
    for what, paths in PROGRAMS:
        for path in paths:
            if not host.exists(path) or host.real(path).startswith("/snap/"):
                continue
            if owners.owner(path) is None:
                rows.append(_row(what, "", "unowned", path))
    return rows


def _libraries(host: Host, owners: Owners) -> list[dict[str, object]]:
    """User-space libraries of the driver, by version: the one in use must be that of the module."""
    rows = []
    for directory in LIBRARIES:
        if host.real(directory) != directory:
            continue
        for path in host.match(directory, "libnvidia-ml.so.*.*"):
            version, owner = path.rpartition(".so.")[2], owners.owner(path)
            rows.append(_row("nvidia-driver", version, "package " + owner.name if owner else "unowned", path))
    return rows


def _driver(host: Host) -> list[dict[str, object]]:
    """The loaded module, what NVIDIA's installer leaves, and modules that dkms builds for no package."""
    rows = []
    loaded = parse_module_version(host.read("/proc/driver/nvidia/version") or "")
    if loaded:
        rows.append(_row("nvidia-driver", loaded, "loaded module", "/proc/driver/nvidia/version"))
    left = [path for path in RUNFILE if host.exists(path)]
    if left:
        log = re.search(r"nvidia-installer version: (\S+)", (host.read("/var/log/nvidia-installer.log") or "")[:4096])
        rows.append(_row("nvidia-driver", log.group(1) if log else "", "runfile", left[0]))
    for path in host.match("/var/lib/dkms/nvidia", "[0-9]*"):
        version = path.rpartition("/")[2]
        rows.append(_row("nvidia-driver", version, "dkms", path))
    return rows


def _cuda_trees(host: Host) -> list[dict[str, object]]:
    rows = []
    for path in host.match("/usr/local", "cuda-[0-9]*"):
        if host.real(path) != path:
            continue
        version = path.rpartition("-")[2]
        try:
            said = json.loads(host.read(path + "/version.json") or "{}")
            version = str(said["cuda"]["version"])
        except (ValueError, KeyError, TypeError):
            pass
        rows.append(_row("cuda", version, "tree", path))
    return rows


def _condas(host: Host) -> list[dict[str, object]]:
    """Conda in the usual places and in users' homes, but not on shares."""
    homes = [] if on_share(host, "/home") else ["/home/" + name for name in host.names("/home")][:200]
    rows = []
    for top in (*CONDA_TOPS, *homes):
        if on_share(host, top):
            continue
        for name in host.names(top):
            here = top + "/" + name
            if CONDA_NAME.match(name) and host.is_dir(here + "/conda-meta") and host.real(here) == here:
                rows.append(_conda(host, here))
    return rows


def _environments(host: Host, prefix: str) -> list[dict[str, object]]:
    """The environments in use, and the lock that each was built from."""
    rows = []
    for name in environments.names(host, prefix):
        path = environments.current_path(host, prefix, name)
        marker = environments.read_marker(host, path) if path else {}
        if marker:
            version = " ".join(filter(None, (str(marker.get(key, "")) for key in ("framework", "version"))))
            rows.append(_row("environment", version, "lock %s" % marker.get("lock", ""), prefix + "/" + name))
    return rows


def _conda(host: Host, prefix: str) -> dict[str, object]:
    """Version and channel of the conda package itself: the channel tells Miniforge from Anaconda's."""
    for path in host.match(prefix + "/conda-meta", "conda-[0-9]*.json"):
        try:
            record = json.loads(host.read(path) or "{}")
            channel = str(record.get("channel", ""))
            return _row("conda", str(record.get("version", "")), conda_origin(channel), prefix)
        except (ValueError, AttributeError):
            host.note("%s: not valid JSON" % path)
    return _row("conda", "", "unowned", prefix)


def conda_origin(channel: str) -> str:
    """Whose conda it is, by the channel its own package is from; a password in the URL is left out."""
    if "conda-forge" in channel:
        return "conda-forge"
    if "repo.anaconda.com" in channel or "pkgs/main" in channel or channel == "defaults":
        return "Anaconda's channels (their terms apply)"
    return re.sub(r"//[^/@]*@", "//", channel) or "unowned"
