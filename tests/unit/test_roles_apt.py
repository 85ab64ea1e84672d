"""gpustrap_apt_health: what it repairs, what it refuses, what it only foresees."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustrap.ansible_plugins.module_utils import gpustrap_apt as apt
from gpustrap.ansible_plugins.module_utils.gpustrap_apt_plan import ensure
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host

UNMET = "The following packages have unmet dependencies:\n demo : Depends: demo-lib (>= 1) but it is not installed\n"
MEND = "Inst demo-lib (1.0 Debian:13.1/stable [amd64])\nConf demo-lib (1.0 Debian:13.1/stable [amd64])\n"


class Replay(apt.Runner):
    """Answers by the first rule whose words are all in the command; the clock moves only by sleeping."""

    def __init__(self, *rules: tuple[str, int, str]) -> None:
        self.rules = rules
        self.commands: list[str] = []
        self.clock = 1_800_000_000.0

    def run(self, argv, timeout=0):
        line = " ".join(argv)
        self.commands.append(line)
        for words, code, output in self.rules:
            if all(word in line.split() for word in words.split()):
                return code, output
        return 0, ""

    def now(self):
        return self.clock

    def sleep(self, seconds):
        self.clock += seconds


@pytest.fixture
def node(tmp_path: Path):
    """A node's dpkg with these packages (name, status, version), and an interrupted run if wanted."""

    def make(*packages: tuple[str, str, str], interrupted: bool = False) -> Host:
        stanzas = [
            f"Package: {name}\nStatus: install ok {status}\nArchitecture: amd64\nVersion: {version}\n"
            for name, status, version in (("python3-apt", "installed", "3.0"), *packages)
        ]
        updates = tmp_path / "var/lib/dpkg/updates"
        updates.mkdir(parents=True, exist_ok=True)
        (tmp_path / "var/lib/dpkg/status").write_text("\n".join(stanzas), encoding="utf-8")
        if interrupted:
            (updates / "0001").touch()
        return Host(str(tmp_path))

    return make


def run(runner: Replay, host: Host, *packages: str, check: bool = False, may_remove=(), holder=lambda: None):
    return ensure(
        runner, host, packages=packages, may_remove=may_remove, lock_timeout=30, check_mode=check, holder=holder
    )


def test_healthy_node_with_everything_costs_one_command(node):
    runner = Replay()
    result = run(runner, node(("curl", "installed", "8")), "curl", "curl")
    assert (result["changed"], result["install"], result["would_follow"]) == (False, [], [])
    assert result["claims"] == [{"kind": "package", "name": n} for n in ("python3-apt", "curl")]
    assert runner.commands == ["apt-get check -q"]


def test_missing_package_fetches_lists_and_is_left_to_apt(node):
    runner = Replay(("-s install curl", 0, "Inst curl (8 Debian [amd64])"))
    result = run(runner, node(), "curl")
    assert result["install"] == ["curl"]
    assert {"kind": "package", "name": "curl"} not in result["claims"]
    assert any(line.endswith(" update") and "DPkg::Lock::Timeout=30" in line for line in runner.commands)


def test_version_that_differs_is_missing(node):
    assert run(Replay(), node(("curl", "installed", "8")), "curl=9")["install"] == ["curl=9"]
    assert run(Replay(), node(("curl", "installed", "9")), "curl=9")["install"] == []
    assert run(Replay(), node(("curl", "config-files", "9")), "curl")["install"] == ["curl"]


def test_package_that_cannot_be_had_is_named(node):
    runner = Replay(("-s install", 100, "E: Unable to locate package nosuch"))
    with pytest.raises(apt.AptError, match="cannot install nosuch") as caught:
        run(runner, node(), "nosuch")
    assert "Unable to locate" in caught.value.evidence


def test_removal_is_refused_unless_agreed(node):
    runner = Replay(("-s install", 0, "Remv chrony [4]\nInst systemd-timesyncd (257 Debian [amd64])"))
    with pytest.raises(apt.AptError, match="would remove chrony"):
        run(runner, node(), "systemd-timesyncd")
    assert run(runner, node(), "systemd-timesyncd", may_remove=["chrony"])["install"] == ["systemd-timesyncd"]


def test_check_mode_on_a_bare_node_foresees(node):
    host = node()
    (Path(host.root) / "var/lib/dpkg/status").write_text("", encoding="utf-8")
    runner = Replay(("-s install", 100, "E: Unable to locate package curl"))
    result = run(runner, host, "curl", check=True)
    assert result["install"] == []
    assert result["would_follow"] == ["python3-apt", "curl"]
    assert result["changed"]
    assert not [line for line in runner.commands if "update" in line or " -y " in line]


