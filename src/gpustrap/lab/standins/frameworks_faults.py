"""What can be wrong with a package index that a lab serves while its nodes run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

from gpustrap.lab.standins.frameworks_index import normal, pages
from gpustrap.lab.standins.parts import refusal, write

FORMS = "index=gone, wrong-sum=PACKAGE[=VERSION] or vanished=PACKAGE[=VERSION]"
GONE = ".gone"  # the lab's web server answers 503 then


def apply(sound: Path, served: Path, texts: Sequence[str]) -> None:
    """Serve an index with these faults and no others; without any, sound.

    Args:
        sound: As it was made.
        served: What nodes see; replaced in one step.
        texts: ``index=gone``: it does not answer. ``wrong-sum=…``: a file is another than its hash says.
            ``vanished=…``: it is gone, as a release that was deleted.

    Raises:
        GpustrapError: There is no such fault or package.
    """
    new = Path(mkdtemp(prefix=".new-", dir=served.parent))
    try:
        shutil.copytree(sound, new, copy_function=os.link, dirs_exist_ok=True)
        new.chmod(0o755)
        for text in texts:
            _spoil(new, *text.split("=", 1) if "=" in text else (text, ""))
        old = new.with_name(f"{new.name}-old")
        if served.exists():
            served.rename(old)
        new.rename(served)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _spoil(place: Path, kind: str, value: str) -> None:
    if (kind, value) == ("index", "gone"):
        write(place / GONE, "")
    elif kind == "wrong-sum" and value:
        for path in _files(place, value):
            data = path.read_bytes()
            _replace(path, data[:-1] + bytes([data[-1] ^ 1]))  # the page was made from the sound one
    elif kind == "vanished" and value:
        files = _files(place, value)
        for path in files:
            path.unlink()
            path.with_name(f"{path.name}.metadata").unlink(missing_ok=True)
        for index in {path.parent.parent for path in files}:
            for page in index.rglob("index.*"):
                page.unlink()  # a link of the sound one
            pages(index)
    else:
        text = f"{kind}={value}" if value else kind
        raise refusal(f"{text!r} is no fault", remedy=f"give one of {FORMS}", code="standins-no-such-fault")


def _files(place: Path, wanted: str) -> list[Path]:
    """The files of a package, or of one release of it, in every index that is there."""
    name, _, version = wanted.partition("=")
    found = [path for path in place.rglob(f"{normal(name)}/*") if path.suffix in {".whl", ".gz"}]
    found = [path for path in found if not version or path.name.split("-")[1].removesuffix(".tar.gz") == version]
    if not found:
        raise refusal(f"no such package in the index: {wanted}", code="standins-no-such-fault")
    return found


def _replace(path: Path, data: bytes) -> None:
    path.unlink()  # a link of the sound one
    write(path, data)
