"""The GPUs' own checks on simulated ones: the lab's libcuda.so.1 computes gpustrap's kernels, and makes mistakes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpustrap.commands.probe import NODE_PACKAGE
from gpustrap.lab.gpus import build, machine, state, sysfs
from gpustrap.lab.gpus.machine import Fault, Machine, inject
from gpustrap.verify import kernels, protocol

ASK = """
import json, sys, time
from gpustrap_verify import gpu_compute
from gpustrap_verify.node import Node
from pathlib import Path
name, args, root = json.load(sys.stdin)
node = Node("r", time.monotonic() + 100, Path(root))
print(json.dumps(getattr(gpu_compute, name)(node, args).as_dict()))
"""
COMMON = {"modules": kernels.modules(), "gpus": [], "limit": 60, "groups": None}
MATMUL = {**COMMON, "size": 128, "seeds": [1, 2], "seconds": 0}


class Simulated:
    """Machines with simulated GPUs, one after the other."""

    def __init__(self, directory) -> None:
        self.directory = directory
        build.cuda_library(directory)

    def __call__(
        self, there: Machine, name: str, args: dict[str, Any], root: Path = Path("/"), **environment: str
    ) -> dict[str, Any]:
        """A check's finding."""
        return json.loads(self.run(there, ASK, json.dumps([name, args, str(root)]), **environment))

    def run(self, there: Machine, program: str, given: str, **environment: str) -> str:
        """What a program says."""
        state.write(self.directory / "state", there)
        packages = os.pathsep.join(str(package.parent) for package in (protocol.NODE_PACKAGE, NODE_PACKAGE))
        names = {"LD_LIBRARY_PATH": str(self.directory), "LAB_GPU_STATE": str(self.directory / "state")}
        done = subprocess.run(
            [sys.executable, "-c", program],
            input=given,
            env=os.environ | {"PYTHONPATH": packages} | names | environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed: the stand-in for CUDA cannot be built")
    return Simulated(tmp_path_factory.mktemp("cuda"))


ONE, FOUR, HGX = "1x-rtx3090", "4x-rtx3090", "8x-a100-sxm"


def healthy(profile: str = ONE) -> Machine:
    return machine.machine(profile, machine.driver("580", "proprietary" if "1080" in profile else "open"))


def measured(finding: dict[str, Any], name: str) -> list[float]:
    return [one["value"] for one in finding["data"]["measures"] if one["name"] == name]


# --- products ---


@pytest.mark.parametrize(("profile", "gpus", "faster"), [(FOUR, 4, 2), ("1x-gtx1080ti", 1, 1)])
def test_every_gpu_multiplies_right_and_as_its_equals_do(check, profile, gpus, faster) -> None:
    """Of all ages: a GTX 1080 Ti takes the module for compute capability 5.0, the others that for 7.5."""
    found = check(healthy(profile), "matmul", MATMUL)
    assert (found["verdict"], found["reason"]) == ("pass", "")
    assert len(found["data"]["gpus"]) == gpus
    plain, tensor = measured(found, "matmul-fp32"), measured(found, "matmul-fp16")
    assert len(plain) == len(tensor) == gpus
    assert tensor == pytest.approx([faster * one for one in plain], rel=0.01)
    assert min(plain) > 0
    for gpu in found["data"]["gpus"].values():
        assert all(one["products"] == 2 and one["error"] < 1e-6 for one in gpu["outcomes"])


@pytest.mark.parametrize("bit", [0, 30, 31])
def test_a_wrong_bit_of_the_first_product_is_told_with_its_place(check, bit) -> None:
    found = check(inject(healthy(), Fault("wrong-bit", 0, f"1,5,77,{bit}")), "matmul", {**MATMUL, "seeds": [1]})
    assert found["verdict"] == "fail"
    assert "RTX 3090) multiplies wrong: 1 wrong element in 2 products (fp32, integers)" in found["reason"]
    (error,) = next(iter(found["data"]["gpus"].values()))["outcomes"][0]["errors"]
    assert (error["iteration"], error["row"], error["column"]) == (0, 5, 77)
    assert int(error["xor"], 16) == 1 << bit == int(error["got"], 16) ^ int(error["want"], 16)
    assert found["remedy"] == "bad-gpu"
    assert f"product 0, row 5, column 77: {error['got']} for {error['want']}, bits {error['xor']}" in found["evidence"]


def test_a_wrong_bit_of_a_later_product_is_told_with_its_product(check) -> None:
    found = check(inject(healthy(), Fault("wrong-bit", 0, "4,9,8,3")), "matmul", {**MATMUL, "seeds": [1]})
    outcomes = next(iter(found["data"]["gpus"].values()))["outcomes"]
    assert [(one["data"], one["wrong"]) for one in outcomes[:2]] == [("integers", 0), ("normal", 1)]
    (error,) = outcomes[1]["errors"]
    assert (error["iteration"], error["row"], error["column"], error["xor"]) == (1, 9, 8, "00000008")


def test_errors_are_counted_not_stopped_at(check) -> None:
    """Where it is wrong every time, every product counts; the others of the node are not blamed for it."""
    found = check(inject(healthy(FOUR), Fault("wrong-bit", 2, "0,1,2,20")), "matmul", {**MATMUL, "seeds": [1]})
    assert found["reason"].count("multiplies wrong") == 1
    assert "GPU 0000:81:00.0" in found["reason"]
    wrong = [[one["wrong"] for one in gpu["outcomes"]] for gpu in found["data"]["gpus"].values()]
    assert [sum(row) for row in wrong].count(0) == 3
    assert max(wrong)[0] == 2, "once against the host, once against the right product"


def test_a_gpu_with_other_bits_than_its_equals_is_told(check) -> None:
    """A bit that no sampled element shows: only GPUs of one kind, compared, tell it."""
    fault = Fault("wrong-bit", 1, "3,0,0,0")  # the first product over normal data
    found = check(inject(healthy(FOUR), fault), "matmul", {**MATMUL, "seeds": [1]})
    assert found["verdict"] == "fail"
    outcome = next(gpu for gpu in found["data"]["gpus"].values() if gpu["device"]["address"] == "0000:41:00.0")
    assert outcome["outcomes"][1]["products"] == 2
    assert "GPU 0000:41:00.0" in found["reason"]
    assert "GPU 0000:01:00.0" not in found["reason"]


LAZY = """
import json, sys
from gpustrap_verify.compute.cuda import Cuda
from gpustrap_verify.compute.gemm import Bench, Trial
from gpustrap_verify.compute.kernels import REPORT_BYTES, Kernels
class Lazy:
    times = 0
    def multiply(self, *product):
        Lazy.times += 1
        if Lazy.times != int(skipped):
            kernels.multiply(*product)
modules, skipped, data = json.load(sys.stdin)
cuda = Cuda()
with cuda.context(cuda.devices()[0]) as context, context.memory(REPORT_BYTES) as (report,):
    kernels = Kernels(context, modules, report)
    bench = Bench(context, kernels, Lazy(), lambda step: None)
    print(json.dumps(getattr(bench, data)(Trial("fp32", 64, 1, 0, least=4)).as_dict()))
"""


@pytest.mark.parametrize("data", ["integers", "normal"])
@pytest.mark.parametrize("skipped", [1, 2, 4])
def test_a_product_that_is_not_made_is_no_pass(check, data, skipped) -> None:
    """The right result of the one before lies there."""
    found = json.loads(check.run(healthy(), LAZY, json.dumps([kernels.modules(), skipped, data])))
    if skipped == 1:
        assert found["wrong"] >= 64 * 16, "of the columns that are looked at closer, or of the sample, all"
        assert found["more"] is (data == "integers")
        return
    assert (found["products"], found["wrong"]) == (4, 64 * 64)
    assert {error["iteration"] for error in found["errors"]} == {skipped - 1}


# --- what does not answer ---


@pytest.mark.parametrize(
    ("fault", "reason", "remedy"),
    [
        (Fault("cuda-error", value="100"), "CUDA gives an ordinary user no GPU", "device-files"),
        (Fault("cuda-error", value="101"), "CUDA gives an ordinary user no GPU", "device-files"),
        (Fault("cuda-error", value="802"), "the GPUs wait for the fabric manager", "fabric"),
        (Fault("cuda-error", value="803"), "the driver that is loaded and its libraries are of two versions", "reboot"),
        (Fault("cuda-error", value="804"), "a forward-compatibility libcuda is in the way", "own-libraries"),
        (Fault("cuda-error", value="999"), "CUDA does not start", "uvm"),
        (Fault("load-error", 0, "209"), "no code for this GPU", "other-build"),
        (Fault("kernel-error", 0, "719"), "the GPU fails", "kernel-log"),
        (Fault("kernel-error", 0, "214"), "the GPU fails", "kernel-log"),
    ],
    ids=lambda value: value.value or value.kind if isinstance(value, Fault) else "",
)
def test_errors_of_cuda_are_told_in_words_with_a_next_step(check, fault, reason, remedy) -> None:
    found = check(inject(healthy(), fault), "matmul", MATMUL)
    assert (found["verdict"], found["remedy"]) == ("fail", remedy)
    assert reason in found["reason"]
    assert f"error {fault.value}: CUDA_ERROR_" in found["evidence"]


def test_without_the_drivers_library_nothing_passes(check, tmp_path) -> None:
    found = check(healthy(), "matmul", MATMUL, LD_LIBRARY_PATH=str(tmp_path))
    assert (found["verdict"], found["remedy"]) == ("fail", "apply")
    assert "libcuda.so.1" in found["reason"]


def test_a_hung_gpu_costs_only_itself(check) -> None:
    there = inject(healthy(FOUR), Fault("kernel-hung", 1))
    uuids = [gpu.uuid for gpu in there.gpus]
    found = check(there, "matmul", {**MATMUL, "gpus": uuids, "limit": 6, "seeds": [1]})
    assert found["verdict"] == "fail"
    assert found["reason"] == f"{uuids[1]} hangs: stopped after 6 s"
    assert "while: integers fp32 128, the first product" in found["evidence"]
    answered = [uuid for uuid, gpu in found["data"]["gpus"].items() if gpu]
    assert answered == [uuids[0], *uuids[2:]]


def test_a_lost_gpu_costs_only_itself(check) -> None:
    there = inject(healthy(FOUR), Fault("lost", 2))
    found = check(there, "matmul", {**MATMUL, "gpus": [gpu.uuid for gpu in there.gpus], "seeds": [1]})
    assert found["verdict"] == "fail"
    assert found["reason"].startswith(there.gpus[2].uuid)
    assert ";" not in found["reason"]
    assert len(measured(found, "matmul-fp32")) == 3


def test_gpus_are_those_that_the_driver_has_not_those_that_cuda_can_start(check, tmp_path) -> None:
    """The lost one is among them, and is called by its address as it tells no name."""
    there = inject(healthy(FOUR), Fault("lost", 2))
    sysfs.write(tmp_path, there)
    found = check(there, "matmul", {**MATMUL, "seeds": [1]}, tmp_path)
    assert list(found["data"]["gpus"]) == [gpu.uuid for gpu in there.gpus]
    assert found["reason"] == f"GPU {there.gpus[2].address} fails: CUDA starts on the others and not on it"
    assert found["remedy"] == "bad-gpu"
    assert found["verdict"] == "fail"


# --- memory and transfers ---

MEMORY = {**COMMON, "seed": 1, "most": 64 << 20}
COPIES = {**COMMON, "size": 1 << 20, "seconds": 0}


def test_memory_keeps_what_is_written(check) -> None:
    found = check(healthy(), "memory", MEMORY)
    assert found["verdict"] == "pass", found
    assert measured(found, "memory-tested") == [0.06]


def test_most_of_the_memory_is_tested(check) -> None:
    found = check(healthy(), "memory", {**MEMORY, "most": None})
    assert found["verdict"] == "pass", found
    assert measured(found, "memory-tested")[0] > 0.95 * 24


@pytest.mark.parametrize("bit", [0, 31])
def test_a_stuck_bit_is_told_with_its_place(check, bit) -> None:
    found = check(inject(healthy(), Fault("stuck-bit", 0, f"9,{bit}")), "memory", MEMORY)
    assert found["verdict"] == "fail"
    assert "does not keep what is written to its memory" in found["reason"]
    errors = next(iter(found["data"]["gpus"].values()))["errors"]
    assert {int(error["xor"], 16) for error in errors} == {1 << bit}


def test_copies_bring_the_same_data_at_the_speed_of_the_link(check) -> None:
    whole = check(healthy(), "bandwidth", COPIES)
    assert whole["verdict"] == "pass", whole
    narrow = check(inject(healthy(), Fault("narrow", 0, "8")), "bandwidth", COPIES)
    for name in ("host-to-gpu", "gpu-to-host"):
        assert measured(narrow, name)[0] == pytest.approx(measured(whole, name)[0] / 2, rel=0.01)
    assert measured(narrow, "gpu-memory") == measured(whole, "gpu-memory")


def test_copies_between_gpus_bring_the_same_data(check) -> None:
    there = healthy(HGX)
    found = check(there, "peers", {**COPIES, "gpus": [gpu.uuid for gpu in there.gpus[:3]]})
    assert (found["verdict"], found["reason"]) == ("pass", "")
    assert len(measured(found, "peer-copy")) == 6


def test_copies_between_gpus_that_come_out_wrong_are_told_with_their_ways(check) -> None:
    there = inject(healthy(HGX), Fault("p2p-corrupt", 1))
    found = check(there, "peers", {**COPIES, "gpus": [gpu.uuid for gpu in there.gpus[:3]]})
    assert (found["verdict"], found["remedy"]) == ("fail", "nccl")
    assert found["reason"] == "copies between GPUs bring other data: 4 of 6 ways"
    assert found["evidence"].count(f"GPU {there.gpus[1].address}") == 4


def test_gpus_that_cannot_reach_each_other_copy_through_the_host(check) -> None:
    found = check(healthy(FOUR), "peers", COPIES)
    assert (found["verdict"], found["reason"]) == ("pass", "12 of 12 ways go through the host")
    assert len(measured(found, "peer-copy-through-host")) == 12


def test_one_gpu_has_no_peer(check) -> None:
    assert check(healthy(), "peers", COPIES)["verdict"] == "skip"


# --- cuBLAS ---


@pytest.fixture(scope="module")
def cublas(check, tmp_path_factory):
    """An environment with one, as NVIDIA's packages lay it out."""
    prefix = tmp_path_factory.mktemp("env")
    place = prefix / "lib/python3.12/site-packages/nvidia/cublas/lib"
    place.mkdir(parents=True)
    source = Path(__file__).with_name("fake_cublas.c")
    driver = [f"-L{check.directory}", "-l:libcuda.so.1"]
    for name in ("libcublas.so.12", "libcublasLt.so.12"):
        command = ["gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", place / name, source, *driver]
        subprocess.run(command, check=True)
    return prefix


def asked(*prefixes) -> dict[str, Any]:
    return {**MATMUL, "seeds": [1], "size": 64, "prefixes": [str(one) for one in prefixes]}


def test_cublas_multiplies_right_in_every_type_that_the_gpu_has(check, cublas) -> None:
    found = check(healthy(), "cublas", asked(cublas))
    assert (found["verdict"], found["reason"]) == ("pass", "")
    (gpu,) = found["data"]["gpus"].values()
    assert (gpu["library"], gpu["version"]) == (
        f"{cublas}/lib/python3.12/site-packages/nvidia/cublas/lib/libcublas.so.12",
        "12.9.1",
    )
    assert [one["kind"] for one in gpu["outcomes"][::2]] == ["fp32", "tf32", "fp16", "bf16"]
    assert all(one["error"] < 1e-6 for one in gpu["outcomes"])
    (old,) = check(healthy("1x-gtx1080ti"), "cublas", asked(cublas))["data"]["gpus"].values()
    assert [one["kind"] for one in old["outcomes"][::2]] == ["fp32", "fp16"]


def test_a_wrong_element_of_cublas_is_told_in_our_rows_and_columns(check, cublas) -> None:
    """It goes by columns, we go by rows."""
    found = check(healthy(), "cublas", asked(cublas), CUBLAS_WRONG="1")
    assert found["verdict"] == "fail"
    assert "multiplies wrong" in found["reason"]
    assert "tf32 integers, product 0, row 7, column 3: " in found["evidence"]


def test_a_cublas_that_does_not_start_is_told_in_its_words(check, cublas, tmp_path) -> None:
    found = check(healthy(), "cublas", asked(cublas), CUBLAS_FAILS="1")
    assert found["verdict"] == "fail"
    assert "cannot use cuBLAS" in found["reason"]
    assert "status 1: CUBLAS_STATUS_NOT_INITIALIZED" in found["evidence"]


def test_the_next_cublas_is_tried_where_one_cannot_be_loaded(check, cublas, tmp_path) -> None:
    broken = tmp_path / "lib"
    broken.mkdir()
    for name in ("libcublas.so.13", "libcublasLt.so.13"):
        (broken / name).write_text("no library")
    (gpu,) = check(healthy(), "cublas", asked(tmp_path, cublas))["data"]["gpus"].values()
    assert gpu["library"].startswith(str(cublas))
    assert len(gpu["tried"]) == 1
    assert str(broken) in gpu["tried"][0]


def test_without_cublas_the_check_is_left_out_and_says_so(check) -> None:
    found = check(healthy(), "cublas", asked("/nowhere"))
    assert (found["verdict"], found["reason"].split(" is ")[0]) == ("skip", "cuBLAS")