def test_check_mode_leaves_what_apt_can_simulate_to_apt(node):
    assert run(Replay(), node(), "curl", check=True)["install"] == ["curl"]


def test_interrupted_run_is_finished_with_old_configuration_files(node):
    runner = Replay()
    result = run(runner, node(("demo", "half-configured", "1"), interrupted=True))
    assert result["repaired"] == ["finished an interrupted dpkg run: demo"]
    assert runner.commands[0] == "dpkg --configure -a --force-confdef --force-confold"


def test_interrupted_run_is_only_reported_in_check_mode(node):
    runner = Replay()
    assert run(runner, node(interrupted=True), check=True)["repaired"] == ["finished an interrupted dpkg run"]
    assert runner.commands == []


def test_run_that_cannot_be_finished_is_an_error(node):
    runner = Replay(("--configure", 1, "dpkg: error processing package demo"))
    with pytest.raises(apt.AptError, match="cannot finish it") as caught:
        run(runner, node(("demo", "half-configured", "1")))
    assert "error processing package demo" in caught.value.evidence


def test_missing_dependency_is_installed(node):
    runner = Replay(("check", 100, UNMET), ("-s -f install", 0, MEND))
    assert run(runner, node())["repaired"] == ["installed missing dependencies: demo-lib"]
    assert runner.commands[-1].endswith("-f install")
    assert " -s " not in runner.commands[-1]


@pytest.mark.parametrize(
    ("simulation", "said"),
    [
        ("Remv demo [1]\n", "remove demo"),
        (MEND + "Inst surprise (1 Debian [amd64])\n", "install surprise"),
        (MEND + "Inst libc6 [2.41] (2.42 Debian [amd64])\n", "change the version of libc6"),
    ],
)
def test_repair_that_does_more_is_refused(node, simulation, said):
    runner = Replay(("check", 100, UNMET), ("-s -f install", 0, simulation))
    with pytest.raises(apt.AptError, match=said):
        run(runner, node())
    assert not [line for line in runner.commands if " -y " in line and line.endswith("install")]


def test_unreadable_sources_are_an_error_in_apts_words(node):
    words = "E: Conflicting values set for option Signed-By\nE: The list of sources could not be read."
    with pytest.raises(apt.AptError, match="does not work") as caught:
        run(Replay(("check", 100, words)), node())
    assert "Signed-By" in caught.value.evidence


def test_lock_is_waited_for_and_its_holder_named(node):
    held = [("/var/lib/dpkg/lock-frontend", 4711, "unattended-upgr")]
    runner = Replay()
    run(runner, node(), holder=lambda: held.pop() if held else None)
    assert runner.clock > Replay().clock
    with pytest.raises(apt.AptError, match=r"process 4711 \(unattended-upgr\) holds /var/lib/dpkg/lock-frontend"):
        run(Replay(), node(), holder=lambda: ("/var/lib/dpkg/lock-frontend", 4711, "unattended-upgr"))


def test_cloud_init_is_waited_for(tmp_path):
    (tmp_path / "run/cloud-init").mkdir(parents=True)
    with pytest.raises(apt.AptError, match="cloud-init has not finished"):
        apt.wait_for_cloud_init(Replay(("status", 0, "status: running")), 10, str(tmp_path))
    apt.wait_for_cloud_init(Replay(("status", 0, "status: done")), 10, str(tmp_path))


def test_lists_age_by_apts_scratch_directory(tmp_path):
    assert not apt.lists_are_fresh(0, str(tmp_path))
    partial = tmp_path / "var/lib/apt/lists/partial"
    partial.mkdir(parents=True)
    (partial.parent / "mirror.example_debian_dists_trixie_main_binary-amd64_Packages").touch()
    born = partial.stat().st_mtime
    assert apt.lists_are_fresh(born + 60, str(tmp_path))
    assert not apt.lists_are_fresh(born + 7200, str(tmp_path))


def test_apt_prompt_hang():
    """Nothing that a package asks waits for an answer: no debconf, no needrestart, no terminal to ask at."""
    code, said = apt.Runner().run(["sh", "-c", "env; cat"])
    asks_nothing = {"DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_MODE=l", "APT_LISTCHANGES_FRONTEND=none"}
    assert code == 0
    assert asks_nothing <= set(said.splitlines())
    assert {"Dpkg::Options::=--force-confdef", "Dpkg::Options::=--force-confold"} <= set(apt.APT_OPTIONS)
