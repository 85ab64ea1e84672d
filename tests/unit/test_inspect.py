"""gpustrap inspect: hostile answers, skew, what needs attention, cards and JSON."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpustrap.ansible_plugins.module_utils.gpustrap_node.main import main as probe
from gpustrap.catalog.loader import load_catalog
from gpustrap.cli import app as cli
from gpustrap.commands import inspect, ledgers
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.attention import attention, duration
from gpustrap.model.facts import Facts
from gpustrap.model.node import Endpoint, Node, Secrets
from gpustrap.model.request import Request
from gpustrap.model.site import Site
from gpustrap.report.inspect_text import gpus, render
from gpustrap.site import inventory
from gpustrap.site.facts_cache import load_facts

CASES = Path(__file__).parents[1] / "cases" / "facts"


HELD = {"address": "0000:01:00.0", "vendor": "10de", "device": "2204", "pci_class": "0300", "driver": "nvidia"}


def answer(case: str = "nouveau-bound") -> dict[str, Any]:
    found = probe({"verb": "facts", "root": str(CASES / case / "tree")})["data"]
    return json.loads(json.dumps(found | {"root": True}))


def facts(case: str = "nouveau-bound", **changes: Any) -> Facts:
    data = answer(case)
    for path, value in changes.items():
        place = data
        *parents, last = path.split("__")
        for parent in parents:
            place = place[parent]
        place[last] = value
    return Facts.model_validate(data)


def messages(found: Facts) -> str:
    return "\n".join(f"{a.message} -> {a.remedy}" for a in attention(found))


def text(name: str, found: Facts, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(render({name: found}))
    return console.file.getvalue()


def nodes(*names: str) -> tuple[Node, ...]:
    return tuple(Node(Endpoint(n, n), (), Request()) for n in names)


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What nodes answer, instead of SSH: name to response, error, or None for a good one."""
    responses: dict[str, Any] = {}

    def ask_nodes(site, nodes, *, request, **_):
        out = {}
        for node in nodes:
            asked = request(node)
            responses.setdefault("asked", {})[node.name] = asked["args"]["packages"]
            given = responses.get(node.name)
            out[node.name] = {"ok": True, "data": answer()} if given is None else given
            assert asked["verb"] == "facts"
        return out

    monkeypatch.setattr(ledgers, "ask_nodes", ask_nodes)
    return responses


def test_one_nodes_failure_never_hides_the_others(tmp_path: Path, fleet: dict[str, Any]) -> None:
    gone = Problem("unreachable", "node n2", "does not answer", ExitCode.UNREACHABLE)
    fleet["n2"] = GpustrapError(gone)
    fleet["n3"] = {"ok": True, "data": {"os": "hello"}}
    fleet["n4"] = {"ok": False, "error": {"code": "probe-failed", "message": "KeyError"}}
    steps = []
    found = inspect.inspect_nodes(
        Site(tmp_path), nodes("n1", "n2", "n3", "n4"), secrets=Secrets(), progress=steps.append
    )
    assert list(found.facts) == ["n1"]
    assert [p.code for p in found.problems] == ["unreachable", "probe-answer-invalid", "probe-failed"]
    assert found.exit_code is ExitCode.UNREACHABLE
    assert {s.node: s.ok for s in steps if s.done} == {"n1": True, "n2": False, "n3": False, "n4": False}
    assert load_facts(Site(tmp_path), "n1") == found.facts["n1"]
    assert load_facts(Site(tmp_path), "n3") is None


@pytest.mark.parametrize(
    "change",
    [
        {"os": None},
        {"os": {"id": "x" * 5000, "architecture": "x86_64"}},
        {"pci": [{"address": "x"}]},
        {"filesystems": {"mount": "/"}},
        {"memory": {"total": "much"}},
        {"schema_version": 2},
        {"time": {"epoch": "noon"}},
        {"package_manager": {"kind": "apt", "packages": ["a"]}},
    ],
)
def test_hostile_answer_is_refused_whole(change: dict[str, Any]) -> None:
    found = inspect.check("n1", answer() | change, (0.0, time.time()))
    assert isinstance(found, GpustrapError)
    (problem,) = found.problems
    assert (problem.code, problem.subject) == ("probe-answer-invalid", "node n1")
    assert problem.exit_code is ExitCode.COULD_NOT_CHECK
    assert next(iter(change)) in problem.evidence
    assert "x" * 100 not in problem.evidence


