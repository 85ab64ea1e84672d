"""Failure mode debian-components: switched on in whichever format is live, and what is somebody's stays."""

from __future__ import annotations

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_apt_components import list_name, with_components

WANTED = ["contrib", "non-free", "non-free-firmware"]
SUITES = ["bookworm", "stable"]
DEB822 = """# mine
Types: deb deb-src
URIs: http://deb.example.org/debian
Suites: bookworm bookworm-updates
Components: main non-free-firmware
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://mirror.example/x
Suites: bookworm-security
components: main
 contrib

Types: deb
URIs: http://deb.example.org/debian
Suites: bookworm
Components: main
Enabled: no

Types: deb
URIs: https://download.docker.com/linux/debian
Suites: bookworm
Components: stable
"""
ONE_LINE = """deb http://deb.example.org/debian bookworm main # mine
deb [arch=amd64] http://deb.example.org/debian/ bookworm-updates main contrib
# deb http://deb.example.org/debian bookworm main
deb-src http://deb.example.org/debian bookworm main
deb https://download.docker.com/linux/debian bookworm stable
deb http://mirror/nvidia ./
deb http://deb.example.org/debian bookworm-backports main
"""


def nobodys(_uri, _suite):
    return False


def test_deb822():
    after = with_components(DEB822, True, WANTED, SUITES, nobodys)
    assert "Components: main non-free-firmware contrib non-free\n" in after
    assert "components: main\n contrib non-free non-free-firmware\n" in after
    assert after.count("non-free-firmware") == 2
    assert "Components: main\nEnabled: no" in after
    assert "Components: stable\n" in after


def test_one_line():
    lines = with_components(ONE_LINE, False, WANTED, SUITES, nobodys).splitlines()
    assert lines[0] == "deb http://deb.example.org/debian bookworm main contrib non-free non-free-firmware # mine"
    assert lines[1].endswith("main contrib non-free non-free-firmware")
    assert lines[2:] == ONE_LINE.splitlines()[2:]


@pytest.mark.parametrize(("text", "deb822"), [(DEB822, True), (ONE_LINE, False)])
def test_second_time_changes_nothing(text, deb822):
    once = with_components(text, deb822, WANTED, SUITES, nobodys)
    assert with_components(once, deb822, WANTED, SUITES, nobodys) == once


@pytest.fixture
def module(run, tools, tmp_path, monkeypatch):
    """The module over a directory of its own, with what apt-get answers."""
    (tmp_path / "sources.list.d").mkdir()

    def call(apt_get="exit 0", check=False):
        tools(**{"apt-get": apt_get})
        release = {"VERSION_CODENAME": "bookworm"}
        patch = {"APT": str(tmp_path), "LISTS": str(tmp_path / "lists"), "parse_os_release": lambda _text: release}
        return run("gpustrap_apt_components", check=check, patch=patch, components=WANTED)

    return call


def test_written_once_with_a_backup(module, tmp_path):
    path = tmp_path / "sources.list.d/debian.sources"
    path.write_text(DEB822)
    assert module(check=True)["changed"]
    assert path.read_text() == DEB822
    assert module()["written"] == [str(path)]
    assert any(other.read_text() == DEB822 for other in path.parent.iterdir() if other != path)
    assert module()["changed"] is False


def test_mirror_without_the_component_leaves_the_files_as_they_were(module, tmp_path):
    (tmp_path / "sources.list").write_text(ONE_LINE)
    failed = module("echo 'E: Failed to fetch 404'; exit 100")
    assert "its files are as they were" in failed["msg"]
    assert (tmp_path / "sources.list").read_text() == ONE_LINE


def test_no_archive_at_all(module, tmp_path):
    (tmp_path / "sources.list").write_text("deb http://mirror/nvidia ./\n")
    assert "no live entry of bookworm's own archive" in module()["msg"]


@pytest.mark.parametrize(
    ("uri", "suite", "name"),
    [  # as apt-get update --print-uris has it
        ("http://deb.example.org/debian", "bookworm", "deb.example.org_debian_dists_bookworm"),
        ("https://u:p@mirror.example:8080/a_b/", "stable", "mirror.example:8080_a%5fb_dists_stable"),
        ("file:/srv/mir~r+x", "bookworm/updates", "_srv_mir%7er+x_dists_bookworm_updates"),
        ("http://h/a%20b/c[1]", "stable", "h_a%20b_c%5b1%5d_dists_stable"),
    ],
)
def test_lists_are_called_as_apt_calls_them(uri, suite, name):
    assert list_name(uri, suite) == name


@pytest.mark.parametrize("entry", ["https://dl.google.com/linux/chrome/deb/ stable", "https://vpn.example/d bookworm"])
def test_foreign_repository_that_looks_like_the_archive_is_left_alone(module, tmp_path, entry):
    """Chrome, VS Code, Tailscale and every PPA have ``main`` of a suite that is called like the distribution's."""
    uri, suite = entry.split()
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / (list_name(uri, suite) + "_InRelease")).write_text("-----BEGIN\n\nOrigin: Google LLC\n")
    archive = list_name("http://deb.example.org/debian", "bookworm")
    (tmp_path / "lists" / (archive + "_InRelease")).write_text("Origin: Debian\nLabel: Debian\n")
    theirs = tmp_path / "sources.list.d/theirs.list"
    theirs.write_text(f"deb [arch=amd64] {uri} {suite} main\n")
    (tmp_path / "sources.list").write_text(ONE_LINE)
    assert module()["written"] == [str(tmp_path / "sources.list")]
    assert "non-free" not in theirs.read_text()
