"""The check of an environment: each way in which one does not work is found, and its cause and next step are told.

Tests are named after the failure modes of docs/environments.md.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from gpustrap.verify.gpustrap_verify import environment, gpu_groups, symptoms
from gpustrap.verify.gpustrap_verify.node import Node, Result

from .conftest import DIGEST, SITE_PACKAGES, SMI, World

# Enough of PyTorch to begin; what a test is about comes after it.
TORCH = """
import sys
class version: cuda = "13.0"
class cuda:
    capabilities, built_for = [(8, 6)], ["sm_80", "sm_90"]
    def init(): pass
    def device_count(): return len(cuda.capabilities)
    def get_arch_list(): return cuda.built_for
    def get_device_capability(index): return cuda.capabilities[index]
def device(kind, index=0): return (kind, index)
float32 = "float32"
__version__ = "2.14.0"
print("a framework may print what it likes")
"""
GPU = "NVIDIA RTX A6000"


def torch_check(world: World, after: str, **args: object) -> dict[str, object]:
    world.environment("torch", {"torch": TORCH + after})
    if SMI not in world.commands:
        world.gpus(GPU)
    return world.check("torch", "pytorch", **{"compute": ["8.6"], **args})


def init_says(words: str, kind: str = "RuntimeError") -> str:
    return f"\ndef _init(): raise {kind}({words!r})\ncuda.init = _init\n"


def test_an_environment_that_is_not_there(world: World) -> None:
    found = world.check("torch", "pytorch")
    assert (found["verdict"], found["reason"], found["remedy"]) == ("fail", "it is not there", "apply")


def test_a_half_built_environment_never_counts(world: World) -> None:
    (world.environment("torch", {"torch": TORCH}) / ".gpustrap.json").unlink()
    found = world.check("torch", "pytorch")
    assert found["reason"].startswith("it was never complete")
    assert not world.runs


def test_an_environment_of_an_earlier_lock(world: World) -> None:
    world.environment("torch", {"torch": TORCH}, directory="f" * 16)
    assert f"ffffffffffffffff; {DIGEST[:16]} is wanted" in world.check("torch", "pytorch")["reason"]


def test_a_package_changed_by_hand_is_named(world: World) -> None:
    path = world.environment("torch", {"torch": TORCH})
    info = path / SITE_PACKAGES / "numpy-2.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("")
    shutil.rmtree(path / SITE_PACKAGES / "torch-1.0.dist-info")
    found = world.check("torch", "pytorch")
    assert found["reason"] == "somebody changed it by hand: gone torch-1.0, added numpy-2.0"
    assert found["remedy"] == "apply"
    assert not world.runs


def test_conda_cpu_build(world: World) -> None:
    found = torch_check(world, "version.cuda = None")
    assert found["verdict"] == "fail"
    assert "build for the CPU" in found["reason"]
    assert found["remedy"] == "other-build"


def test_no_kernel_image(world: World) -> None:
    """torch.cuda.is_available() is still True there."""
    found = torch_check(world, 'cuda.capabilities = [(12, 0)]; cuda.built_for = ["sm_50", "sm_90"]')
    assert found["reason"].startswith("its build has no code for this GPU")
    assert f"GPU 0000:01:00.0 ({GPU}) (12.0): sm_50 sm_90" in found["evidence"]


def test_driver_too_old(world: World) -> None:
    words = "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"
    found = torch_check(world, init_says(words))
    assert found["reason"].startswith("the driver is too old for this build: it knows CUDA 11.4 (at: start CUDA)")
    assert found["remedy"] == "plan-build"


TF = """
import sys, types
sys.stderr.write({words!r})
class config:
    class experimental: pass
    def list_physical_devices(kind): return []
class sysconfig:
    def get_build_info(): return {{"is_cuda_build": True}}
__version__ = "2.21.0"
"""


@pytest.mark.parametrize(
    ("words", "cause", "remedy"),
    [
        ("Could not find cuda drivers on your machine, GPU will not be used.\n", "libcuda.so.1, is missing", "apply"),
        ("Cannot dlopen some GPU libraries. Skipping registering GPU devices...\n", "CUDA's libraries", "other-build"),
        ("", "CUDA gives an ordinary user no GPU", "device-files"),
    ],
)
def test_tf_no_gpu(world: World, words: str, cause: str, remedy: str) -> None:
    """TensorFlow goes on with the CPU and ends well: that it runs proves nothing."""
    world.environment("tf", {"tensorflow": TF.format(words=words)})
    world.gpus(GPU)
    found = world.check("tf", "tensorflow", compute=["8.6"])
    assert (found["verdict"], found["remedy"]) == ("fail", remedy)
    assert cause in found["reason"]
    assert "TensorFlow sees 0 GPUs, and there is 1" in found["evidence"]


def test_a_result_on_another_device_fails(world: World) -> None:
    after = """
