"""nvidia-ctk, simulated: the stand-in of the gpustrap lab. The part of its command line that nodes use.

Runs on the node's own Python (3.10 or newer), by itself. Options, messages and the shape of the specification are those
of NVIDIA/nvidia-container-toolkit (cmd/nvidia-ctk); what it describes are simulated GPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

VERSION = "@version@"
STATE = Path("/run/lab-gpu/state")
PROC = Path("/proc/driver/nvidia/version")
DEVICES = Path("/dev")
LIBRARIES = Path("/usr/lib")
SPECS = (Path("/etc/cdi"), Path("/var/run/cdi"))
CONFIG = Path("/etc/nvidia-container-runtime/config.toml")
OUTPUT = "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH"
CONTROL = ("nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidiactl")
# Containers get this device under the names of the GPUs': the real numbers would reach this machine's own GPUs, and the
# rules for devices of a lab node do not allow them.
HARMLESS = "/dev/null"
DEFAULT_CONFIG = """\
#accept-nvidia-visible-devices-as-volume-mounts = false
disable-require = false
supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"

[nvidia-container-cli]
environment = []
ldconfig = "@/sbin/ldconfig"
load-kmods = true
#no-cgroups = false
#user = "root:video"

[nvidia-container-runtime]
log-level = "info"
mode = "auto"
runtimes = ["runc", "crun"]

[nvidia-ctk]
path = "nvidia-ctk"
"""
CONTAINERD = Path("/etc/containerd")
DROP_IN = """\
# simulated: stand-in of the gpustrap lab
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = {cdi}
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
      BinaryName = "/usr/bin/nvidia-container-runtime"
"""
OPTIONS = "[ro, nosuid, nodev, rbind]"


def log(level: str, words: str) -> None:
    """What the real one says on stderr, without the time."""
    sys.stderr.write(f'level={level} msg="{words}"\n')


def fail(words: str) -> SystemExit:
    """End as the real one does."""
    log("error", words)
    return SystemExit(1)


def driver() -> tuple[str, list[tuple[str, str]]]:
    """The loaded module's version, and the GPUs as (index, UUID)."""
    text = PROC.read_text(encoding="ascii") if PROC.exists() else ""
    found = re.search(r"Kernel Module(?: for \S+)?\s+([\d.]+)", text)
    if not list(LIBRARIES.glob("*/libnvidia-ml.so.1")):
        raise fail("failed to generate CDI spec: failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND")
    if not found:
        words = (
            "failed to create device CDI specs: failed to construct device spec generators: failed to initialize NVML"
        )
        raise fail(f"failed to generate CDI spec: {words}: Driver Not Loaded")
    gpus = re.findall(r"^(\d+)\.uuid=(\S+)$", STATE.read_text(encoding="ascii"), re.MULTILINE)
    return found.group(1), gpus


def nodes(gpus: Sequence[tuple[str, str]]) -> None:
    """The device files, made where they are missing, as NVML has nvidia-modprobe do it."""
    for name in (*CONTROL, *(f"nvidia{index}" for index, _uuid in gpus)):
        path = DEVICES / name
        if not path.exists():
            os.mknod(path, 0o666 | stat.S_IFCHR, Path(HARMLESS).stat().st_rdev)
            path.chmod(0o666)


def _node(name: str, indent: str) -> str:
    return f"{indent}- path: /dev/{name}\n{indent}  hostPath: {HARMLESS}"


def spec() -> str:
    """The specification of all GPUs: by index, by UUID, and all."""
    version, gpus = driver()
    nodes(gpus)
    patterns = ("libcuda.so.*", "libnvidia-ml.so.*")
    libraries = sorted(str(path) for pattern in patterns for path in LIBRARIES.glob(f"*/{pattern}"))
    lines = ["---", f"# simulated: stand-in of the gpustrap lab, driver {version}", "cdiVersion: 0.7.0"]
    lines += ["containerEdits:", "  deviceNodes:", *(_node(name, "  ") for name in CONTROL)]
    lines += ["  env:", "  - NVIDIA_VISIBLE_DEVICES=void", "  mounts:"]
    for path in ("/usr/bin/nvidia-smi", *libraries, str(STATE.parent)):
        lines += [f"  - containerPath: {path}", f"    hostPath: {path}", f"    options: {OPTIONS}"]
    lines.append("devices:")
    every = [f"nvidia{index}" for index, _uuid in gpus]
    names = [index for index, _uuid in gpus], [uuid for _index, uuid in gpus]
    for name, paths in [*((n, [p]) for kind in names for n, p in zip(kind, every, strict=True)), ("all", every)]:
        lines += ["- containerEdits:", "    deviceNodes:", *(_node(path, "    ") for path in paths)]
        lines.append(f'  name: "{name}"')
    return "\n".join([*lines, "kind: nvidia.com/gpu", ""])