def test_nodes_are_asked_about_all_that_a_plan_asks(tmp_path: Path, fleet: dict[str, Any]) -> None:
    wish = Node(Endpoint("n2", "n2"), (), Request(packages=("htop", "curl")))
    inspect.inspect_nodes(Site(tmp_path), (*nodes("n1"), wish), secrets=Secrets())
    known = load_catalog().packages()
    assert fleet["asked"] == {"n1": sorted(known), "n2": sorted({*known, "htop", "curl"})}


def test_keys_of_a_newer_probe_are_dropped() -> None:
    assert isinstance(inspect.check("n1", answer() | {"new": 1}, (0.0, 0.0)), Facts)


@pytest.mark.parametrize(
    ("sent", "received", "skew"),
    [(-2, 3, 0.0), (3725, 3730, -3725.0), (-90, -70, 70.0)],
)
def test_skew_is_what_the_round_trip_cannot_explain(sent: float, received: float, skew: float) -> None:
    data = answer()
    epoch = data["time"]["epoch"]
    found = inspect.check("n1", data, (epoch + sent, epoch + received))
    assert isinstance(found, Facts)
    assert found.time.skew == skew


def test_skew_is_told_with_the_way_out() -> None:
    said = messages(facts(time__skew=-3725.0))
    assert "its clock is 1 h 2 min behind this machine's -> sudo timedatectl set-ntp true" in said


def test_a_containers_clock_is_its_hosts_business() -> None:
    asleep = facts("container", time__synchronized=False)
    assert attention(asleep) == ()
    assert "not synchronised (a container)" in text("n1", asleep)
    assert "(a container)" not in text("n1", facts(time__synchronized=False))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"package_manager__interrupted": True}, "dpkg was interrupted -> sudo dpkg --configure -a"),
        ({"package_manager__broken": ["docker.io (unpacked)"]}, "not fully installed: docker.io (unpacked) -> sudo"),
        (
            {"package_manager__locks": [{"path": p, "pid": 7, "command": "apt-get"} for p in ("/a", "/b")]},
            "process 7 (apt-get) holds /a, /b -> wait for it, or look: ps -fp 7",
        ),
        ({"package_manager__locks": [{"path": "/a", "pid": 0}]}, "a process outside this system holds /a"),
        ({"package_manager__source_problems": ["x is twice"]}, "apt sources: x is twice"),
        ({"package_manager__kind": "dnf"}, "dnf"),
        ({"time__synchronized": False}, "nothing keeps its clock right"),
        ({"time__skew": 61.0}, "1 min 1 s ahead of"),
        ({"root": False}, "without root rights"),
        ({"installs": [{"what": "docker", "origin": "snap"}]}, "gpustrap_docker_replace_snap"),
        ({"installs": [{"what": "podman-docker"}]}, "podman-docker stands in for docker"),
        ({"installs": [{"what": "nvidia-driver", "origin": "runfile"}]}, "sudo nvidia-uninstall"),
        (
            {"installs": [{"what": "docker", "origin": "unowned", "path": "/usr/bin/x"}]},
            "/usr/bin/x is from no package",
        ),
        (
            {
                "installs": [
                    {"what": "nvidia-driver", "version": "550.120", "path": "/usr/lib/libnvidia-ml.so.550.120"},
                    {"what": "nvidia-driver", "version": "570.1", "origin": "loaded module", "path": "/proc/x"},
                ]
            },
            "different versions: 550.120, 570.1",
        ),
        (
            {"nvidia": {"module": "580.1", "nvml_error": "Failed to initialize NVML"}},
            "nvidia-smi: Failed to initialize NVML -> sudo journalctl -k",
        ),
        (
            {"nvidia": {"module": "580.1", "nvml": []}, "pci": [HELD]},
            "nvidia-smi does not list what its driver holds: GPU 0000:01:00.0 -> sudo journalctl -k",
        ),
        ({"pci": [HELD | {"bars_unassigned": 1}]}, "GPU 0000:01:00.0's memory regions no address"),
        (
            {"unattended_upgrades": {"installed": True, "enabled": True, "automatic_reboot": True}},
            "may reboot this node by itself",
        ),
    ],
)
def test_what_needs_attention(changes: dict[str, Any], expected: str) -> None:
    assert expected in messages(facts(**changes))


