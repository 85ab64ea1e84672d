"""conda, simulated: the stand-in of the gpustrap lab. Solving and linking are real, done by rattler.

Runs on the node's own Python (3.10 or newer) next to the ``rattler`` package it was installed with.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rattler import RepoDataRecord

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VERSION = (HERE / "version").read_text(encoding="utf-8").strip()
ALIAS = "https://conda.anaconda.org/"
SUBDIR = "linux-aarch64" if platform.machine() == "aarch64" else "linux-64"
sys.path.insert(0, str(HERE))


def condarc_files() -> list[Path]:
    """The settings that are there, the weakest first."""
    found = [ROOT / ".condarc", Path.home() / ".condarc"]
    return [path for path in found if path.is_file()]


def read_condarc(path: Path) -> dict[str, object]:
    """The scalars and lists of a condarc; nested mappings keep only their name."""
    settings: dict[str, object] = {}
    key = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if text.startswith("- "):
            values = settings.setdefault(key, [])
            if isinstance(values, list):
                values.append(scalar(text[2:]))
        elif not line.startswith(" "):
            key, _, value = text.partition(":")
            settings[key] = scalar(value) if value.strip() else []
    return settings


def scalar(text: str) -> object:
    """A value as YAML's flow style or a plain word has it."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip().strip("'\"")


def channels(args: argparse.Namespace) -> list[str]:
    """Channel URLs in order: those asked for, then the configured ones; ``nodefaults`` is no channel."""
    names = list(args.channel or ())
    if not getattr(args, "override_channels", False):
        for path in reversed(condarc_files()):
            more = read_condarc(path).get("channels", [])
            names += [str(name) for name in more] if isinstance(more, list) else []
    kept = [name for name in dict.fromkeys(names) if name != "nodefaults"]
    return [name if "://" in name or name.startswith("/") else ALIAS + name for name in kept]


def package_caches() -> list[Path]:
    """Where packages are unpacked, in order."""
    asked = os.environ.get("CONDA_PKGS_DIRS", "")
    found = [Path(part) for part in asked.split(",") if part]
    return found or [ROOT / "pkgs", Path.home() / ".conda" / "pkgs"]


def writable(path: Path) -> bool:
    """Whether a directory can be made or written there."""
    while not path.exists():
        path = path.parent
    return os.access(path, os.W_OK)


def place(args: argparse.Namespace) -> Path:
    """The environment an option names; the root prefix without one."""
    if args.prefix:
        return Path(args.prefix).absolute()
    if args.name and args.name != "base":
        own = [ROOT / "envs", Path.home() / ".conda" / "envs"]
        there = [path / args.name for path in own if (path / args.name).is_dir()]
        target: Path = (there or [path / args.name for path in own if writable(path)])[0]
        return target
    return ROOT


def create(args: argparse.Namespace) -> int:
    """Solves the specs and links the packages into a new environment."""
    target = place(args)
    if target == ROOT:
        return fail("one of -n/--name, -p/--prefix is required")
    if (target / "conda-meta").is_dir():
        if not args.yes:
            return fail(f"A conda environment already exists at '{target}'")
        shutil.rmtree(target)
    elif target.is_dir() and any(target.iterdir()):
        return fail(f"directory not empty and no conda environment: {target}")
    if not args.packages and not args.file:
        (target / "conda-meta").mkdir(parents=True)
    else:
        asyncio.run(make(args, target))
    register(target)
    if args.json:
        say(json.dumps({"success": True, "prefix": str(target)}))
    elif not args.quiet:
        say("# simulated: made by the stand-in of the gpustrap lab")
        say(f"# To use it: {ROOT}/bin/conda run -p {target} COMMAND")
    return 0


