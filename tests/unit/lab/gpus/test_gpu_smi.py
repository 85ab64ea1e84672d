"""The lab's nvidia-smi: against captures of real machines, against NVML's answers, and with every fault."""

import ast
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gpustrap.lab.gpus import machine as gpus
from gpustrap.lab.gpus import state
from gpustrap.lab.gpus.machine import Fault, inject

CSV = ("--format=csv,noheader,nounits",)


def paths(words):
    """The elements of a document that nvidia-smi always prints, in order; lists of clocks and processes left out."""
    lists = {"supported_clocks", "processes", "mig_devices", "accounted_processes"}

    def walk(element, above):
        for child in element:
            yield f"{above}/{child.tag}"
            if child.tag not in lists:
                yield from walk(child, f"{above}/{child.tag}")

    root = ET.fromstring(words)
    gpu = root.find("gpu")
    return [*(child.tag for child in root if child.tag != "gpu"), *walk(gpu, "gpu")]


@pytest.mark.parametrize(
    ("name", "profile", "branch"),
    [
        ("rtx-3090-v12", "1x-rtx3090", "525"),
        ("rtx-3080-v13", "1x-rtx3090", "595"),  # another board of the same kind
        ("tesla-t4", "1x-t4", "515"),
    ],
)
def test_xml_has_the_elements_of_the_real_one(node, name, profile, branch, real):
    theirs = real.text(f"nvidia-smi-xml/{name}.xml")
    ours = node.smi(gpus.machine(profile, gpus.driver(branch)), "-q", "-x").stdout
    assert set(paths(ours)) == set(paths(theirs))
    assert ours.splitlines()[1] == theirs.splitlines()[1]


def test_text_has_the_lines_of_the_real_one(node, real):
    _, theirs = real.section(real.H100, "idle :: query (-q)")
    ours = node.smi(gpus.machine("8x-h100-sxm", gpus.driver("590")), "-q", "-i", "0").stdout
    assert real.labels(ours) == real.labels(theirs)
    assert next(line.index(" : ") for line in ours.splitlines() if " : " in line) == theirs.splitlines()[2].index(" : ")


def masked(words):
    """A table with its values put out of sight: what is left is its form."""
    return [re.sub(r"[^|+\-=]", " ", line) for line in words.splitlines()[1:]]


def test_table_has_the_form_of_the_real_one(node, real):
    _, theirs = real.section(real.H100, "idle :: nvidia-smi")
    ours = node.smi(gpus.machine("8x-h100-sxm", gpus.driver("590")), "-i", "0").stdout
    assert [len(line) for line in ours.splitlines()] == [len(line) for line in theirs.splitlines()]
    same = [at for at, line in enumerate(theirs.splitlines()) if at not in (0, 8, 9)]
    assert [ours.splitlines()[at] for at in same] == [theirs.splitlines()[at] for at in same]


def test_header_of_610_names_kmd_and_umd(node, real):
    _, theirs = real.section(real.TURING_610, "idle :: nvidia-smi")
    there = gpus.machine("1x-rtx3090", gpus.driver("610"))
    assert node.smi(there).stdout.splitlines()[2] == theirs.splitlines()[2]
    _, theirs = real.section(real.TURING_610, "capabilities :: version")
    assert node.smi(there, "--version").stdout.strip() == theirs.strip()
    assert "KMD Version: 610.57.04" in node.smi(there).stdout


@pytest.mark.parametrize(
    ("name", "profile", "branch"), [("H100", "8x-h100-sxm", "590"), ("TURING_610", "1x-rtx3090", "610")]
)
def test_csv_has_the_fields_of_the_real_one(node, name, profile, branch, real):
    command, theirs = real.section(getattr(real, name), "idle :: query-gpu")
    query = re.search(r"--query-gpu=(\S+)", command).group(1)
    head, values = (line.split(", ") for line in theirs.strip().splitlines()[:2])
    done = node.smi(gpus.machine(profile, gpus.driver(branch)), f"--query-gpu={query}", "--format=csv", "-i", "0")
    ours_head, ours = (line.split(", ") for line in done.stdout.splitlines())
    assert ours_head == head
    if profile == "8x-h100-sxm":
        kinds = [re.sub(r"[\d.]+", "1", value) for value in values]
        ours_kinds = [re.sub(r"[\d.]+", "1", value) for value in ours]
        differ = {key for key, a, b in zip(head, kinds, ours_kinds, strict=True) if ("N/A" in a) != ("N/A" in b)}
        assert differ <= {"pcie.link.gen.hostmax"}  # the captured machine is a virtual one
    node.smi(gpus.machine(profile, gpus.driver(branch)), "--help-query-gpu")


