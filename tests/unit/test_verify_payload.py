"""The checks that run on a node: each case of tests/cases/verify, and what a table cannot say."""

from __future__ import annotations

import io
import os
import socket
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.verify.gpustrap_verify import conda, docker, host, main, rootfs
from gpustrap.verify.gpustrap_verify.node import ENVIRONMENT, Node, Result, run_command, shorten

SOME_FILESYSTEM = tuple(os.statvfs("/"))
CASES = Path(__file__).parents[1] / "cases" / "verify"
Execute = Callable[..., Result]


def load_cases() -> list[Any]:
    loaded = [(file.stem, case) for file in sorted(CASES.glob("*.yml")) for case in yaml.safe_load(file.read_text())]
    return [pytest.param(case, id=f"{stem}: {case['name']}") for stem, case in loaded]


def scripted(commands: dict[str, Any]) -> Execute:
    """Answers with the words of the longest beginning of the command line that the case has."""

    def execute(argv: list[str], *_: object) -> Result:
        line = " ".join(argv).replace("docker --host unix:///var/run/docker.sock", "docker")
        found = max((c for c in commands if line.startswith(c)), key=len, default=None)
        if found is None:
            return Result(None, problem=f"{argv[0]} is not in this case")
        return Result(**{"rc": 0, **commands[found]})

    return execute


def make_node(root: Path, execute: Execute, seconds: float = 60) -> Node:
    return Node("run1", time.monotonic() + seconds, root, execute)


@pytest.mark.parametrize("case", load_cases())
def test_case(case: dict[str, Any], tmp_path: Path) -> None:
    for name, text in case.get("files", {}).items():
        file = tmp_path / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
    args = dict(case["args"])
    if "controller" in args:  # cases give it as seconds from now
        args["controller"] += time.time()
    node = make_node(tmp_path, scripted(case["commands"]))
    found = main.run(node, case["check"], args)
    expected = dict(case["expect"])
    assert found["verdict"] == expected.pop("verdict"), found
    for word in expected.pop("absent", []):
        assert word not in str(found)
    for part, words in expected.items():
        assert words in found[part], found
    assert found["verdict"] == "pass" or found["reason"]


def test_every_check_fails_and_none_breaks_when_nothing_on_the_node_works(tmp_path: Path) -> None:
    arguments: dict[str, dict[str, Any]] = {
        "systemd-healthy": {"units": []},
        "clock-sane": {"controller": time.time(), "ahead": 60, "service": "chrony.service"},
        "driver-loaded": {"version": "595.91.07"},
        "docker-daemon": {"packages": []},
        "docker-config": {"daemon": {}},
        "docker-runs-a-container": {},
        "conda-version": {"prefix": "/opt/conda", "version": "1.2.3"},
        "conda-creates-an-environment": {"prefix": "/c", "channels": ["x"], "packages": ["p"], "program": ["bin/p"]},
    }
    for problem in ("x cannot be run: No such file or directory", "x stopped after 30 s"):
        node = make_node(tmp_path, lambda *_, problem=problem: Result(None, problem=problem))
        for name, args in arguments.items():
            found = main.run(node, name, args)
            assert found["verdict"] == "fail", found
            assert "itself broke" not in found["reason"], found


def test_a_check_that_breaks_has_failed_and_the_others_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setitem(main.CHECKS, "docker-daemon", breaks)
    checks = {"docker-daemon": {}, "no-such-check": {}, "sudo-works": {}}
    answer = main.main({"args": {"run_id": "r", "seconds": 5, "checks": checks}, "root": str(tmp_path)})
    broken, unknown, root = answer["data"]["checks"]
    assert (broken["verdict"], unknown["verdict"]) == ("fail", "fail")
    assert "oops" in broken["reason"]
    assert root["verdict"] == ("pass" if os.geteuid() == 0 else "fail")


def test_two_verifications_at_a_time_are_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind("\0gpustrap-verify")
        answer = main.main({"args": {"run_id": "r", "seconds": 5, "checks": {}}})
    assert answer["error"]["code"] == "busy"
    assert main.main({"args": {"run_id": "r", "seconds": 5, "checks": {}}})["ok"] is True


