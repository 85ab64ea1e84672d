"""Which GPUs somebody means: by PCI id, by a line of lspci, or by name as people spell it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import accumulate

from gpustrap.catalog.schema import Catalog
from gpustrap.catalog.schema_gpu import Gpu
from gpustrap.catalog.topics import TOPICS
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.report.catalog_text import either
from gpustrap.resolve.gpu.boards import NVIDIA

_PAIR = re.compile(r"(?<![0-9a-f:.])([0-9a-f]{4}):([0-9a-f]{4})(?![0-9a-f:.])")  # and no address, 0000:01:00.0
_BARE = re.compile(r"(0x)?([0-9a-f]{4})")
_WORD = re.compile(r"[a-z0-9]+")
_MAKER = {"nvidia", "corporation"}
_LIST = "gpustrap catalog show gpus"

Meant = tuple[str, Gpu | None]
"""A device id, and its board; none where only the range of the id is known."""


def meant(catalog: Catalog, text: str) -> tuple[Meant, ...]:
    """The GPUs that are meant; several where an id is shared, a name fits several, or several are named.

    Args:
        catalog: What is known.
        text: Ids as ``10de:2204``, ``[10de:2204]``, ``0x2204`` or ``2204``; lines of ``lspci -nn``; or a name.
            Digits that are both, such as 3090, are an id only where a board has it.

    Raises:
        GpustrapError: No board and no range of ids fits.
    """
    text = text.strip().lower()
    if text == NVIDIA:
        message = "this is NVIDIA itself, the vendor; a GPU has an id behind it, as in 10de:2204"
        raise GpustrapError(Problem("gpu-unknown", text, message, ExitCode.USAGE, remedy="lspci -nn -d 10de:"))
    if pairs := _PAIR.findall(text):
        devices = [device for vendor, device in pairs if vendor == NVIDIA]
        if not devices:
            message = f"only NVIDIA's GPUs, {NVIDIA}:XXXX, are in the catalog"
            raise GpustrapError(Problem("gpu-unknown", text, message, ExitCode.REFUSED, remedy=_LIST))
        return tuple(found for device in devices for found in _by_id(catalog, device))
    each = [_one(catalog, word) for word in text.split()]
    if each and all(_BARE.fullmatch(word) for word in text.split()) and all(each):
        return tuple(found for some in each for found in some)
    whole = _by_name(catalog, text)
    if whole or (each and all(each)):
        return whole or tuple(found for some in each for found in some)
    raise GpustrapError(_no_such_name(catalog, text))


def also(catalog: Catalog, text: str, found: Sequence[Gpu | None]) -> tuple[str, ...]:
    """Names that hold the same words and more, such as RTX 3090 Ti beside RTX 3090: somebody may have meant them."""
    asked = _asked(text.lower())
    rest = [board for board in catalog.gpus if board not in found]
    return tuple(board.name for board in rest if asked and all(_holds(board.name, word) for word in asked))


def _one(catalog: Catalog, word: str) -> tuple[Meant, ...]:
    """What one word alone may mean."""
    bare = _BARE.fullmatch(word)
    if bare and (bare[1] or catalog.boards(bare[2])):
        return tuple(_by_id(catalog, bare[2]))
    named = _by_name(catalog, word)
    return named if named or not bare else tuple(_by_id(catalog, bare[2]))


def _by_id(catalog: Catalog, device: str) -> Iterator[Meant]:
    boards = catalog.boards(device)
    if not boards and catalog.id_range(device) is None:
        message = "it lies in no range of ids that this gpustrap knows, so nothing can be said about it"
        remedy = "take a newer gpustrap; what this one has: gpustrap catalog show gpus"
        raise GpustrapError(Problem("gpu-unknown", f"{NVIDIA}:{device}", message, ExitCode.REFUSED, remedy=remedy))
    yield from ((device, board) for board in boards)
    if not boards:
        yield device, None


def _by_name(catalog: Catalog, text: str) -> tuple[Meant, ...]:
    """Boards that are called so, whatever stands before it, as GeForce RTX 3090 is RTX 3090; else those that have it.

    Without a number it is no model: RTX are all that have it, and not only TITAN RTX.
    """
    words = _asked(text)
    having = [board for board in catalog.gpus if words and all(_holds(board.name, word) for word in words)]
    squeezed = "".join(words)
    called = [board for board in having if _spelt(board.name)[0].endswith(squeezed) and re.search(r"\d", squeezed)]
    return tuple((board.ids[0], board) for board in called or having)


def _asked(text: str) -> list[str]:
    return [word for word in _WORD.findall(text) if word not in _MAKER]


def _spelt(name: str) -> tuple[str, frozenset[int]]:
    """A name without spaces, and where its words begin and end: GTX 1080 Ti is also GTX 1080Ti and gtx1080ti."""
    words = _WORD.findall(name.lower())
    return "".join(words), frozenset(accumulate(map(len, words), initial=0))


def _holds(name: str, word: str) -> bool:
    squeezed, ends = _spelt(name)
    return any(squeezed.startswith(word, start) and start + len(word) in ends for start in ends)


def _no_such_name(catalog: Catalog, text: str) -> Problem:
    names = (*TOPICS, *(g.name for g in catalog.gpus), *(g.name.removeprefix("GeForce ") for g in catalog.gpus))
    known = {name.lower(): name for name in names}
    near = [known[name] for name in get_close_matches(text, known, n=3)]
    hint = f"; did you mean {either(near)}?" if near else ""
    message = f"neither a topic nor the PCI id or name of a GPU{hint}"
    evidence = f"topics: {', '.join(TOPICS)}"
    remedy = f"gpustrap catalog show {near[0]}" if near else _LIST
    return Problem("gpu-unknown", text, message, ExitCode.USAGE, evidence, remedy)
