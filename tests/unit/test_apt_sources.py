"""Other entries of a repository are switched off; all the rest of a sources file stays as it is."""

from __future__ import annotations

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_apt_sources import switch_off

URI, SUITE = "https://download.docker.com/linux/debian", "trixie"


@pytest.mark.parametrize(
    "line",
    [
        "deb https://download.docker.com/linux/debian trixie stable",
        "deb https://download.docker.com/linux/debian/ trixie stable test",
        "deb http://download.docker.com/linux/debian trixie stable",
        "deb https://DOWNLOAD.docker.com:443/linux/debian trixie stable",
        "  deb [arch=amd64 signed-by=/k/docker.asc] https://download.docker.com/linux/debian trixie stable",
        "deb-src https://download.docker.com/linux/debian trixie stable",
    ],
)
def test_one_line(line):
    text = f"# mine\n{line}\ndeb https://example.org/debian trixie main\n"
    after = switch_off(text, False, URI, SUITE).splitlines()
    assert after[1] == f"# replaced by gpustrap: {line.lstrip()}"
    assert [after[0], after[2]] == ["# mine", "deb https://example.org/debian trixie main"]
    assert switch_off("\n".join(after), False, URI, SUITE) == "\n".join(after)


@pytest.mark.parametrize(
    "line",
    [
        "deb https://download.docker.com/linux/debian bookworm stable",
        "deb https://download.docker.com/linux/ubuntu trixie stable",
        "deb https://mirror.example.org/linux/debian trixie stable",
        "# deb https://download.docker.com/linux/debian trixie stable",
    ],
)
def test_other_entries_stay(line):
    assert switch_off(line + "\n", False, URI, SUITE) == line + "\n"


STANZA = f"Types: deb\nURIs: {URI}\nSuites: trixie\nComponents: stable\nSigned-By: /k.asc\n"
OTHER = "# mine\nTypes: deb\nURIs: https://example.org/\nSuites: trixie\nComponents: main\n"


def test_deb822_stanza():
    after = switch_off(f"{OTHER}\n{STANZA}", True, URI, SUITE)
    assert after.startswith(OTHER)
    assert after.endswith(f"\nEnabled: no\n{STANZA}")
    assert switch_off(after, True, URI, SUITE) == after


def test_deb822_stanza_that_was_switched_on_explicitly():
    after = switch_off(f"Enabled: yes\n{STANZA}", True, URI, SUITE)
    assert "Enabled: yes" not in after
    assert "Enabled: no" in after


def test_deb822_other_suites_and_uris_stay():
    two_suites = STANZA.replace("Suites: trixie", "Suites: bookworm trixie")
    assert "Suites: bookworm\n" in switch_off(two_suites, True, URI, SUITE)
    two_uris = STANZA.replace("URIs: ", "URIs: https://example.org/x\n ")
    after = switch_off(two_uris, True, URI, SUITE)
    assert "URIs: https://example.org/x\nSuites: trixie" in after
    assert "docker.com" not in after


def test_deb822_both_lists_long():
    text = STANZA.replace("URIs: ", "URIs: https://example.org/x ").replace("Suites: ", "Suites: bookworm ")
    after = switch_off(text, True, URI, SUITE)
    first, second = after.split("\n\n")
    assert "URIs: https://example.org/x\n" in first
    assert "Suites: bookworm trixie" in first
    assert f"URIs: {URI}\n" in second
    assert "Suites: bookworm\n" in second


TOOLKIT = "https://nvidia.github.io/libnvidia-container/stable/deb/amd64"


@pytest.mark.parametrize(
    "line",
    [
        "deb [signed-by=/k.gpg] https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /",
        "deb https://nvidia.github.io/libnvidia-container/stable/deb/amd64/ /",
    ],
)
def test_signed_by_conflict_of_nvidias_own_list(line):
    """A second entry of it with another key file would stop apt altogether, however it spells the architecture."""
    assert switch_off(line + "\n", False, TOOLKIT, "/") == f"# replaced by gpustrap: {line}\n"
    stanza = f"Types: deb\nURIs: {line.split()[-2]}\nSuites: /\n"
    assert "Enabled: no" in switch_off(stanza, True, TOOLKIT, "/")
    other = "deb https://nvidia.github.io/libnvidia-container/experimental/deb/$(ARCH) /\n"
    assert switch_off(other, False, TOOLKIT, "/") == other
