"""init: a site that works, and never a touched file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpustrap.cli.app import app
from gpustrap.cli.options import FIRST_CONTACT
from gpustrap.commands.init import init
from gpustrap.content import content_root
from gpustrap.errors import GpustrapError
from gpustrap.model.site import Site
from gpustrap.site.inventory import load_nodes


def test_a_new_site_has_its_nodes(tmp_path: Path) -> None:
    root = tmp_path / "new" / "site"
    created = init(root, ["n1=192.0.2.11", "n2=gpu2.example"], "ubuntu")
    assert created.kept == ()
    nodes = load_nodes(Site(root))
    assert [(n.name, n.endpoint.host, n.endpoint.user) for n in nodes] == [
        ("n1", "192.0.2.11", "ubuntu"),
        ("n2", "gpu2.example", "ubuntu"),
    ]
    assert Site(root).state.stat().st_mode & 0o777 == 0o700
    assert {".gpustrap/*", "gpustrap-*.tar.gz"} <= set((root / ".gitignore").read_text().splitlines())


def test_existing_files_are_kept(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    created = init(tmp_path, [], None)
    assert created.kept == ("README.md",)
    assert (tmp_path / "README.md").read_text() == "mine"
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert init(tmp_path, [], None).written == ()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    "hosts", [["n1"], ["n1="], ["=192.0.2.1"], ["a/b=192.0.2.1"], ["n1=a b"], ["n1=x", "n1=y"], ["n1\n=x"], ["n1=x\n"]]
)
def test_what_is_no_host_is_refused_before_anything_is_made(tmp_path: Path, hosts: list[str]) -> None:
    with pytest.raises(GpustrapError) as caught:
        init(tmp_path / "site", hosts, None)
    assert {p.code for p in caught.value.problems} == {"bad-host"}
    assert not (tmp_path / "site").exists()


def test_hosts_are_not_added_to_an_existing_inventory(tmp_path: Path) -> None:
    init(tmp_path, [], None)
    with pytest.raises(GpustrapError, match="exists"):
        init(tmp_path, ["n1=192.0.2.11"], None)


def test_a_file_in_the_way_is_a_problem_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GpustrapError) as caught:
        init(tmp_path / "file", [], None)
    assert caught.value.problems[0].code == "site-not-writable"


def test_the_verb_names_what_it_made_and_the_next_commands(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["init", str(tmp_path / "s")])
    assert done.exit_code == 0
    assert f"made {tmp_path}/s/inventory/hosts.yml" in done.stdout.replace("\n", "")
    assert "add your machines" in done.stdout
    assert f"  {FIRST_CONTACT}\n" in done.stdout


def test_every_text_begins_alike(tmp_path: Path) -> None:
    """One first command, and one way to install: gpustrap is in no package index, so none may be named."""
    init(tmp_path, [], None)
    root = Path(content_root())
    for text in (root / "README.md", root / "docs" / "site.md", tmp_path / "README.md"):
        assert FIRST_CONTACT in text.read_text(), text
    texts = [*root.glob("*.md"), *root.glob("docs/*.md"), *(root / "src").rglob("*.py"), tmp_path / "ci-example.yml"]
    named = re.compile(r"pip\S* install (?:-\S+ )*'?gpustrap")
    assert [text for text in texts if named.search(text.read_text())] == []