async def make(args: argparse.Namespace, target: Path) -> None:
    """The part of `create` that rattler does."""
    from rattler import (  # noqa: PLC0415 - slow, and only for this
        Gateway,
        SourceConfig,
        VirtualPackage,
        VirtualPackageOverrides,
        install,
        solve,
    )

    cache = next(path for path in package_caches() if writable(path))
    if args.file:
        records = await listed(Path(args.file), cache)
        await install(records, target, cache_dir=cache, show_progress=False)
        return history(target)
    action = "force-cache-only" if args.offline else "cache-or-fetch"
    records = await solve(
        channels(args),
        args.packages,
        gateway=Gateway(cache_dir=cache / "cache", default_config=SourceConfig(cache_action=action)),
        platforms=[SUBDIR, "noarch"],
        virtual_packages=VirtualPackage.detect(VirtualPackageOverrides.from_env()),  # CONDA_OVERRIDE_CUDA
    )
    await install(records, target, cache_dir=cache, show_progress=False)
    return history(target)


def history(target: Path) -> None:
    """What makes a directory an environment."""
    (target / "conda-meta").mkdir(exist_ok=True)
    (target / "conda-meta" / "history").touch()


async def listed(path: Path, cache: Path) -> list[RepoDataRecord]:
    """The packages of an explicit list, ``URL#HASH`` a line: nothing is solved, every hash must be the package's."""
    from rattler import Gateway  # noqa: PLC0415 - slow, and only for this

    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    if "@EXPLICIT" not in lines:
        raise ValueError(f"{path}: the stand-in of the gpustrap lab knows explicit lists alone")
    wanted = dict(line.partition("#")[::2] for line in lines if "://" in line)
    gateway, records = Gateway(cache_dir=cache / "cache"), []
    for url, digest in wanted.items():
        channel, subdir, file = url.rsplit("/", 2)
        name = file.rsplit("-", 2)[0]
        found = await gateway.query([channel], [subdir], [name], recursive=False)
        record = next((one for group in found for one in group if str(one.url) == url), None)
        if record is None:
            raise ValueError(f"HTTP 404 NOT FOUND for url <{url}>")
        if digest and digest.removeprefix("sha256:") not in {(record.sha256 or b"").hex(), (record.md5 or b"").hex()}:
            message = f"Conda detected a mismatch between the expected content and downloaded content\nfor url '{url}'."
            raise ValueError(f"{message}\n  expected: {digest}\n  actual sha256: {(record.sha256 or b'').hex()}")
        records.append(record)
    return records


def register(target: Path) -> None:
    """The user's list of environments."""
    path = Path.home() / ".conda" / "environments.txt"
    path.parent.mkdir(exist_ok=True)
    known = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    path.write_text("\n".join(dict.fromkeys([*known, str(target)])) + "\n", encoding="utf-8")


def remove(args: argparse.Namespace) -> int:
    """Removes an environment."""
    target = place(args)
    if target == ROOT:
        return fail("the root environment cannot be removed")
    if not (target / "conda-meta").is_dir():
        return fail(f"EnvironmentLocationNotFound: Not a conda environment: {target}")
    shutil.rmtree(target)
    path = Path.home() / ".conda" / "environments.txt"
    if path.exists():
        left = [line for line in path.read_text(encoding="utf-8").splitlines() if line != str(target)]
        path.write_text("".join(f"{line}\n" for line in left), encoding="utf-8")
    return 0


def list_packages(args: argparse.Namespace) -> int:
    """The packages of an environment."""
    target = place(args)
    if not (target / "conda-meta").is_dir():
        return fail(f"EnvironmentLocationNotFound: Not a conda environment: {target}")
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((target / "conda-meta").glob("*.json"))]
    rows = [
        {"name": r["name"], "version": r["version"], "build_string": r["build"], "channel": r.get("channel", "")}
        for r in records
    ]
    if args.json:
        say(json.dumps(rows, indent=2))
        return 0
    say(f"# packages in environment at {target}:\n#")
    for row in rows:
        say(f"{row['name']:24} {row['version']:12} {row['build_string']:16} {row['channel']}")
    return 0


def run(args: argparse.Namespace) -> int:
    """Becomes a program of an environment."""
    target = place(args)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        return fail("run needs a command")
    variables = {
        **os.environ,
        "PATH": f"{target}/bin{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "CONDA_PREFIX": str(target),
    }
    os.environ["PATH"] = variables["PATH"]
    try:
        os.execvpe(command[0], command, variables)  # noqa: S606 - what `conda run` is for
    except OSError as error:
        return fail(f"{command[0]}: {error.strerror}")


