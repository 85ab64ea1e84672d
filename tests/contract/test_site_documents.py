"""docs/variables.md and the example inventory are what `python -m gpustrap.site.document` writes."""

from __future__ import annotations

from pathlib import Path

import yaml

from gpustrap.content import content_root
from gpustrap.model.request import Request
from gpustrap.model.roles import ROLES
from gpustrap.site.document import targets


def test_generated_files_are_current() -> None:
    stale = [str(path) for path, text in targets(content_root()).items() if path.read_text() != text]
    assert not stale, f"python -m gpustrap.site.document writes {stale}"


def test_every_variable_has_a_description_and_its_commented_default_is_valid() -> None:
    assert all(field.description for field in Request.model_fields.values())
    lines = (content_root() / "inventory" / "example" / "group_vars" / "all.yml").read_text().splitlines()
    settings = [line.removeprefix("# ") for line in lines if line.startswith("# gpustrap_")]
    values = yaml.safe_load("\n".join(settings))
    assert {name.removeprefix("gpustrap_") for name in values} == Request.model_fields.keys()
    given = {name.removeprefix("gpustrap_"): value for name, value in values.items()}
    assert Request.model_validate(given) == Request()


def test_the_roles_are_those_there_are() -> None:
    there = {p.name for p in (content_root() / "roles").iterdir() if (Path(p) / "tasks").is_dir()}
    assert set(ROLES) == there
