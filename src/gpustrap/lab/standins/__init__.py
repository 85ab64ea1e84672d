"""Stand-ins for what a lab may not reach: docker's and NVIDIA's repositories, conda's and Python's packages.

Everything here is simulated and says so. What can be real is: the docker that is packaged runs containers, the
signatures are apt's, environments are solved and linked by rattler, and uv is uv. Frameworks calculate, in Python, on
simulated GPUs.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from gpustrap.lab import state
from gpustrap.lab.standins import conda, docker, faults, frameworks, frameworks_faults, nvidia
from gpustrap.lab.standins.parts import VENDOR, refusal
from gpustrap.model.progress import Progress, Step, silent

Builder = Callable[[Path, Progress], None]
PIECES: dict[str, Builder] = {
    "docker": docker.build,
    "conda": conda.build,
    "nvidia": nvidia.build,
    "pypi": frameworks.build_pypi,
    "pytorch": frameworks.build_pytorch,
}
INDEXES = ("pypi", "pytorch")
SPOILED = ("nvidia", *INDEXES)  # what faults can be put into
SHARED = ("parts.py", "apt_repository.py", "deb.py")


def build(directory: Path, *, base_url: str, progress: Progress = silent) -> dict[str, object]:
    """Put the stand-ins into a directory that is served at `base_url`.

    They are made once per machine (about half a minute) and linked from a cache afterwards.

    Args:
        directory: Where ``docker/``, ``conda/``, ``nvidia/``, ``pypi/`` and ``pytorch/`` are put.
        base_url: The URL at which nodes see `directory`.
        progress: Told what is being done.

    Returns:
        The request variables with which a site uses them.

    Raises:
        GpustrapError: This machine lacks gpg, py-rattler or the distribution's packages.
    """
    directory.mkdir(parents=True, exist_ok=True)

    def put(name: str) -> None:
        made = _cached(name, progress)
        _put(made, directory / name, ".*")  # what is hidden is not served
        if name in SPOILED:
            _put(made, sound(directory, name))
            _list(directory).unlink(missing_ok=True)

    with state.lock("standins"), _readable(), ThreadPoolExecutor() as pool:
        list(pool.map(put, PIECES))
    url = base_url.rstrip("/")
    return {
        **docker.variables(directory / "docker", f"{url}/docker"),
        **conda.variables(directory / "conda", f"{url}/conda"),
        **nvidia.variables(directory / "nvidia", f"{url}/nvidia"),
        **frameworks.variables(url),
        "gpustrap_simulated": True,
    }


def sound(directory: Path, name: str = "nvidia") -> Path:
    """Where a piece is kept as it was made, with its keys: what faults are made from."""
    return directory.with_name(f"{directory.name}-sound") / name


def spoil(directory: Path, names: Sequence[str], texts: Sequence[str]) -> None:
    """Let NVIDIA's repositories or the package indexes have faults; without any, heal them.

    Args:
        directory: What `build` was given; its nodes see the change with their next request.
        names: Of repositories and indexes. Where there is none, all are healed, or NVIDIA's all have the faults.
        texts: The faults, ``KIND=VALUE``; see `gpustrap.lab.standins.faults` and `frameworks_faults`. Those that a
            repository had before are gone.

    Raises:
        GpustrapError: There is no such repository, fault or package.
    """
    known = faulty(directory)
    indexes = [name for name in names if name in INDEXES] if names or texts else list(INDEXES)
    others = [name for name in names if name not in INDEXES]
    with _readable():
        for name in indexes:
            frameworks_faults.apply(sound(directory, name), directory / name, texts)
        if others or not names:
            repositories, wrong = faults.chosen(others), faults.parse(texts)
            faults.apply(sound(directory), directory / "nvidia", repositories, wrong)
            indexes += [one.name for one in repositories]
    state.write(_list(directory), json.dumps(known | {name: list(texts) for name in indexes}, indent=1) + "\n")


def faulty(directory: Path) -> dict[str, list[str]]:
    """Name of each repository and index -> its faults.

    Raises:
        GpustrapError: No stand-ins are served from there.
    """
    if not sound(directory).is_dir():
        message = "the lab serves no stand-ins"
        raise refusal(message, remedy="gpustrap lab up --standins --site DIR", code="standins-not-served")
    listed = json.loads(_list(directory).read_text(encoding="utf-8")) if _list(directory).exists() else {}
    return {name: listed.get(name, []) for name in (*(one.name for one in faults.chosen(())), *INDEXES)}


def _list(directory: Path) -> Path:
    return sound(directory).with_name("faults.json")


def _put(made: Path, place: Path, *left_out: str) -> None:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(made, place, ignore=shutil.ignore_patterns(*left_out), copy_function=_link)


@contextmanager
def _readable() -> Iterator[None]:
    """What is in a package must be readable by all; the program's own umask keeps everybody out."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def _cached(name: str, progress: Progress) -> Path:
    """A piece, made if what it is made from has changed."""
    place = state.root() / ".standins"
    state.make_directory(place)
    target = place / f"{name}-{_recipe(name)}"
    if not target.exists():
        progress(Step("", f"making the stand-in for {name} (simulated); only the first time"))
        for old in (*place.glob(f"{name}-*"), *place.glob(f".new-{name}-*")):  # the latter of one that was killed
            shutil.rmtree(old)
        scratch = Path(mkdtemp(prefix=f".new-{name}-", dir=place))
        try:
            PIECES[name](scratch, progress)
            scratch.chmod(0o755)
            scratch.rename(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return target


def _recipe(name: str) -> str:
    """A digest of everything of ours that a piece is made from."""
    here = Path(__file__).parent
    start = "frameworks" if name in INDEXES else name
    own = [*here.glob(f"{start}*.py"), *VENDOR.glob(f"{start}*.yml")]
    own += [] if name in INDEXES else (here / "files").rglob("*")
    if name in (*INDEXES, "conda"):  # conda's channel has PyTorch, too
        own += [here / "frameworks_data.py", *(here / "simulated").rglob("*.py")]
    sources = [path for path in (*(here / shared for shared in SHARED), *own) if path.is_file()]
    digest = hashlib.sha256()
    for path in sorted(sources):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
    return target