def test_a_command_past_its_time_is_killed_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    start = time.monotonic()
    result = run_command(["sh", "-c", f"sleep 60 & echo $! > {pid}; wait"], 0.5)
    assert time.monotonic() - start < 5
    assert result.rc is None
    assert "stopped after" in result.problem
    for _ in range(50):
        if not Path(f"/proc/{pid.read_text().strip()}").exists():
            return
        state = Path(f"/proc/{pid.read_text().strip()}/stat").read_text().rsplit(")", 1)[1].split()[0]
        if state == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the child still runs")


def test_a_command_that_does_not_exist_is_data() -> None:
    result = run_command(["/no/such/program"], 5)
    assert result.rc is None
    assert "No such file" in result.words


def test_no_check_runs_past_the_deadline_but_cleaning_does(tmp_path: Path) -> None:
    node = make_node(tmp_path, lambda *_: Result(0, "ran"), seconds=-1)
    assert "used up" in node.run("true").problem
    with node.cleaning():
        assert node.run("true").ok
    assert not node.run("true").ok


def container_runtime(log: list[list[str]], listed: str = "") -> Execute:
    """A docker that reads the token of the image it is given and gives it back."""
    token: list[str] = []

    def execute(argv: list[str], _timeout: float, stdin: bytes, _environment: object) -> Result:
        log.append(list(argv[3:] if argv[0] == "docker" else argv))
        if argv[0] == "ldd":
            return Result(0, "\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\t/lib64/ld.so (0x00007e)\n")
        verb = argv[3]
        if verb == "import":
            with tarfile.open(fileobj=io.BytesIO(stdin)) as image:
                names = image.getnames()
                token.append(image.extractfile("token").read().decode().strip())  # type: ignore[union-attr]
            assert names == ["bin/sh", "lib/libc.so.6", "lib64/ld.so", "token"]
            return Result(0, "sha256:feed\n")
        if verb == "run":
            lines = [token[0], "lo"] + ["eth0"] * ("bridge" in argv)
            return Result(0, "\n".join(lines))
        return Result(0, listed)

    return execute


