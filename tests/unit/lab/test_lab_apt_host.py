"""Where Debian comes from on this machine, told from apt's own words."""

from __future__ import annotations

import pytest

from gpustrap.lab import apt_host

MAIN = "http://mirror.example/debian/"
SECURITY = "http://mirror.example/debian-security/"
LINES = {
    "main": f"{MAIN}|bookworm|Debian|Debian",
    "updates": f"{MAIN}|bookworm-updates|Debian|Debian",
    "security": f"{SECURITY}|bookworm-security|Debian|Debian-Security",
    "backports": f"{MAIN}|bookworm-backports|Debian|Debian Backports",
    "docker": "https://repository.example/linux/debian/|bookworm|Docker|Docker CE",
    "unknown": "https://never-updated.example/debian/|bookworm|$(ORIGIN)|$(LABEL)",
    "cdrom": "cdrom://[Debian 12]/|bookworm|Debian|Debian",
    "ubuntu": "http://archive.example/ubuntu/|noble|Ubuntu|Ubuntu",
}


def archive(*names: str) -> apt_host.Archive | None:
    return apt_host.parse_targets("\n".join(LINES[name] for name in names))


def test_all_suites_of_the_debian_archive_are_found() -> None:
    found = archive("docker", "backports", "main", "updates", "security", "unknown")
    assert found == apt_host.Archive(MAIN, updates=True, security=SECURITY)


def test_a_source_is_debian_by_its_release_file_not_by_its_name() -> None:
    assert archive("docker", "unknown", "cdrom", "ubuntu") is None
    assert apt_host.parse_targets("") is None


@pytest.mark.parametrize(
    ("names", "suites"),
    [
        (("main", "updates", "security"), ["trixie trixie-updates", "trixie-security"]),
        (("main", "security"), ["trixie", "trixie-security"]),
        (("main",), ["trixie"]),
    ],
)
def test_sources_follow_the_machine_with_the_suite_swapped(names: tuple[str, ...], suites: list[str]) -> None:
    found = archive(*names)
    assert found is not None
    text = found.sources("trixie")
    assert [line.removeprefix("Suites: ") for line in text.splitlines() if line.startswith("Suites: ")] == suites
    assert text.count(f"Signed-By: {apt_host.KEYRING}") == len(suites)


def test_a_proxy_on_loopback_is_of_no_use_in_a_node() -> None:
    environment = {
        "http_proxy": "http://127.0.0.1:3128",
        "https_proxy": "http://proxy.example:3128",
        "no_proxy": "localhost,.example",
        "PATH": "/bin",
    }
    assert apt_host.proxies(environment) == ("https_proxy=http://proxy.example:3128", "no_proxy=localhost,.example")


def test_apt_options_carry_over(monkeypatch: pytest.MonkeyPatch) -> None:
    dump = """Acquire::Check-Valid-Until false
Acquire::http::Proxy http://localhost:8080/
Acquire::https::Proxy http://proxy.example/
Acquire::http::Proxy::internal.example DIRECT
Acquire::Languages none
"""
    monkeypatch.setattr(apt_host, "_output", lambda command: dump)
    apt_host.apt_options.cache_clear()
    options = apt_host.apt_options()
    apt_host.apt_options.cache_clear()
    assert options == (
        'Acquire::Check-Valid-Until "false";',
        'Acquire::https::Proxy "http://proxy.example/";',
        'Acquire::http::Proxy::internal.example "DIRECT";',
    )
