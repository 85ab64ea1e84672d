"""Stand-ins for what a lab may not reach: docker's and NVIDIA's repositories, Miniforge's installer and a channel.

Everything here is simulated and says so. What can be real is: the docker that is packaged runs containers, the
signatures are apt's, and environments are solved and linked by rattler.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from gpustrap.lab import state
from gpustrap.lab.standins import conda, docker, nvidia
from gpustrap.lab.standins.parts import VENDOR
from gpustrap.model.progress import Progress, Step, silent

Builder = Callable[[Path, Progress], None]
PIECES: dict[str, Builder] = {"docker": docker.build, "conda": conda.build, "nvidia": nvidia.build}
SHARED = ("parts.py", "apt_repository.py", "deb.py")


def build(directory: Path, *, base_url: str, progress: Progress = silent) -> dict[str, object]:
    """Put the stand-ins into a directory that is served at `base_url`.

    They are made once per machine (about half a minute) and linked from a cache afterwards.

    Args:
        directory: Where ``docker/``, ``conda/`` and ``nvidia/`` are put.
        base_url: The URL at which nodes see `directory`.
        progress: Told what is being done.

    Returns:
        The request variables with which a site uses them.

    Raises:
        GpustrapError: This machine lacks gpg, py-rattler or the distribution's packages.
    """
    directory.mkdir(parents=True, exist_ok=True)

    def put(name: str) -> None:
        shutil.rmtree(directory / name, ignore_errors=True)
        shutil.copytree(_cached(name, progress), directory / name, copy_function=_link)

    with state.lock("standins"), _readable(), ThreadPoolExecutor() as pool:
        list(pool.map(put, PIECES))
    url = base_url.rstrip("/")
    return {
        **docker.variables(directory / "docker", f"{url}/docker"),
        **conda.variables(directory / "conda", f"{url}/conda"),
        **nvidia.variables(directory / "nvidia", f"{url}/nvidia"),
        "gpustrap_simulated": True,
    }


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
        for old in place.glob(f"{name}-*"):
            shutil.rmtree(old)
        scratch = Path(mkdtemp(prefix=".new-", dir=place))
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
    own = [*here.glob(f"{name}*.py"), *VENDOR.glob(f"{name}*.yml"), *(here / "files").glob("*.sh")]
    sources = [*(here / shared for shared in SHARED), *own]
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
