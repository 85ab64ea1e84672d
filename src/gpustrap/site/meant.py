"""What somebody meant who wrote a name or a value that is none: an order only where it is surely a good one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from gpustrap.model.request import Form, Request, Written
from gpustrap.model.roles import PENDING_ROLES, ROLES

PREFIX = "gpustrap_"
NEAR = 0.8  # below, names of quite other meanings are alike: cuda and cudnn, secure_boot and pcie_width
VENDOR = "nvidia_"
RENAMED = {"frameworks": "environments"}  # what an older gpustrap called a variable
SHORTEST = 3  # letters of a name that a longer one can have been meant by


@dataclass(frozen=True, slots=True)
class Meant:
    """A variable that may have been meant.

    Attributes:
        variable: With its prefix.
        value: What to write there, where it was the name that said it: of ``gpustrap_torch``, ``[torch]``.
    """

    variable: str
    value: str = ""


def closest(name: str, names: Iterable[str], *, cutoff: float = 0.6) -> str:
    """What somebody who wrote a name may have meant; empty where nothing is near."""
    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)), "")


def variable_meant(name: str, value: object = None) -> Meant | None:
    """The variable that may have been meant by one that there is not.

    Args:
        name: With its prefix or without.
        value: What was to be set; of several that begin alike, it tells which.
    """
    bare = name.removeprefix(PREFIX).lower().replace("-", "_")
    near = RENAMED.get(closest(bare, RENAMED, cutoff=NEAR), "") or _alike(bare) or wish_behind(bare)
    words = {word: field for field in Request.model_fields for word in _words(field)}
    if bare in words and not near:
        return _by_word(words[bare], bare)
    stem = bare.removesuffix("s")
    longer = [field for field in Request.model_fields if field.startswith(stem)] if len(stem) >= SHORTEST else []
    if longer and not near.startswith(stem):
        near = next((field for field in longer if takes(field, value)), longer[0])
    if near:
        return Meant(PREFIX + near)
    word = closest(bare, words, cutoff=NEAR)
    if word:
        return _by_word(words[word], word)
    return variable_meant(bare.removeprefix(VENDOR), value) if bare.startswith(VENDOR) else None


def _by_word(field: str, word: str) -> Meant:
    return Meant(PREFIX + field, f"[{word}]" if is_list(field) else word)


def _alike(bare: str) -> str:
    """The field that is spelt almost so: one that begins with the same word, where any does."""
    fields = list(Request.model_fields)
    same = [field for field in fields if field.replace("_", "") == bare.replace("_", "")]
    family = [field for field in fields if field.partition("_")[0] == bare.partition("_")[0]]
    return next(iter(same), "") or closest(bare, family or fields, cutoff=NEAR)


def wish_behind(name: str) -> str:
    """The field behind a role's variable: nvidia_driver_branch -> driver_branch; empty where none is near."""
    role = next((role for role in (*ROLES, *PENDING_ROLES) if name.startswith(f"{role}_")), "")
    if not role:
        return ""
    rest, fields = name.removeprefix(f"{role}_"), Request.model_fields
    starts = [word for word in role.split("_") if any(field.startswith(f"{word}_") for field in fields)]
    # No word of ubuntu_server begins a variable: its own are the plain ones.
    guesses = [rest if rest == start else f"{start}_{rest}" for start in starts] or [rest]
    alike = [field for field in fields if not starts or field.startswith(tuple(f"{start}_" for start in starts))]
    return next((g for g in guesses if g in fields), "") or closest(guesses[-1], alike, cutoff=NEAR)


def taker(field: str, value: object) -> str:
    """The variable that takes a value that this one does not: of ``driver_branch`` and 580.178.04, the version's."""
    family = field.partition("_")[0]
    others = [name for name in Request.model_fields if name.startswith(f"{family}_") and name != field]
    return next((PREFIX + name for name in others if takes(name, value)), "")


def takes(field: str, value: object) -> bool:
    """Whether a variable that does not take just any text takes this value."""
    if value is None or not (_words(field) or form_of(field)):
        return False
    try:
        Request.model_validate({field: value})
    except ValidationError:
        return False
    return True


def form_of(field: str) -> Form | None:
    """What the pattern of a variable asks for; None where it has none."""
    info = Request.model_fields.get(field)
    return next((m for m in info.metadata if isinstance(m, Form)), None) if info else None


def is_list(field: str) -> bool:
    """Whether a variable is a list."""
    return get_origin(Request.model_fields[field].annotation) is tuple


def as_yaml(value: Any) -> str:  # noqa: ANN401 - whatever is to be text
    """A text as YAML has it, in quotes only where it would be something else without."""
    text = str(value)
    try:
        plain = yaml.safe_load(f"- {text}") == [text]
    except yaml.YAMLError:
        plain = False
    return text if plain else f'"{text}"'


def _words(field: str) -> tuple[str, ...]:
    """The words that only this variable knows."""
    mine = _choices(Request.model_fields[field])
    others = {word for name, info in Request.model_fields.items() if name != field for word in _choices(info)}
    return tuple(word for word in mine if word not in others)


def _choices(info: FieldInfo) -> tuple[str, ...]:
    found = [info.annotation, *get_args(info.annotation)]
    literal = (word for a in found if get_origin(a) is Literal for word in get_args(a) if isinstance(word, str))
    items = (word for m in info.metadata if isinstance(m, Written) for word in m.items)
    return (*literal, *items)