def test_every_field_has_an_answer_in_every_profile(node):
    for profile in ("1x-gtx1080ti", "1x-t4", "8x-b200", "2x-rtx4090"):
        there = gpus.machine(profile, gpus.driver("580", "proprietary" if "1080" in profile else "open"))
        names = re.findall(r'^"(\S+)"$', node.smi(there, "--help-query-gpu").stdout, re.MULTILINE)
        assert len(names) > 200
        done = node.smi(there, f"--query-gpu={','.join(names)}", *CSV)
        assert done.returncode == 0, done.stderr
        assert {len(line.split(", ")) for line in done.stdout.splitlines()} == {len(names)}
        ET.fromstring(node.smi(there, "-q", "-x").stdout)


AGREE = {
    "index": "minor",
    "name": "name",
    "uuid": "uuid",
    "memory.total": lambda one: one["memory2"]["total"] >> 20,
    "memory.free": lambda one: one["memory2"]["free"] >> 20,
    "temperature.gpu": "temp",
    "power.draw": lambda one: f"{one['power'] / 1000:.2f}" if isinstance(one["power"], int) else "[Unknown Error]",
    "pcie.link.width.current": "width",
    "pcie.link.gen.max": "gen_max",
    "ecc.errors.uncorrected.volatile.total": "unc",
    "ecc.errors.corrected.volatile.total": "cor",
    "remapped_rows.pending": lambda one: "[N/A]" if one["remapped"] == "!3" else ("No", "Yes")[one["remapped"][2]],
    "mig.mode.current": lambda one: "[N/A]" if one["mig"] == "!3" else ("Disabled", "Enabled")[one["mig"][0]],
    "ecc.mode.pending": lambda one: "[N/A]" if one["ecc"] == "!3" else ("Disabled", "Enabled")[one["ecc"][1]],
    "retired_pages.pending": lambda one: {"!3": "[N/A]", 0: "No", 1: "Yes"}[one["retired_pending"]],
    "clocks_event_reasons.active": lambda one: f"0x{one['reasons']:016X}",
    "fan.speed": "fan",
    "gpu_recovery_action": lambda one: ("None", "Reset", "Reboot")[one["fields"]["recovery"]],
    "compute_cap": lambda one: ".".join(map(str, one["compute"])),
}
SHOWN = {"!3": "[N/A]", "!999": "[Unknown Error]"}
# Every fault of a GPU that shows in a value: what it changes in nvidia-smi's answer.
VISIBLE = [
    ("8x-h100-sxm", Fault("xid", 3, "48"), {"gpu_recovery_action": "Reset"}),
    ("8x-h100-sxm", Fault("ecc-corrected", 3, "70"), {"ecc.errors.corrected.volatile.total": "70"}),
    ("8x-h100-sxm", Fault("ecc-uncorrected", 3, "2"), {"ecc.errors.uncorrected.volatile.total": "2"}),
    ("8x-h100-sxm", Fault("ecc-pending", 3), {"ecc.mode.pending": "Disabled"}),
    ("8x-h100-sxm", Fault("remap-pending", 3), {"remapped_rows.pending": "Yes"}),
    ("8x-h100-sxm", Fault("remap-failed", 3), {"remapped_rows.failure": "Yes", "remapped_rows.histogram.none": "1"}),
    ("8x-h100-sxm", Fault("mig", 3), {"mig.mode.current": "Enabled", "utilization.gpu": "[N/A]"}),
    ("8x-h100-sxm", Fault("hot", 3), {"temperature.gpu": "90", "temperature.gpu.tlimit": "-3"}),
    ("1x-t4", Fault("retired-pending", 0), {"retired_pages.pending": "Yes"}),
    ("4x-rtx3090", Fault("throttled", 2), {"clocks_event_reasons.hw_power_brake_slowdown": "Active"}),
    ("4x-rtx3090", Fault("narrow", 2), {"pcie.link.width.current": "8"}),
    ("4x-rtx3090", Fault("slow-link", 2, "2"), {"pcie.link.gen.current": "2"}),
    ("4x-rtx3090", Fault("err", 2), {"fan.speed": "[Unknown Error]", "power.draw": "[Unknown Error]"}),
]


def rows(done, names):
    return [dict(zip(names, line.split(", "), strict=True)) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("profile", "fault", "wanted"), VISIBLE, ids=lambda value: getattr(value, "kind", ""))
def test_a_fault_shows_and_nvml_agrees(node, profile, fault, wanted):
    there = inject(gpus.machine(profile, gpus.driver("580")), fault)
    names = list(dict.fromkeys([*AGREE, *wanted]))
    found = rows(node.smi(there, f"--query-gpu={','.join(names)}", *CSV), names)
    assert {key: found[fault.gpu][key] for key in wanted} == wanted
    assert not any(wanted.items() <= row.items() for at, row in enumerate(found) if at != fault.gpu), (
        "the fault is of one GPU"
    )
    for row, one in zip(found, node.nvml(there)["gpus"], strict=True):
        for key, source in AGREE.items():
            said = source(one) if callable(source) else one[source]
            assert row[key] == SHOWN.get(said, str(said)), key
    for arguments in ((), ("-q",), ("-q", "-x")):
        assert node.smi(there, *arguments).returncode == 0