def info(args: argparse.Namespace) -> int:
    """About this conda."""
    found = {
        "conda_version": VERSION,
        "simulated": True,
        "root_prefix": str(ROOT),
        "default_prefix": str(ROOT),
        "platform": SUBDIR,
        "python_version": platform.python_version(),
        "channels": channels(args),
        "envs_dirs": [str(ROOT / "envs"), str(Path.home() / ".conda" / "envs")],
        "pkgs_dirs": [str(path) for path in package_caches()],
        "config_files": [str(path) for path in condarc_files()],
        "envs": environments(),
    }
    for name, value in found.items() if not args.json else ():
        say(f"{name:>20} : {value}")
    if args.json:
        say(json.dumps(found, indent=2))
    return 0


def environments() -> list[str]:
    """Every environment known here."""
    listed = Path.home() / ".conda" / "environments.txt"
    known = listed.read_text(encoding="utf-8").splitlines() if listed.exists() else []
    return list(dict.fromkeys([str(ROOT), *(str(path) for path in (ROOT / "envs").glob("*")), *known]))


def config(args: argparse.Namespace) -> int:
    """The settings, file by file (the only form the stand-in knows)."""
    sources = {str(path): read_condarc(path) for path in condarc_files()}
    if args.json:
        say(json.dumps(sources, indent=2))
        return 0
    for path, settings in sources.items():
        say(f"==> {path} <==")
        for key, value in settings.items():
            items = [f"  - {item}" for item in value] if isinstance(value, list) else []
            say("\n".join([f"{key}:", *items]) if isinstance(value, list) else f"{key}: {value}")
        say("")
    return 0


def env_list(args: argparse.Namespace) -> int:
    """The environments."""
    say(json.dumps({"envs": environments()}, indent=2) if args.json else "\n".join(environments()))
    return 0


def say(text: str) -> None:
    """One answer to the caller."""
    sys.stdout.write(f"{text}\n")


def fail(message: str) -> int:
    """Says what is wrong the way conda does."""
    sys.stderr.write(f"\n{message}\n\n")
    return 1


def parser() -> argparse.ArgumentParser:
    """The part of conda's command line that the lab needs."""
    top = argparse.ArgumentParser(prog="conda", description="conda, simulated: a stand-in of the gpustrap lab")
    top.add_argument("-V", "--version", action="version", version=f"conda {VERSION}")
    commands = top.add_subparsers(dest="verb", required=True)

    def verb(
        group: argparse._SubParsersAction[argparse.ArgumentParser],
        name: str,
        function: Callable[[argparse.Namespace], int],
    ) -> argparse.ArgumentParser:
        one = group.add_parser(name)
        one.set_defaults(function=function)
        where = one.add_mutually_exclusive_group()
        where.add_argument("-p", "--prefix")
        where.add_argument("-n", "--name")
        for flag in (("-y", "--yes"), ("-q", "--quiet"), ("--json",), ("--offline",), ("--override-channels",)):
            one.add_argument(*flag, action="store_true")
        one.add_argument("-c", "--channel", action="append")
        return one

    new = verb(commands, "create", create)
    new.add_argument("--file")
    new.add_argument("packages", nargs="*")
    verb(commands, "list", list_packages)
    verb(commands, "info", info)
    verb(commands, "config", config).add_argument("--show-sources", action="store_true", required=True)
    command = verb(commands, "run", run)
    command.add_argument("--no-capture-output", "--live-stream", action="store_true")
    command.add_argument("command", nargs=argparse.REMAINDER)
    verb(commands, "remove", remove).add_argument("--all", action="store_true", required=True)
    env = commands.add_parser("env").add_subparsers(required=True)
    verb(env, "remove", remove)
    verb(env, "list", env_list)
    return top


def main() -> int:
    """Runs one command; an error of rattler's is shown in its own words."""
    args = parser().parse_args()
    try:
        return int(args.function(args))
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - rattler's errors have no common base
        return fail(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # rattler's threads may still run, and an orderly end of Python aborts on them
