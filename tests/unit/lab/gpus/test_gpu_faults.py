"""The table of faults: every kind works on a board that can have it; what a person gets wrong is told."""

import os
import re
from pathlib import Path

import pytest

from gpustrap.lab.gpus import faults, klog, state
from gpustrap.lab.gpus import machine as gpus
from gpustrap.lab.gpus.machine import Fault, GpuError, inject

BOARDS = {"retires_pages": "1x-t4", "": "4x-rtx3090", "gsp": "4x-rtx3090", "bridge": "4x-rtx3090"}


@pytest.mark.parametrize("kind", faults.GPU)
def test_every_fault_has_a_board(kind):
    there = gpus.machine(BOARDS.get(faults.GPU[kind].needs, "8x-h100-sxm"), gpus.driver())
    found = inject(there, Fault(kind, 0))
    assert found.fault(kind, 0) == faults.GPU[kind].value
    assert state.parse(state.text(found)) == found


@pytest.mark.parametrize("kind", faults.MACHINE)
def test_every_fault_of_a_machine(kind):
    there = inject(gpus.machine("1x-t4", gpus.driver()), Fault(kind))
    assert state.parse(state.text(there)) == there


def test_the_value_that_a_fault_has_is_one_that_it_takes():
    for kind in (*faults.GPU.values(), *faults.MACHINE.values()):
        assert kind.trouble(kind.value) == ""
        assert bool(kind.form) is bool(kind.takes)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("narrow", 0, "3"), "fault narrow takes 1, 2, 4, 8 or 16 lanes, not 3"),
        (Fault("lost", 0, "now"), "fault lost takes no value, and now was given"),
        (Fault("xid", 0, "79\n0.name=x"), "takes a code"),
        (Fault("nvlink-down", 0), "RTX 3090 cannot have nvlink-down"),
        (Fault("fabric-pending", 0), "cannot have fabric-pending"),
    ],
)
def test_wrong_faults_are_refused(fault, words):
    with pytest.raises(GpuError, match=words):
        inject(gpus.machine("4x-rtx3090", gpus.driver()), fault)


def test_a_board_without_gsp_has_no_timeout_of_it():
    with pytest.raises(GpuError, match="GTX 1080 Ti cannot have gsp-timeout"):
        inject(gpus.machine("1x-gtx1080ti"), Fault("gsp-timeout", 0))


def test_docs_name_every_fault():
    words = (Path(__file__).parents[4] / "docs/lab-gpus.md").read_text(encoding="utf-8")
    first = [line.split("|")[1] for line in words.splitlines() if line.startswith("| `")]
    rows = {word for cell in first for word in re.findall(r"`([\w-]+)`", cell)}
    assert rows >= {*faults.GPU, *faults.MACHINE}


def test_records_for_the_journal_come_one_a_read(tmp_path):
    """As from the real /dev/kmsg: journald takes one record out of a read, whatever else is in it."""
    kmsg = tmp_path / "kmsg"
    os.mkfifo(kmsg)
    reader = os.open(kmsg, os.O_RDWR | os.O_NONBLOCK)
    try:
        klog.write(["NVRM: one\n", "NVRM: two\n"], kmsg, tmp_path / "counter")
        klog.write(["NVRM: three\n"], kmsg, tmp_path / "counter")
        records = [os.read(reader, 8192).decode() for _ in range(3)]
    finally:
        os.close(reader)
    found = [re.fullmatch(r"4,(\d),(\d+),-;(NVRM: \w+)\n", record).groups() for record in records]
    assert [number for number, _, _ in found] == ["0", "1", "2"]
    assert [words for _, _, words in found] == ["NVRM: one", "NVRM: two", "NVRM: three"]
    assert int(found[0][1]) <= int(found[2][1])