def make_shell(root: Path) -> None:
    for name in ("bin/sh", "lib/libc.so.6", "lib64/ld.so"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("binary")


def test_a_container_runs_without_a_network_and_on_the_bridge(tmp_path: Path) -> None:
    make_shell(tmp_path)
    log: list[list[str]] = []
    found = docker.container(make_node(tmp_path, container_runtime(log)), {})
    assert found.verdict == "pass", found
    runs = [line for line in log if line[0] == "run"]
    assert [line[line.index("--network") + 1] for line in runs] == ["none", "bridge"]
    assert all("gpustrap.run=run1" in line and "--rm" in line for line in runs)
    assert ["import", "--change", "LABEL gpustrap.run=run1", "-"] in log


def test_what_carries_our_label_is_removed_before_and_after(tmp_path: Path) -> None:
    make_shell(tmp_path)
    log: list[list[str]] = []
    docker.container(make_node(tmp_path, container_runtime(log, listed="old1\nold1\nold2\n")), {})
    removals = [line for line in log if line[0] in {"rm", "rmi"}]
    assert [line[0] for line in removals] == ["rm", "rmi", "rm", "rmi"]
    assert all(line[-2:] == ["old1", "old2"] for line in removals)
    assert all("label=gpustrap.run" in line for line in log if line[0] in {"ps", "images"})


def test_a_container_without_an_interface_on_the_bridge_is_a_failure(tmp_path: Path) -> None:
    make_shell(tmp_path)
    runtime = container_runtime([])

    def execute(argv: list[str], *rest: Any) -> Result:
        result = runtime(argv, *rest)
        return Result(0, result.out.replace("eth0", "")) if "bridge" in argv else result

    found = docker.container(make_node(tmp_path, execute), {})
    assert (found.verdict, "no network interface" in found.reason) == ("fail", True)


def test_libraries_of_every_form_that_ldd_prints() -> None:
    lines = [
        "linux-vdso.so.1 (0x00007ffd)",
        "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1)",
        "/lib64/ld-linux-x86-64.so.2 (0x00007f2)",
    ]
    text = "".join(f"\t{line}\n" for line in lines)
    assert rootfs.libraries(text) == ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
    assert rootfs.libraries("\tnot a dynamic executable\n") == []


def test_an_environment_is_made_in_a_private_place_and_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "var" / "tmp"
    place.mkdir(parents=True)
    left = place / "gpustrap-verify-old"
    left.mkdir()
    foreign = place / "gpustrap-verify-link"
    foreign.symlink_to(tmp_path)
    seen: dict[str, str] = {}

    def execute(argv: list[str], _timeout: float, _stdin: bytes, environment: dict[str, str]) -> Result:
        if argv[0] == "/opt/conda/bin/conda":
            home = Path(environment["HOME"])
            seen.update(environment, mode=oct(home.stat().st_mode & 0o777), argv=" ".join(argv))
            return Result(0)
        return Result(0, argv[-1].split("'")[1] + "\n")

    args = {
        "prefix": "/opt/conda",
        "channels": ["conda-forge", "mine"],
        "packages": ["python"],
        "program": ["bin/python", "-c", "print('TOKEN')"],
        "proxy": {"https_proxy": "http://proxy:3128"},
    }
    found = conda.environment(make_node(tmp_path, execute), args)
    assert found.verdict == "pass", found
    assert seen["mode"] == "0o700"
    assert seen["CONDA_PKGS_DIRS"] == f"{seen['HOME']}/pkgs,/opt/conda/pkgs"
    assert "--override-channels --channel conda-forge --channel mine python" in seen["argv"]
    assert seen["https_proxy"] == "http://proxy:3128"
    assert list(place.iterdir()) == [foreign]  # neither what we made nor what a killed run left


def statvfs(*, free: int, inodes: int = 10**6, all_inodes: int = 10**7, flags: int = 0) -> Any:
    fields = list(SOME_FILESYSTEM)
    fields[0:2], fields[4], fields[5], fields[7], fields[8] = [4096, 4096], free // 4096, all_inodes, inodes, flags
    return os.statvfs_result(fields)


@pytest.mark.parametrize(
    ("found", "boot", "verdict"),
    [
        (statvfs(free=10**11), False, "pass"),
        (statvfs(free=10**9), False, "warn"),
        (statvfs(free=10**8), False, "fail"),
        (statvfs(free=0), False, "fail"),
        (statvfs(free=2 * 10**8), True, "pass"),
        (statvfs(free=7 * 10**7), True, "warn"),
        (statvfs(free=10**7), True, "fail"),
        (statvfs(free=10**11, inodes=10), False, "fail"),
        (statvfs(free=10**11, inodes=5000), False, "warn"),
        (statvfs(free=10**11, inodes=0, all_inodes=0), False, "pass"),
        (statvfs(free=10**11, flags=os.ST_RDONLY), False, "fail"),
    ],
)
def test_room_of_a_filesystem(found: Any, boot: bool, verdict: str) -> None:
    assert host.room(found, boot=boot)[0] == verdict


def test_disk_names_the_filesystem_and_looks_at_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def look(path: str) -> Any:
        asked.append(path)
        return statvfs(free=1000)

    monkeypatch.setattr(host.os, "statvfs", look)
    node = make_node(tmp_path, lambda *_: Result(0, "Filesystem …"))
    found = host.disk(node, {"paths": ["/", "/var", "/opt/not/there/yet"]})
    assert (found.verdict, found.reason) == ("fail", "/ has 0 MiB left")
    assert len(asked) == 1


def test_long_evidence_keeps_both_ends() -> None:
    text = shorten("cause" + "x" * 10000 + "end")
    assert text.startswith("cause")
    assert text.endswith("end")
    assert len(text) < 1600


def test_the_environment_of_commands_holds_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_PASSWORD", "hunter2")
    assert "hunter2" not in run_command(["env"], 5, b"", ENVIRONMENT).out
