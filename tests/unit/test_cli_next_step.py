"""The next command works when it is pasted: it names the site that this one named."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpustrap.cli.app import app
from gpustrap.cli.output import show_problems
from gpustrap.errors import GpustrapError
from gpustrap.report.next_step import SITE_VARIABLE, next_step, remember_site


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(SITE_VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpustrap apply", "gpustrap apply --site 'my site'"),
        ("gpustrap enroll n1 -k", "gpustrap enroll --site 'my site' n1 -k"),
        ("correct it, then gpustrap plan; gpustrap apply", None),
        ("gpustrap remove driver n1 --reboot", "gpustrap remove --site 'my site' driver n1 --reboot"),
        ("gpustrap lab up n1", "gpustrap lab up n1"),
        ("gpustrap plan --site other", "gpustrap plan --site other"),
        ("less .gpustrap/plan; gpustrap planned it", "less .gpustrap/plan; gpustrap planned it"),
    ],
)
def test_a_site_of_another_directory_is_named(text: str, expected: str | None) -> None:
    remember_site(Path("my site"))
    both = "correct it, then gpustrap plan --site 'my site'; gpustrap apply --site 'my site'"
    assert next_step(text) == (expected or both)


def test_a_site_that_is_found_without_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember_site(tmp_path)
    assert next_step("gpustrap plan") == "gpustrap plan"
    monkeypatch.setenv(SITE_VARIABLE, "there")
    remember_site(tmp_path / "there")
    assert next_step("gpustrap plan") == "gpustrap plan"
    remember_site(tmp_path)  # given on the command line, against the environment
    assert next_step("gpustrap plan") == f"gpustrap plan --site {tmp_path}"


def test_the_option_is_remembered_and_problems_show_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "s"
    (site / "inventory").mkdir(parents=True)
    done = CliRunner().invoke(app, ["report", "--site", "s"])
    assert isinstance(done.exception, GpustrapError)
    show_problems(done.exception.problems)
    assert "Next: gpustrap apply --site s\n" in capsys.readouterr().err


def test_report_outside_a_site_says_so(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", "--site", str(tmp_path)])
    assert isinstance(done.exception, GpustrapError)
    assert [p.code for p in done.exception.problems] == ["no-site"]