class _Tensor:
    device = ("cpu", 0)
def tensor(values, dtype, device): return _Tensor()
def matmul(a, b): return a
"""
    found = torch_check(world, after)
    assert found["verdict"] == "fail"
    assert "the result lies on ('cpu', 0)" in found["evidence"]


def test_gpu_that_hangs_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "SECONDS", 1)
    found = torch_check(world, "import time\ndef tensor(*_, **__): time.sleep(60)\nmatmul = None\n")
    assert found["reason"] == f"it hangs at: GPU 0000:01:00.0 ({GPU}): matrix product"


@pytest.mark.parametrize(("signal", "word"), [("SIGSEGV", "crashed"), ("SIGILL", "lacks instructions")])
def test_a_program_that_crashes(world: World, signal: str, word: str) -> None:
    found = torch_check(world, f"import os, signal\nos.kill(os.getpid(), signal.{signal})\n")
    assert word in found["reason"]
    assert "at: import torch" in found["reason"]


def test_a_framework_that_does_not_import(world: World) -> None:
    found = torch_check(world, 'raise ImportError("libcudnn.so.9: cannot open shared object file")')
    assert "library or package that it needs is missing" in found["reason"]
    assert found["remedy"] == "env-shell"


def test_xid79_a_gpu_that_nvidia_smi_lost(world: World) -> None:
    world.gpus(GPU, GPU, listed=1)
    found = torch_check(world, "")
    assert found["reason"] == "nvidia-smi does not list GPU 0000:02:00.0"
    assert not world.runs


def test_nvidia_smi_that_does_not_work(world: World) -> None:
    world.gpus(GPU)
    world.commands[SMI] = Result(9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver")
    found = torch_check(world, "")
    assert found["verdict"] == "fail"
    assert "couldn't communicate" in found["evidence"]


@pytest.mark.parametrize(
    ("words", "problem", "reason", "remedy"),
    [
        ("Unable to determine the device handle for GPU0000:01:00.0: GPU is lost.", "", "the GPU fails", "kernel-log"),
        ("Failed to initialize NVML: Driver/library version mismatch", "", "of two versions", "reboot"),
        ("", "nvidia-smi stopped after 120 s", "does not answer: a GPU or its driver hangs", "kernel-log"),
    ],
    ids=["xid79", "driver-lib-mismatch", "gsp-timeout"],
)
def test_why_nvidia_smi_does_not_work(world: World, words: str, problem: str, reason: str, remedy: str) -> None:
    world.gpus(GPU)
    world.commands[SMI] = Result(None if problem else 15, words, problem=problem)
    found = torch_check(world, "")
    assert reason in found["reason"]
    assert found["remedy"] == remedy


def test_planned_for_gpus_that_are_gone(world: World) -> None:
    world.environment("torch", {"torch": TORCH})
    assert world.check("torch", "pytorch", compute=["8.6"])["reason"] == "it is for GPUs, and the node has none"


def test_mig_left_on(world: World) -> None:
    world.gpus(GPU, mig="Enabled")
    world.commands["nvidia-smi -L"] = Result(0, f"GPU 0: {GPU} (UUID: GPU-1)\n")
    found = torch_check(world, "")
    assert (found["reason"], found["remedy"]) == (f"MIG is on and has no devices: GPU 0000:01:00.0 ({GPU})", "mig")


def test_each_mig_device_gets_a_process_of_its_own(world: World) -> None:
    world.environment("torch", {"torch": TORCH})
    rows = [f"00000000:0{n}:00.0, GPU-{n}, {GPU}, {'Enabled' if n == 2 else 'Disabled'}" for n in (1, 2, 3)]
    world.gpus(GPU, GPU, GPU)
    world.commands[SMI] = Result(0, "\n".join(rows))
    devices = "".join(f"  MIG 1g.10gb     Device  {n}: (UUID: MIG-{n})\n" for n in (0, 1))
    listing = f"GPU 0: {GPU} (UUID: GPU-1)\nGPU 1: {GPU} (UUID: GPU-2)\n{devices}GPU 2: {GPU} (UUID: GPU-3)\n"
    world.commands["nvidia-smi -L"] = Result(0, listing)
    host = gpu_groups.Host(str(world.root))
    groups = gpu_groups.find(Node("r", time.monotonic() + 9, world.root, world._execute), host, [])
    assert [group.visible for group in groups] == [("GPU-1", "GPU-3"), ("MIG-0",), ("MIG-1",)]
    assert groups[1].names == (f"MIG 1g.10gb of GPU 0000:02:00.0 ({GPU})",)


def test_an_environment_for_some_gpus_sees_them_alone(world: World) -> None:
    world.gpus(GPU, GPU)
    torch_check(world, "", gpus=["0000:02:00.0"])
    assert world.runs[0]["CUDA_VISIBLE_DEVICES"] == "GPU-2"
    torch_check_again = world.check("torch", "pytorch", compute=["8.6"])
    assert torch_check_again["verdict"] == "fail"
    assert "CUDA_VISIBLE_DEVICES" not in world.runs[1]  # as users have it


def test_a_gpu_for_a_virtual_machine_is_no_business_of_an_environment(world: World) -> None:
    world.gpus(GPU, GPU, listed=1)
    (world.root / "sys/bus/pci/devices/0000:02:00.0/driver").symlink_to("../drivers/vfio-pci")
    torch_check(world, "")
    assert len(world.runs) == 1


IMPORTS = {"numbers2": "import os\n"}


def test_an_environment_of_modules_of_the_users_own(world: World) -> None:
    world.environment("own", IMPORTS)
    found = world.check("own", "python", modules=["numbers2"])
    assert (found["verdict"], found["reason"]) == ("pass", "its modules import, as root")
    found = world.check("own", "python", modules=["numbers2", "missing"])
    assert found["verdict"] == "fail"
    assert "No module named 'missing'" in found["evidence"]


def test_a_foreign_pythonpath_is_tried_and_told(world: World) -> None:
    world.environment("own", IMPORTS)
    world.file("/srv/foreign/numbers2/__init__.py")
    world.file("/etc/environment", 'PYTHONPATH="/srv/foreign:/nowhere"\n')
    found = world.check("own", "python", modules=["numbers2"])
    assert found["verdict"] == "warn"
    assert "/etc/environment sets PYTHONPATH to /srv/foreign, and it fails: numbers2 is taken from" in found["reason"]
    assert found["remedy"] == "own-libraries"


def test_settings_that_cannot_win_are_not_told(world: World) -> None:
    world.environment("own", IMPORTS)
    world.file("/usr/local/lib/libfoo.so.1")
    world.file("/etc/profile.d/x.sh", "export LD_LIBRARY_PATH=/usr/local/lib:$LD_LIBRARY_PATH\n")
    assert world.check("own", "python", modules=["numbers2"])["verdict"] == "pass"
    assert len(world.runs) == 1


def test_a_users_library_path_is_tried(world: World) -> None:
    """It holds a CUDA library; builds that know where their own are do not take it, and then nothing is told."""
    world.environment("own", IMPORTS)
    world.file("/etc/passwd", "alice:x:1000:1000::/home/alice:/bin/bash\n")
    world.file("/usr/local/cuda/lib64/libcudnn.so.9")
    world.file("/home/alice/.bashrc", 'export LD_LIBRARY_PATH="/usr/local/cuda/lib64:$HOME/lib"\n')
    assert world.check("own", "python", modules=["numbers2"])["verdict"] == "pass"
    assert [run.get("LD_LIBRARY_PATH") for run in world.runs] == [None, "/usr/local/cuda/lib64"]


@pytest.mark.parametrize(("file", "runs"), [("/etc/environment", [None, "0"]), ("/home/alice/.profile", [None])])
def test_gpus_hidden_from_everybody_are_told_and_a_users_own_choice_is_not(
    world: World, file: str, runs: list[str | None]
) -> None:
    world.environment("own", IMPORTS)
    world.file("/etc/passwd", "alice:x:1000:1000::/home/alice:/bin/bash\n")
    world.file(file, "export CUDA_VISIBLE_DEVICES=0\n")
    world.check("own", "python", modules=["numbers2"])
    assert [run.get("CUDA_VISIBLE_DEVICES") for run in world.runs] == runs


HOMES = (
    '"$HOME/cuda/lib:$X"',
    "~/cuda/lib",
    "${HOME}/cuda/lib:${LD_LIBRARY_PATH}",
    "'/home/alice/cuda/lib'",
    "/home/alice/cuda/lib${A:+:${A}}",
)


@pytest.mark.parametrize("value", HOMES)
def test_a_users_home_in_a_path(world: World, value: str) -> None:
    world.environment("own", IMPORTS)
    world.file("/etc/passwd", "alice:x:1000:1000::/home/alice:/bin/bash\n")
    world.file("/home/alice/cuda/lib/libcublas.so.13")
    world.file("/home/alice/.bashrc", f"# export LD_LIBRARY_PATH=/usr/lib\nexport LD_LIBRARY_PATH={value}\n")
    world.check("own", "python", modules=["numbers2"])
    assert [run.get("LD_LIBRARY_PATH") for run in world.runs] == [None, "/home/alice/cuda/lib"]


def test_users_packages_win_over_condas_python_alone(world: World) -> None:
    path = world.environment("own", IMPORTS)
    python = next((path / "lib").iterdir()).name
    world.file("/etc/passwd", "alice:x:1000:1000::/home/alice:/bin/bash\nd:x:2:2::/usr:/bin/false\n")
    world.file(f"/home/alice/.local/lib/{python}/site-packages/numbers2/__init__.py")
    assert world.check("own", "python", modules=["numbers2"])["verdict"] == "pass"
    found = world.check("own", "python", modules=["numbers2"], conda=True)
    assert "alice has numbers2 in /home/alice/.local" in found["reason"]


def test_homes_on_a_file_server_are_left_alone(world: World) -> None:
    world.environment("own", IMPORTS)
    world.file("/etc/passwd", "alice:x:1000:1000::/home/alice:/bin/bash\n")
    world.file("/proc/mounts", "server:/home /home nfs4 rw 0 0\n")
    world.file("/usr/local/cuda/lib64/libcudnn.so.9")
    world.file("/home/alice/.bashrc", "export LD_LIBRARY_PATH=/usr/local/cuda/lib64\n")
    assert world.check("own", "python", modules=["numbers2"])["verdict"] == "pass"
    assert len(world.runs) == 1


def test_nothing_stays(world: World) -> None:
    torch_check(world, "version.cuda = None")
    assert not list((world.root / "var/tmp").iterdir())


def test_every_script_is_sent() -> None:
    from gpustrap.verify.gpustrap_verify import smoke, smoke_files

    assert {f.stem for f in Path(smoke.__file__).parent.glob("*.py")} == set(smoke_files.NAMES)


# The words of each, from public reports of them.
SAID = {
    "driver-too-old": "RuntimeError: CUDA driver version is insufficient for CUDA runtime version",
    "no-kernel-image": "CUDA error: no kernel image is available for execution on the device",
    "conda-cpu-build": "AssertionError: Torch not compiled with CUDA enabled",
    "tf-no-gpu": "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
    "cuda-802": "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
    "cuda-803": "Error 803: system has unsupported display driver / cuda driver combination",
    "cuda-804": "Error 804: forward compatibility was attempted on non supported HW",
    "xid79": "CUDA error: unspecified launch failure",
    "cuda-999-uvm": "CUDA unknown error - this may be due to an incorrectly set up environment",
    "gpu-busy": "CUDA error: all CUDA-capable devices are busy or unavailable",
    "gpu-memory-full": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
    "cudnn": "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
    "p2p-acs-iommu": "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, unhandled cuda error",
    "disk-full": "OSError: [Errno 28] No space left on device",
    "library-missing": "ImportError: /x/libtorch_cuda.so: undefined symbol: ncclCommRegister",
    "no-access": "PermissionError: [Errno 13] Permission denied: '/opt/gpustrap/envs/torch'",
    "no-device": "RuntimeError: No CUDA GPUs are available",
}


@pytest.mark.parametrize("name", SAID)
def test_symptom(name: str) -> None:
    found = symptoms.diagnose("", SAID[name], "")
    assert found is not None
    assert found.name == name
    assert symptoms.cause(found, SAID[name])


def test_every_symptom_has_words_here_or_a_code() -> None:
    assert {s.name for s in symptoms.SYMPTOMS if not s.codes} <= set(SAID)


def test_a_clear_code_is_not_outvoted_by_noise_in_the_log() -> None:
    found = symptoms.diagnose("wrong-result", "3 of 8 rows are wrong", "warning: ImportError: no matplotlib")
    assert found is not None
    assert found.name == "xid79"
