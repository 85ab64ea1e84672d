"""A verification of four nodes: two with eight H100 each, one with two RTX 3090, one that cannot be reached."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.certificate import Certificate, Fleet, Gpu, Hardware
from gpustrap.model.check import Check, Measure, Series, Verdict
from gpustrap.model.lock import Choice

Make = Callable[..., Any]


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-89ab-cdef-0123-456789abcdef"


def hopper(text: str = "") -> Hardware:
    slots = ["19", "3b", "4c", "5d", "9b", "bb", "cb", "db"]
    gpus = tuple(
        Gpu(
            address=f"{text}{number}" if text else f"0000:{slot}:00.0",
            name=text or "H100 SXM5",
            pci_id=f"10de:{text or 2330}",
            uuid=uuid(number),
            driver="nvidia",
            link_width=16,
            link_width_max=16,
            link_speed=32.0,
            link_speed_max=32.0,
            numa_node=number // 4,
            bridges=tuple(f"{text}0000:{number // 2}{end}" for end in ("0:01.0", "1:00.0", f"2:0{number % 2}.0")),
            nvlink="NVLink4 900 GB/s",
        )
        for number, slot in enumerate(slots)
    )
    return Hardware(
        os=text or "Ubuntu 24.04.3 LTS, x86_64",
        kernel=text or "6.8.0-88-generic",
        virtualization=text or "none",
        secure_boot=True,
        cpu=text or "INTEL(R) XEON(R) PLATINUM 8558",
        threads=192,
        memory=2164000000000,
        driver=text or "580.95.05",
        flavour="open",
        gpus=gpus,
        switches=tuple(f"{text}0000:0{number}:00.0" for number in range(4, 8)),
    )


def home() -> Hardware:
    gpus = tuple(
        Gpu(
            address=f"0000:0{slot}:00.0",
            name="GeForce RTX 3090",
            pci_id="10de:2204",
            uuid=uuid(20 + slot),
            driver="nvidia",
            link_width=width,
            link_width_max=16,
            link_speed_max=16.0,
            bridges=(f"0000:00:0{slot}.0",),
            nvlink="NVLink3 bridge 112.5 GB/s",
        )
        for slot, width in ((1, 16), (2, 1))
    )
    machine = hopper()
    changed = {
        "os": "Debian GNU/Linux 13 (trixie), x86_64",
        "cpu": "AMD Ryzen 9 5950X 16-Core Processor",
        "threads": 32,
    }
    return machine.model_copy(update={**changed, "memory": 67_000_000_000, "gpus": gpus, "switches": ()})


def choices(text: str = "", *, simulated: bool = False) -> tuple[Choice, ...]:
    rows = [
        ("driver", "580.95.05 open", "newest of the production branch that drives H100 SXM5", "catalog: drivers, 580"),
        ("cuda", "13.0.2", "newest that driver 580 supports", "catalog: cuda, 13.0"),
        ("docker", "28.5.1", "newest in the archive", "apt"),
        ("environment-torch", "pytorch 2.9.1+cu130", "newest build for compute capability 9.0", "catalog: frameworks"),
    ]
    return tuple(
        Choice(item=text or a, value=text or b, reason=text or c, source=text or d, simulated=simulated)
        for a, b, c, d in rows
    )


def curve(name: str, unit: str, number: int, base: float, swing: float) -> Series:
    points = tuple(
        (600.0 * m, round(base + swing * (1 - math.exp(-m / 3)) + math.sin(m / 2 + number), 2)) for m in range(48)
    )
    return Series(name=name, subject=uuid(number), unit=unit, points=points)


def hopper_checks(text: str = "", *, slow: int | None = None) -> tuple[Check, ...]:
    speeds = [731.0, 728.4, 735.2, 729.9, 726.1, 733.0, 730.5, 727.7]
    if slow is not None:
        speeds[slow] = 640.0
    matmul = [
        Measure(
            name="matmul-bf16",
            subject=f"{text[:100]}{uuid(number)}",
            kind="NVIDIA H100 80GB HBM3, 132 multiprocessors",
            value=speed,
            unit="TFLOPS",
            expected=730,
            source=text or "gpu-fryer README, H100 SXM bf16",
            verdict=Verdict.FAIL if speed < 660 else Verdict.PASS,
        )
        for number, speed in enumerate(speeds)
    ]
    peers = [
        Measure(name="peer-copy", subject=uuid(a), peer=uuid(b), value=372.4 + a - b, unit="GB/s", verdict=Verdict.PASS)
        for a in range(8)
        for b in range(8)
        if a != b
    ]
    bad = slow is not None
    return (
        Check(id="ssh-login", title="A new SSH login works", verdict=Verdict.PASS, seconds=0.3),
        Check(
            id="gpu-matmul",
            title=text or "Products are right on every GPU",
            verdict=Verdict.FAIL if bad else Verdict.PASS,
            reason=text
            or ("GPU 0000:4c:00.0 is 12 % behind the best of this node" if bad else "fp32, fp16, bf16, tf32"),
            evidence=text or ("matmul-bf16: 640 of 735 TFLOPS" if bad else ""),
            remedy=text or ("on the node: nvidia-smi -q -d PERFORMANCE; then gpustrap verify n1" if bad else ""),
            seconds=14.2,
            measures=tuple(matmul),
        ),
        Check(id="gpu-peers", title="GPUs copy to each other", verdict=Verdict.PASS, seconds=8, measures=tuple(peers)),
        Check(
            id="burnin",
            title="All GPUs work for eight hours",
            verdict=Verdict.PASS,
            seconds=28800,
            series=tuple(curve("temperature", "°C", n, 34, 32 + n) for n in range(8))
            + tuple(curve("clock", "MHz", n, 1980, -60 - 5 * n) for n in range(8)),
        ),
        Check(id="conda-version", title="Conda is the locked version", verdict=Verdict.SKIP, reason="not in the lock"),
    )


def home_checks() -> tuple[Check, ...]:
    fast, slow = uuid(21), uuid(22)
    copies = [
        Measure(name="host-to-gpu", subject=fast, value=25.1, unit="GB/s", expected=26, verdict=Verdict.PASS),
        Measure(name="host-to-gpu", subject=slow, value=1.6, unit="GB/s", expected=1.7, verdict=Verdict.WARN),
        Measure(name="peer-copy", subject=fast, peer=slow, value=51.2, unit="GB/s", verdict=Verdict.PASS),
        Measure(name="peer-copy", subject=slow, peer=fast, value=51.0, unit="GB/s", verdict=Verdict.PASS),
    ]
    return (
        Check(
            id="gpu-bandwidth",
            title="Copies bring the same data",
            verdict=Verdict.WARN,
            reason="GPU 0000:02:00.0 has 1 of its 16 lanes",
            evidence="link width x1, the card has x16",
            remedy="on the node: lspci -vv -s 02:00.0 shows the link of its slot",
            seconds=3.1,
            measures=tuple(copies),
        ),
        Check(id="disk-has-room", title="Filesystems have room", verdict=Verdict.PASS, seconds=0.02),
    )


def certificate(name: str = "n1", **changed: Any) -> Certificate:
    found = {
        "node": name,
        "verdict": Verdict.PASS,
        "level": "burnin",
        "run": "20261201T040000Z-1a2b3c",
        "started": "2026-12-01T04:00:00+00:00",
        "tool": "1.2.3",
        "catalog": "sha256:0123456789abcdef",
        "simulated": False,
        "hardware": hopper(),
        "stack": choices(),
        "checks": hopper_checks(),
        **changed,
    }
    return Certificate.model_validate(found)


def fleet(*nodes: Certificate, **changed: Any) -> Fleet:
    found = {
        "level": "burnin",
        "run": "20261201T040000Z-1a2b3c",
        "started": "2026-12-01T04:00:00+00:00",
        "seconds": 28912.0,
        "tool": "1.2.3",
        "catalog": "sha256:0123456789abcdef",
        "nodes": nodes,
        "exit_code": ExitCode.OK,
        **changed,
    }
    return Fleet.model_validate(found)


@pytest.fixture
def make_certificate() -> Make:
    return certificate


@pytest.fixture
def make_fleet() -> Make:
    return fleet


@pytest.fixture
def whole() -> Fleet:
    """The whole verification."""
    problem = Problem(
        code="unreachable",
        subject="node rack2-n4",
        message="does not answer",
        exit_code=ExitCode.UNREACHABLE,
        evidence="ssh: connect to host 192.0.2.14 port 22: No route to host",
        remedy="gpustrap inspect rack2-n4",
    )
    return fleet(
        certificate("rack1-n1"),
        certificate("rack1-n2", verdict=Verdict.FAIL, checks=hopper_checks(slow=2)),
        certificate(
            "lab-n3",
            verdict=Verdict.WARN,
            hardware=home(),
            checks=home_checks(),
            stack=choices(simulated=True),
            simulated=True,
        ),
        problems=(problem,),
        exit_code=ExitCode.VERIFY_FAILED,
    )


@pytest.fixture
def hostile() -> Callable[[str], Fleet]:
    """One node, with a text wherever it has words of its own."""

    def make(text: str) -> Fleet:
        words = text[:200]
        node = certificate(
            hardware=hopper(words), stack=choices(words), checks=hopper_checks(words, slow=1), verdict="fail"
        )
        return fleet(node, exit_code=ExitCode.VERIFY_FAILED)

    return make
