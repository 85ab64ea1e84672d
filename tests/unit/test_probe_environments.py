"""Environments on a node: what is complete, what is half-built, and which package somebody changed by hand."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node import environments, observe
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host
from gpustrap.ansible_plugins.module_utils.gpustrap_node.main import main

ID, OLDER = "0123456789abcdef", "fedcba9876543210"
PREFIX = environments.PREFIX


def build(root: Path, directory: str = ID, *, complete: bool = True) -> Path:
    """A small build as uv leaves it, below a recorded tree."""
    path = root / PREFIX[1:] / "torch" / directory
    packages = path / "lib/python3.12/site-packages"
    for package in ("torch-2.14.0", "numpy-2.3.0"):
        info = packages / f"{package}.dist-info"
        info.mkdir(parents=True)
        (info / "RECORD").write_text(f"{package}\n")
        (info / "METADATA").write_text("Name: x\n")
        (packages / package.partition("-")[0]).mkdir()
    (path / "bin").mkdir()
    (path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    (root / "usr/bin/python3.12").touch()
    (path / "bin/python").symlink_to("/usr/bin/python3.12")
    (path / "bin/python3").symlink_to("python")
    if complete:
        host, where = Host(str(root)), f"{PREFIX}/torch/{directory}"
        there = environments.parts(host, where)
        marker = {"name": "torch", "lock": directory[:16], "parts": there}
        (path / ".gpustrap.json").write_text(json.dumps(marker | {"fingerprint": environments.fingerprint(there)}))
    return path


def use(root: Path, directory: str, link: str = "current") -> None:
    (root / PREFIX[1:] / "torch" / link).symlink_to(directory)


def state(root: Path) -> observe.Seen:
    return observe.observe_all(Host(str(root)), [("environment", f"{PREFIX}/torch")])[0]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    build(tmp_path)
    use(tmp_path, ID)
    return tmp_path


def test_a_sound_one_has_its_lock_and_fingerprint_and_no_change(tree):
    found = state(tree)
    assert found["lock"] == ID
    assert len(found["fingerprint"]) == 64
    assert set(found) == {"lock", "fingerprint"}
    assert state(tree) == found


def test_none_is_the_empty_state(tmp_path):
    assert state(tmp_path) == {}


@pytest.mark.parametrize("target", ["/usr", "../other", "nothing", OLDER])
def test_a_link_that_leads_elsewhere_is_no_environment(tmp_path, target):
    build(tmp_path)
    use(tmp_path, target)
    assert state(tmp_path) == {}


def test_half_built_never_counts(tmp_path):
    build(tmp_path, complete=False)
    use(tmp_path, ID)
    assert (state(tmp_path)["lock"], state(tmp_path)["changed"]) == ("", "never complete")
    assert [(b.lock, b.current) for b in environments.builds(Host(str(tmp_path)), PREFIX, "torch")] == [("", True)]


def packages(tree: Path) -> Path:
    return tree / PREFIX[1:] / "torch" / ID / "lib/python3.12/site-packages"


def upgraded(tree: Path) -> None:
    (packages(tree) / "numpy-2.3.0.dist-info").rename(packages(tree) / "numpy-2.4.0.dist-info")


def installed(tree: Path) -> None:
    (packages(tree) / "nope-1.dist-info").mkdir()


def again(tree: Path) -> None:
    os.utime(packages(tree) / "numpy-2.3.0.dist-info/RECORD", (1, 1))


def by_hand(tree: Path) -> None:
    (packages(tree) / "sitecustomize.py").touch()


def editable(tree: Path) -> None:
    (packages(tree) / "__editable__.pth").write_text("/home/me/src\n")


def without_python(tree: Path) -> None:
    (tree / "usr/bin/python3.12").unlink()


def by_conda(tree: Path) -> None:
    meta = tree / PREFIX[1:] / "torch" / ID / "conda-meta"
    meta.mkdir()
    (meta / "nope-1-0.json").write_text("{}")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (upgraded, "gone numpy-2.3.0, added numpy-2.4.0"),
        (installed, "added nope-1"),
        (again, "changed numpy-2.3.0"),
        (by_hand, "changed (site-packages)"),
        (editable, "changed (site-packages)"),
        (without_python, "changed (python)"),
        (by_conda, "added conda:nope-1-0"),
    ],
)
def test_what_somebody_changed_is_named(tree, change, named):
    before = state(tree)
    change(tree)
    after = state(tree)
    assert after["changed"] == named
    assert after["fingerprint"] != before["fingerprint"]


def test_byte_code_is_no_change(tree):
    before = state(tree)
    (packages(tree) / "__pycache__").mkdir()
    (packages(tree) / "torch/__pycache__").mkdir()
    assert state(tree) == before


def test_all_builds_are_listed_the_current_first(tree):
    build(tree, OLDER)
    use(tree, OLDER, "previous")
    build(tree, f"{ID}-2", complete=False)
    answer = main({"verb": "environments", "root": str(tree)})["data"]["environments"]
    assert [(e["directory"], e["current"], e["previous"]) for e in answer] == [
        (ID, True, False),
        (OLDER, False, True),
        (f"{ID}-2", False, False),
    ]
    assert [e["marker"].get("lock") for e in answer] == [ID, OLDER, None]
    assert all("parts" not in e["marker"] for e in answer)


def test_what_is_none_of_ours_is_not_listed(tree):
    for name in ("mine", "Upper", ".tmp", f"torch/{ID}.old"):
        (tree / PREFIX[1:] / name).mkdir()
    (tree / PREFIX[1:] / "mine/bin").mkdir()
    answer = main({"verb": "environments", "root": str(tree)})["data"]["environments"]
    assert [(e["name"], e["directory"]) for e in answer] == [("torch", ID)]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"lock": 1, "parts": {}}', '{"lock": "x"}'])
def test_a_marker_that_is_none_counts_as_none(tree, text):
    (tree / PREFIX[1:] / "torch" / ID / ".gpustrap.json").write_text(text)
    assert state(tree)["lock"] == ""
