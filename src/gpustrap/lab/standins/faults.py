"""What can be wrong with a repository, put into one that a lab serves while its nodes run.

A faulty repository is made from the sound one beside it: packages are linked, only indexes and what the fault is about
are made anew. Signatures are real, so apt says what it says about the real thing.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import get_args

from gpustrap.lab import state
from gpustrap.lab.standins import nvidia_keys as keys
from gpustrap.lab.standins.apt_repository import Key
from gpustrap.lab.standins.nvidia import INDEX, INDEX_FILES, kept_key, write_indexes
from gpustrap.lab.standins.nvidia_data import Repository, all_repositories
from gpustrap.lab.standins.parts import refusal, write

DAY = 86_400
KEY_FAULTS: tuple[keys.KeyFault, ...] = tuple(name for name in get_args(keys.KeyFault) if name)
FORMS = f"key={'|'.join(KEY_FAULTS)}, wrong-sum=PACKAGE, vanished=PACKAGE[=VERSION] or future=DAYS"


@dataclass(frozen=True, slots=True)
class Faults:
    """What is wrong with a repository.

    Attributes:
        key: ``expired``: it was valid when it signed. ``rotated``: another one signs, and is published, than sites were
            told. ``sha1``: its self-signature is SHA-1, as that of 3bf863cc is. ``sha1-signature``: the indexes'.
        wrong_sums: Packages whose checksum in the index is not theirs; ``Packages`` for the index itself.
        vanished: Versions that are gone, ``name=version`` or ``name`` for all of them.
        future: Days by which the date of Release is ahead.
    """

    key: keys.KeyFault = ""
    wrong_sums: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()
    future: int = 0


NONE = Faults()


def parse(texts: Sequence[str]) -> Faults:
    """Read ``KIND=VALUE`` words.

    Raises:
        GpustrapError: One is none.
    """
    found = NONE
    for text in texts:
        kind, _, value = text.partition("=")
        if kind == "key" and (fault := next((one for one in KEY_FAULTS if one == value), None)):
            found = replace(found, key=fault)
        elif kind == "wrong-sum" and value:
            found = replace(found, wrong_sums=(*found.wrong_sums, value))
        elif kind == "vanished" and value:
            found = replace(found, vanished=(*found.vanished, value))
        elif kind == "future" and value.isdecimal():
            found = replace(found, future=int(value))
        else:
            raise refusal(f"{text!r} is no fault", remedy=f"give one of {FORMS}", code="standins-no-such-fault")
    return found


def chosen(names: Sequence[str]) -> tuple[Repository, ...]:
    """The repositories of these names; all without any.

    Raises:
        GpustrapError: There is none of a name.
    """
    known = all_repositories()
    for name in names:
        if name not in known:
            words = f"give one of {', '.join(known)}"
            raise refusal(f"there is no repository {name}", remedy=words, code="standins-no-such-fault")
    return tuple(known[name] for name in names or known)


def apply(sound: Path, served: Path, repositories: Sequence[Repository], faults: Faults = NONE) -> None:
    """Serve these repositories with these faults and no others; without any, sound.

    Args:
        sound: What `nvidia.build` made, with its keys.
        served: What nodes see; each repository is replaced in one step.
        repositories: Which.
        faults: What shall be wrong with them.

    Raises:
        GpustrapError: None of them has a package that is to be wrong.
    """
    read = {one.name: _stanzas(sound / one.place) for one in repositories}
    there = {key for stanzas in read.values() for one in stanzas for key in (one.name, f"{one.name}={one.version}")}
    for name in (*(name for name in faults.wrong_sums if name != INDEX), *faults.vanished):
        if name not in there:
            raise refusal(f"no such package in {', '.join(read)}: {name}", code="standins-no-such-fault")
    with state.scratch() as scratch:
        for one in repositories:
            with keys.kept(kept_key(sound, one), scratch / one.name, faults.key) as key:
                _replace(sound, served, one, _Made(read[one.name], key, faults))


@dataclass(frozen=True, slots=True)
class _Stanza:
    text: str
    name: str
    version: str
    file: str


@dataclass(frozen=True, slots=True)
class _Made:
    stanzas: tuple[_Stanza, ...]
    key: Key = field(repr=False)
    faults: Faults = NONE


def _stanzas(root: Path) -> tuple[_Stanza, ...]:
    found = []
    for text in (root / INDEX).read_text(encoding="utf-8").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line and not line.startswith(" "))
        name = fields["Filename"].removeprefix("./")
        found.append(_Stanza(f"{text.rstrip()}\n", fields["Package"], fields["Version"], name))
    return tuple(found)


def _replace(sound: Path, served: Path, repository: Repository, made: _Made) -> None:
    """Make the repository beside the one that is served, then exchange them."""
    place = served / repository.place
    place.parent.mkdir(parents=True, exist_ok=True)
    new = Path(mkdtemp(prefix=".new-", dir=place.parent))
    try:
        new.chmod(0o755)
        _fill(new, sound / repository.place, repository, made)
        old = new.with_name(f"{new.name}-old")
        if place.exists():
            place.rename(old)
        new.rename(place)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    key = served / repository.key_place
    scratch = key.with_name(f".{key.name}.new")
    write(scratch, made.key.public)  # never into the file itself: it may be a link of the sound one
    scratch.replace(key)


def _fill(new: Path, old: Path, repository: Repository, made: _Made) -> None:
    faults = made.faults
    left = [one for one in made.stanzas if not {one.name, f"{one.name}={one.version}"}.intersection(faults.vanished)]
    kept = {one.file for one in left}
    gone = {one.file for one in made.stanzas} - kept
    for path in old.iterdir():
        if path.name not in gone and path.name not in INDEX_FILES and path.name != repository.key:
            os.link(path, new / path.name)
    moment = time.time() + faults.future * DAY
    write_indexes(new, repository, [one.text for one in left], made.key, moment, lie=INDEX in faults.wrong_sums)
    for path in (new / one.file for one in left if one.name in faults.wrong_sums):
        data = path.read_bytes()
        path.unlink()
        write(path, data[:-1] + bytes([data[-1] ^ 1]))