DISK = {
    "mount": "/",
    "type": "ext4",
    "options": ["rw"],
    "size": 10**11,
    "free": 5 * 10**10,
    "inodes": 100,
    "inodes_free": 50,
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ""),
        ({"free": 5 * 10**9}, "/ is nearly full: 4.7 of 93.1 GiB free"),
        ({"size": 10**13, "free": 2 * 10**11}, ""),  # 2 % of a large disk is plenty
        ({"inodes_free": 4}, "/ has hardly an inode free"),
        ({"options": ["ro"]}, "/ is mounted read-only"),
        ({"mount": "/opt", "options": ["rw", "noexec"]}, "/opt is mounted noexec"),
        ({"mount": "/tmp", "type": "tmpfs", "size": 2 * 10**8, "free": 2 * 10**8}, ""),
        ({"mount": "/boot/efi", "size": 10**8, "free": 10**6}, ""),
        ({"mount": "/home", "type": "nfs4", "size": 0, "free": 0}, ""),
    ],
)
def test_disks(change: dict[str, Any], expected: str) -> None:
    found = "\n".join(a.message for a in attention(facts("container", filesystems=[DISK | change])))
    assert found.startswith(expected) if expected else found == ""


def test_lanes_lost_on_a_riser_and_a_due_reboot_are_told() -> None:
    said = messages(facts())
    assert "GPU 0000:41:00.0 runs on 1 of 16 PCIe lanes" in said
    assert "a reboot is due: kernel 6.8.0-117-generic is installed, 6.8.0-40-generic is running" in said


def test_healthy_node_needs_nothing() -> None:
    assert attention(facts("container")) == ()
    assert "nothing needs attention" in text("n1", facts("container"))


def test_card_fits_80_columns_and_names_everything() -> None:
    shown = text("n1", facts("signed-by-conflict"))
    assert max(map(len, shown.splitlines())) <= 80
    for word in ("kernel", "GPUs", "packages", "clock", "apt, needs attention", "conflicting Signed-By", "Next:"):
        assert word in shown


def test_alike_gpus_are_shown_together() -> None:
    assert gpus(facts("nvswitch")) == "2 x NVIDIA 10de:20b0 (driver nvidia, x16); 2 x NVSwitch"
    assert gpus(facts("container")) == "none seen on PCI"


def test_what_is_odd_about_a_gpu_stands_beside_it() -> None:
    shown = gpus(facts("gpu-missing-from-nvml", nvidia__nvml=["0000:0a:00.0"]))
    assert shown == "NVIDIA 10de:2330 (driver nvidia, x16); NVIDIA 10de:2330 (driver nvidia, x16, not in nvidia-smi)"
    assert "(driver nouveau, x1 of x16)" in gpus(facts("gpus-on-x1-riser"))
    shown = gpus(facts("bar-unassigned"))
    assert shown.startswith("NVIDIA 10de:1b38 (driver none, x16, 2 memory regions without an address); AMD 1002:740f")


def test_a_gpu_that_another_driver_holds_is_not_missing_from_nvidia_smi() -> None:
    nvidia = {"module": "580.1", "nvml": []}
    assert "nvidia-smi" in messages(facts("container", nvidia=nvidia, pci=[HELD]))
    assert "nvidia-smi" not in messages(facts("container", nvidia=nvidia, pci=[HELD | {"driver": "vfio-pci"}]))


@pytest.mark.parametrize(
    ("nvidia", "words"),
    [
        ({"nvml": ["0000:0a:00.0"]}, "on 2 GPUs; nvidia-smi lists 1"),
        ({}, "on 2 GPUs; nvidia-smi not asked"),
        ({"nvml_error": "NVML: Unknown Error"}, "on 2 GPUs; nvidia-smi failed"),
    ],
)
def test_card_tells_the_running_driver(nvidia: dict[str, Any], words: str) -> None:
    changes = {f"nvidia__{key}": value for key, value in nvidia.items()}
    shown = text("n1", facts("gpu-missing-from-nvml", **changes), 200)
    assert f"driver     NVIDIA 580.95.05, open module, {words}" in map(str.strip, shown.splitlines())