def test_errors_in_the_table_are_err(node):
    words = node.smi(inject(gpus.machine("1x-rtx3090", gpus.driver()), Fault("err", 0))).stdout
    assert "|ERR!   37C    P8            ERR! /  350W |" in words
    assert "Unknown Error" in node.smi(inject(gpus.machine("1x-rtx3090", gpus.driver()), Fault("err", 0)), "-q").stdout


def test_a_lost_gpu_ends_everything_but_a_query_of_another(node):
    there = inject(gpus.machine("4x-rtx3090", gpus.driver()), Fault("lost", 1))
    for arguments in ((), ("-L",), ("-q", "-x"), ("--query-gpu=name", "--format=csv")):
        done = node.smi(there, *arguments)
        assert done.returncode == 15
        assert "Unable to determine the device handle for GPU0000:41:00.0: GPU is lost" in done.stdout
    assert node.smi(there, "-L", "-i", "0").returncode == 0


def test_a_missing_gpu_is_not_listed(node):
    done = node.smi(inject(gpus.machine("8x-b200", gpus.driver()), Fault("missing", 2)), "-L")
    assert len(done.stdout.splitlines()) == 7


@pytest.mark.parametrize(
    ("there", "code", "words"),
    [
        (
            inject(gpus.machine("1x-t4", gpus.driver("590")), Fault("version-mismatch")),
            18,
            "NVML library version: 590.48",
        ),
        (inject(gpus.machine("1x-t4", gpus.driver()), Fault("nvml-error")), 255, "Failed to initialize NVML: Unknown"),
        (gpus.machine("1x-t4"), 9, "couldn't communicate with the NVIDIA driver"),
        (gpus.machine("no-gpu", gpus.driver()), 6, "No devices were found"),
        (gpus.machine("1x-gtx1080ti", gpus.driver()), 6, "No devices were found"),  # the open modules do not bind it
    ],
    ids=["mismatch", "nvml-error", "no-module", "no-gpu", "not-bound"],
)
def test_nvml_does_not_start(node, there, code, words):
    for arguments in ((), ("-L",), ("--query-gpu=name", "--format=csv,noheader")):
        done = node.smi(there, *arguments)
        assert done.returncode == code
        assert words in done.stdout


def test_a_hung_gpu_hangs(node):
    there = inject(gpus.machine("4x-rtx3090", gpus.driver()), Fault("hung", 1))
    with pytest.raises(subprocess.TimeoutExpired):
        node.smi_process(there, timeout=2)
    assert node.smi_process(there, "-L", "-i", "0").returncode == 0


def test_bad_questions_are_refused(node):
    there = gpus.machine("1x-t4", gpus.driver())
    done = node.smi(there, "--query-gpu=name,colour", "--format=csv")
    assert (done.returncode, done.stdout.splitlines()[0]) == (2, 'Field "colour" is not a valid field to query.')
    assert node.smi(there, "--query-gpu=name").returncode == 2
    assert (node.smi(there, "--dance").returncode, node.smi(there, "-i").returncode) == (255, 255)
    assert node.smi(gpus.machine("1x-t4", gpus.driver("535")), "--version").returncode == 255
    assert node.smi(there, "-L", "-i", "7").returncode == 6
    assert node.smi(there, "--query-gpu=kmd_version", "--format=csv").returncode == 2
    assert "simulated" in node.smi(there, "-h").stdout


def test_the_question_of_the_probe(node):
    there = gpus.machine("4x-rtx3090", gpus.driver())
    done = node.smi(there, "--query-gpu=pci.bus_id", "--format=csv,noheader")
    assert done.stdout.splitlines()[1] == "00000000:41:00.0"
    assert node.smi(there, "--query-gpu=pci.bus_id", "--format=csv").stdout.startswith("pci.bus_id\n")


def test_it_is_syntax_of_the_oldest_python_of_a_node():
    for path in (Path(gpus.__file__).parent / "smi").glob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))


def test_it_runs_with_a_bare_python(node):
    assert node.smi_process(inject(gpus.machine("1x-t4", gpus.driver()), Fault("nvml-error"))).returncode == 255
    state.write(node.state, gpus.machine("1x-t4", gpus.driver()))
    done = subprocess.run(
        ["/usr/bin/env", "-i", f"LAB_GPU_STATE={node.state}", "python3", "-I", str(node.smi_program), "-L"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert "Tesla T4" in done.stdout, done.stderr


def test_state_is_read_anew(node):
    there = gpus.machine("1x-t4", gpus.driver())
    assert node.smi(there, "--query-gpu=temperature.gpu", *CSV).stdout == "32\n"
    state.write(node.state, inject(there, Fault("hot", 0, "88")))
    assert node.smi(inject(there, Fault("hot", 0, "88")), "--query-gpu=temperature.gpu", *CSV).stdout == "88\n"