def cdi_generate(words: Sequence[str]) -> None:
    """``nvidia-ctk cdi generate [--output=PATH]``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", default=os.environ.get(OUTPUT, ""))
    target = parser.parse_args(words).output
    log("info", "simulated: stand-in of the gpustrap lab")
    text = spec()
    if not target:
        sys.stdout.write(text)
        return
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(text, encoding="ascii")
    new.chmod(0o644)
    new.rename(path)
    log("info", "Generated CDI spec with version 0.7.0")


def cdi_list(_words: Sequence[str]) -> None:
    """``nvidia-ctk cdi list``."""
    found: set[str] = set()
    for path in (path for directory in SPECS for path in sorted(directory.glob("*.yaml"))):
        text = path.read_text(encoding="utf-8")
        kind = re.search(r"^kind: (\S+)$", text, re.MULTILINE)
        names = re.findall(r'^\s*(?:- )?name: "?([^"\s]+)"?$', text, re.MULTILINE)
        found |= {f"{kind.group(1)}={name}" for name in names} if kind else set()
    log("info", f"Found {len(found)} CDI devices")
    sys.stdout.write("".join(f"{name}\n" for name in sorted(found)))


def dev_char(words: Sequence[str]) -> None:
    """``nvidia-ctk system create-dev-char-symlinks [--create-all] [--dry-run]``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--create-all", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    chosen = parser.parse_args(words)
    if chosen.create_all:
        nodes(driver()[1])
    links = DEVICES / "char"
    links.mkdir(exist_ok=True)
    for path in sorted(DEVICES.glob("nvidia*")):
        device = path.stat().st_rdev
        link = links / f"{os.major(device)}:{os.minor(device)}"
        log("info", f"Creating link {link} => {path}")
        try:
            if not chosen.dry_run:
                link.symlink_to(path)
        except FileExistsError:
            log("warning", f"Could not create symlink: symlink {path} {link}: file exists")


def set_key(text: str, key: str, value: str) -> str:
    """One key of a table set, every other line as it was."""
    table, _dot, name = key.rpartition(".")
    line = f"{name} = {value if value in ('true', 'false') else json.dumps(value)}"
    pattern = re.compile(rf"^(\[{re.escape(table)}\]\n(?:(?!\[).*\n)*?)#?\s*{re.escape(name)}\s*=.*$", re.MULTILINE)
    if pattern.search(text):
        return pattern.sub(lambda found: found.group(1) + line, text, count=1)
    head = f"[{table}]\n"
    return text.replace(head, f"{head}{line}\n", 1) if head in text else f"{text}\n{head}{line}\n"


def config(words: Sequence[str]) -> None:
    """``nvidia-ctk config [--config-file=PATH] [--set KEY=VALUE]… [--in-place]``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config-file", "--config", "-c", type=Path, default=CONFIG)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--in-place", "-i", action="store_true")
    chosen = parser.parse_args(words)
    there = chosen.config_file.exists()
    text = chosen.config_file.read_text(encoding="utf-8") if there else DEFAULT_CONFIG
    for one in chosen.set:
        key, _equals, value = one.partition("=")
        text = set_key(text, key, value or "true")
    if not chosen.in_place:
        sys.stdout.write(text)
        return
    chosen.config_file.parent.mkdir(parents=True, exist_ok=True)
    chosen.config_file.write_text(text, encoding="utf-8")


def runtime_configure(words: Sequence[str]) -> None:
    """``nvidia-ctk runtime configure --runtime=containerd [--config=PATH] [--drop-in-config=PATH] [--cdi.enabled]``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runtime", default="docker")
    parser.add_argument("--config", type=Path, default=CONTAINERD / "config.toml")
    parser.add_argument("--drop-in-config", type=Path, default=CONTAINERD / "conf.d/99-nvidia.toml")
    parser.add_argument("--cdi.enabled", action="store_true", dest="cdi")
    chosen = parser.parse_args(words)
    if chosen.runtime != "containerd":
        raise fail(f"simulated: this stand-in does not know runtime {chosen.runtime}")
    text = chosen.config.read_text(encoding="utf-8") if chosen.config.exists() else "version = 2\n"
    if "imports" not in text:
        chosen.config.write_text(f'imports = ["{chosen.drop_in_config.parent}/*.toml"]\n{text}', encoding="utf-8")
    chosen.drop_in_config.parent.mkdir(parents=True, exist_ok=True)
    chosen.drop_in_config.write_text(DROP_IN.format(cdi="true" if chosen.cdi else "false"), encoding="utf-8")
    log("info", f"Wrote updated config to {chosen.drop_in_config}")


VERBS = {
    ("runtime", "configure"): runtime_configure,
    ("cdi", "generate"): cdi_generate,
    ("cdi", "list"): cdi_list,
    ("system", "create-dev-char-symlinks"): dev_char,
}


def main(words: Sequence[str]) -> None:
    """Answer one call."""
    words = [word for word in words if word not in ("--quiet", "-q", "--debug", "-d")]
    verb = tuple(words[:2])
    if words[:1] == ["--version"]:
        sys.stdout.write(f"NVIDIA Container Toolkit CLI version {VERSION} (simulated)\n")
    elif words[:1] == ["config"]:
        config(words[1:])
    elif verb in VERBS:
        VERBS[verb[0], verb[1]](words[2:])
    else:
        raise fail(f"simulated: this stand-in does not know nvidia-ctk {' '.join(verb)}")


if __name__ == "__main__":
    main(sys.argv[1:])