def test_bridges_are_shown_where_they_matter() -> None:
    riser = facts("gpus-on-x1-riser", virtualization="none")
    assert text("n1", riser, 200).count("GPUs share") == 1
    assert "2 GPUs share x1 at bridge 0000:00:1c.0" in text("n1", riser)
    redirected = facts("gpus-behind-switch-acs-on", virtualization="none")
    said = "ACS and IOMMU send traffic between 2 GPUs up to the root (bridges 0000:00:01.0, 0000:02:08.0, 0000:02:10.0)"
    assert said in text("n1", redirected, 200)
    alone = [
        p.model_dump() | {"iommu_type": "DMA" if number else "identity"} for number, p in enumerate(redirected.pci[:2])
    ]
    assert "PCIe  " not in text("n1", facts("gpus-behind-switch-acs-on", virtualization="none", pci=alone), 200)
    passed_through = [p.model_dump() | {"iommu_type": "identity"} for p in redirected.pci]
    calm = facts("gpus-behind-switch-acs-on", virtualization="none", pci=passed_through)
    assert "PCIe  " not in text("n1", calm, 200)
    assert "PCIe  " not in text("n1", facts("gpus-on-x1-riser", virtualization="kvm"), 200)
    assert "PCIe  " not in text("n1", facts("gpu-missing-from-nvml", virtualization="none"), 200)


def test_a_nodes_words_cannot_move_the_cursor() -> None:
    shown = text("n1", facts(os__pretty_name="evil\x1b[2J\x9b1m[bold]\u202eos\nn2  forged", notes=["a\x07\rb"]))
    assert not {"\x1b", "\x9b", "\x07", "\r", "\u202e"} & set(shown)
    assert "[bold]" in shown
    assert not any(line.startswith("n2") for line in shown.splitlines())


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (61, "1 min 1 s"), (3600, "1 h"), (90061, "1 d 1 h"), (59.6, "1 min")],
)
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def run_cli(monkeypatch: pytest.MonkeyPatch, *argv: str) -> int:
    monkeypatch.setattr("sys.argv", ["gpustrap", "inspect", *argv])
    monkeypatch.setattr(cli.os, "umask", lambda mask: mask)
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


def test_json_has_facts_attention_and_problems(monkeypatch, tmp_path: Path, fleet, capsys) -> None:
    fleet["n2"] = GpustrapError(Problem("unreachable", "node n2", "does not answer", ExitCode.UNREACHABLE))
    monkeypatch.setattr(inventory, "load_nodes", lambda *_: nodes("n1", "n2"))
    assert run_cli(monkeypatch, "--site", str(tmp_path), "--format", "json") == ExitCode.UNREACHABLE
    out = json.loads(capsys.readouterr().out)
    (one,) = out["nodes"]
    assert one["node"] == "n1"
    assert Facts.model_validate(one["facts"]).os.id == "ubuntu"
    assert one["attention"][0].keys() == {"message", "remedy"}
    assert [p["code"] for p in out["problems"]] == ["unreachable"]
    assert out["exit_code"] == ExitCode.UNREACHABLE


def test_table_goes_to_stdout_and_problems_to_stderr(monkeypatch, tmp_path: Path, fleet, capsys) -> None:
    fleet["n2"] = GpustrapError(Problem("unreachable", "node n2", "does not answer", ExitCode.UNREACHABLE))
    monkeypatch.setattr(inventory, "load_nodes", lambda *_: nodes("n1", "n2"))
    assert run_cli(monkeypatch, "--site", str(tmp_path)) == ExitCode.UNREACHABLE
    out, err = capsys.readouterr()
    assert "Ubuntu 24.04.3 LTS" in out
    assert "does not answer" in err
    assert "does not answer" not in out


def test_packages_of_a_dpkg_at_work_are_not_called_broken() -> None:
    lock = {"path": "/var/lib/dpkg/lock", "pid": 7, "command": "apt-get"}
    found = facts("container", package_manager__broken=["a (unpacked)"], package_manager__locks=[lock])
    assert "not fully installed" not in messages(found)


def test_long_answers_are_cut_on_the_card() -> None:
    shown = text("n1", facts("container", notes=["x"] * 500, package_manager__source_problems=["y"] * 500))
    assert len(shown.splitlines()) < 120
    assert "and 480 more" in shown
