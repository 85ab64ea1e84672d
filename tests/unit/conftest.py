"""For cases that people write as YAML: what is wrong with one is a sentence that names its file and title."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest
from pydantic import ValidationError

from gpustrap.content import content_root

PAGES = ("findings.md", "plan.md")
T = TypeVar("T")


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of an environment looks packages up: no test does, unless its index is its own."""
    monkeypatch.setenv("UV_OFFLINE", "1")


class Author:
    """Tells the author of a case what is wrong with it, in words of the case and not of Python."""

    def __init__(self, case: str) -> None:
        self.file, _, self.title = case.partition(": ")

    def wrong(self, sentence: str) -> NoReturn:
        """Ends the test."""
        pytest.fail(f"{self.file}.yml, case “{self.title}”: {sentence}", pytrace=False)

    def known(self, place: str, names: Iterable[str], known: Collection[str]) -> None:
        """Refuses names that are not known, each with the one that was meant."""
        for name in names:
            if name not in known:
                near = get_close_matches(str(name).removeprefix("gpustrap_"), known, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
                self.wrong(f"{place} has {name}, which nothing here is called; {hint}")

    def codes(self, place: str, codes: Iterable[str]) -> None:
        """Refuses codes that no page documents: of a misspelt one nothing could ever be seen."""
        self.known(place, codes, documented())

    def built(self, place: str, build: Callable[[], T]) -> T:
        """What a model makes of a part of the case."""
        try:
            return build()
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        at = " ".join(map(str, (place, *first["loc"])))
        unknown = first["type"] == "extra_forbidden"
        return self.wrong(f"{at} is nothing that is known" if unknown else f"{at}: {first['msg']}")

    def facts(self, place: str, said: Mapping[str, Any], known: Mapping[str, Any]) -> None:
        """Refuses facts that no node has: they would be passed over, as those of a newer node are.

        Args:
            place: Where they stand in the case.
            said: The facts of the case.
            known: The same facts as the model took them.
        """
        for name, value in said.items():
            if value is None:
                continue
            self.known(place, [name], known.keys())
            if isinstance(value, dict) and isinstance(known[name], dict):
                self.facts(f"{place} {name}", value, known[name])


def documented() -> frozenset[str]:
    """Every code of a finding or a refusal; other tests hold the pages and the source together."""
    pages = [(Path(content_root()) / "docs" / page).read_text(encoding="utf-8") for page in PAGES]
    cells = re.findall(r"^\| (`[^|]+`) \|", "\n".join(pages), re.MULTILINE)
    return frozenset(code for cell in cells for code in re.findall(r"`([a-z0-9-]+)`", cell))


@pytest.fixture
def author(request: pytest.FixtureRequest) -> Author:
    """Of the case that this test is about."""
    return Author(request.node.callspec.id)
