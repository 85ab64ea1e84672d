"""The stand-in programs of the container toolkit and the fabric manager answer as the real ones do."""

from __future__ import annotations

import subprocess
import tomllib

import pytest
import yaml

from gpustrap.lab.standins import nvidia_cli_program as cli
from gpustrap.lab.standins import nvidia_ctk_program as ctk
from gpustrap.lab.standins import nvidia_data, nvidia_files, nvidia_programs
from gpustrap.lab.standins import nvidia_runtime_program as runtime
from gpustrap.lab.standins.parts import FILES

VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.91.07  Release Build\n"
STATE = "module=595.91.07\ncuda=13.2\ncount=2\n" + "".join(
    f"{index}.name=NVIDIA H100\n{index}.uuid=GPU-{index}a\n{index}.minor={index}\n{index}.nvlinks=18\n"
    f"{index}.fabric=In Progress\n"
    for index in range(2)
)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A loaded driver with two GPUs, below a directory."""
    library = tmp_path / "lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    (tmp_path / "dev").mkdir()
    (tmp_path / "state").write_text(STATE)
    (tmp_path / "version").write_text(VERSION)
    for name, value in {
        "STATE": tmp_path / "state",
        "PROC": tmp_path / "version",
        "DEVICES": tmp_path / "dev",
        "LIBRARIES": tmp_path / "lib",
        "SPECS": (tmp_path / "cdi",),
        "CONFIG": tmp_path / "config.toml",
    }.items():
        monkeypatch.setattr(ctk, name, value)
    monkeypatch.setattr(ctk.os, "mknod", lambda path, _mode, _device: path.touch())
    return tmp_path


def test_ctk_describes_every_gpu_by_index_uuid_and_all(machine, capsys):
    ctk.main(["cdi", "generate", f"--output={machine}/cdi/nvidia.yaml"])
    assert "simulated" in capsys.readouterr().err
    document = yaml.safe_load((machine / "cdi/nvidia.yaml").read_text())
    assert (document["cdiVersion"], document["kind"]) == ("0.7.0", "nvidia.com/gpu")
    assert [device["name"] for device in document["devices"]] == ["0", "1", "GPU-0a", "GPU-1a", "all"]
    nodes = document["devices"][-1]["containerEdits"]["deviceNodes"]
    assert nodes == [{"path": f"/dev/nvidia{index}", "hostPath": "/dev/null"} for index in range(2)]
    assert (machine / "cdi/nvidia.yaml").stat().st_mode & 0o777 == 0o644
    assert (machine / "dev/nvidia1").exists()
    ctk.main(["cdi", "list"])
    assert "nvidia.com/gpu=all\n" in capsys.readouterr().out


def test_ctk_writes_where_its_environment_says(machine, monkeypatch):
    monkeypatch.setenv("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH", f"{machine}/cdi/other.yaml")
    ctk.main(["cdi", "generate"])
    assert (machine / "cdi/other.yaml").exists()


@pytest.mark.parametrize(
    ("gone", "said"),
    [("version", "failed to initialize NVML: Driver Not Loaded"), ("lib", "ERROR_LIBRARY_NOT_FOUND")],
)
def test_ctk_fails_without_a_driver(machine, capsys, gone, said):
    (machine / gone).rename(machine / "away")
    with pytest.raises(SystemExit) as ended:
        ctk.main(["cdi", "generate", f"--output={machine}/cdi/nvidia.yaml"])
    assert ended.value.code == 1
    assert said in capsys.readouterr().err
    assert not (machine / "cdi").exists()


def test_ctk_links_the_devices_that_are_there_or_all(machine, capsys):
    ctk.main(["system", "create-dev-char-symlinks"])
    assert list((machine / "dev/char").iterdir()) == []
    ctk.main(["system", "create-dev-char-symlinks", "--create-all"])
    assert "Creating link" in capsys.readouterr().err
    assert list((machine / "dev/char").iterdir())


def test_ctk_sets_one_key_of_its_settings(machine):
    config = machine / "config.toml"
    ctk.main(["--quiet", "config", "--in-place"])
    assert config.read_text() == ctk.DEFAULT_CONFIG
    ctk.main(["config", "--set", "nvidia-container-cli.no-cgroups", "--in-place"])
    assert config.read_text() == ctk.DEFAULT_CONFIG.replace("#no-cgroups = false", "no-cgroups = true")
    ctk.main(["config", "--set", "nvidia-container-runtime.mode=cdi", "--in-place"])
    assert 'mode = "cdi"\n' in config.read_text()


def test_ctk_has_containerd_read_a_file_beside_its_settings(machine):
    config, drop_in = machine / "containerd.toml", machine / "conf.d/99-nvidia.toml"
    config.write_text('version = 2\n[plugins."x"]\n')
    words = ["--runtime=containerd", f"--config={config}", f"--drop-in-config={drop_in}", "--cdi.enabled"]
    for _twice in range(2):
        ctk.main(["runtime", "configure", *words])
        assert tomllib.loads(config.read_text()) == {
            "imports": [f"{drop_in.parent}/*.toml"],
            "version": 2,
            "plugins": {"x": {}},
        }
    [plugin] = tomllib.loads(drop_in.read_text())["plugins"].values()
    assert plugin["enable_cdi"] is True
    assert plugin["containerd"]["runtimes"]["nvidia"]["options"]["BinaryName"] == "/usr/bin/nvidia-container-runtime"


def test_ctk_does_not_pretend_to_know_more(machine, capsys):
    with pytest.raises(SystemExit):
        ctk.main(["runtime", "configure", "--runtime=podman"])
    assert "simulated: this stand-in does not know runtime podman" in capsys.readouterr().err


def test_nvml_not_loaded_container_without_the_library(monkeypatch, capsys):
    def missing(_name):
        raise OSError

    monkeypatch.setattr(cli.ctypes, "CDLL", missing)
    with pytest.raises(SystemExit):
        cli.main(["info"])
    said = "load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory"
    assert f"nvidia-container-cli: initialization error: {said}" in capsys.readouterr().err


@pytest.mark.parametrize(("code", "said"), [(9, "driver not loaded"), (18, "driver/library version mismatch")])
def test_nvml_not_loaded_container_by_nvmls_answer(monkeypatch, capsys, code, said):
    monkeypatch.setattr(cli.ctypes, "CDLL", lambda _name: type("Nvml", (), {"nvmlInit_v2": lambda _self: code})())
    with pytest.raises(SystemExit):
        cli.main(["info"])
    assert f"initialization error: nvml error: {said}" in capsys.readouterr().err


def test_container_cli_tells_the_gpus(machine, monkeypatch, capsys):
    monkeypatch.setattr(cli.ctypes, "CDLL", lambda _name: type("Nvml", (), {"nvmlInit_v2": lambda _self: 0})())
    monkeypatch.setattr(cli, "STATE", machine / "state")
    monkeypatch.setattr(cli, "PROC", machine / "version")
    cli.main(["--load-kmods", "info"])
    told = capsys.readouterr().out
    assert "NVRM version:   595.91.07 (simulated)\nCUDA version:   13.2\n" in told
    assert told.count("Device Index:") == 2
    assert "GPU UUID:       GPU-1a\n" in told


@pytest.mark.parametrize(("value", "asks"), [("all", True), ("0", True), ("void", False), ("", False), (None, False)])
def test_runtime_gives_gpus_to_who_asks(value, asks):
    environment = ["PATH=/bin"] if value is None else [f"NVIDIA_VISIBLE_DEVICES={value}"]
    assert runtime.asked({"process": {"env": environment}}) is asks


SPEC = """deviceNodes:
- path: /dev/nvidia0
  hostPath: /dev/null
mounts:
- containerPath: /usr/bin/nvidia-smi
  hostPath: /usr/bin/nvidia-smi
"""


def test_runtime_adds_mounts_and_devices():
    document = {"mounts": [], "linux": {}}
    runtime.inject(document, SPEC)
    assert [mount["destination"] for mount in document["mounts"]] == ["/usr/bin/nvidia-smi"]
    [device] = document["linux"]["devices"]
    assert (device["path"], device["major"], device["minor"]) == ("/dev/nvidia0", 1, 3)
    assert document["linux"]["resources"]["devices"][0]["allow"]


# --- the fabric manager --------------------------------------------------------------------------------------------


@pytest.fixture
def fabric(machine):
    """Runs nv-fabricmanager of a version; one that stays is ended."""
    text = (FILES / "fabric/nv-fabricmanager.sh").read_text()
    for path, ours in {
        "/proc/driver/nvidia/version": machine / "version",
        "/run/lab-gpu/state": machine / "state",
        "/opt/nvidia/nvlsm/sbin/nvlsm": machine / "nvlsm",
        "sleep 3600": "exit 0",
    }.items():
        text = text.replace(path, str(ours))
    program = machine / "nv-fabricmanager"

    def run(version="595.91.07"):
        program.write_text(
            text.replace("@version@", version).replace("while :; do", "if :; then").replace("done", "fi")
        )
        return subprocess.run(["sh", program, "-c", "x"], capture_output=True, text=True, timeout=10)

    return run


def test_fabricmanager_mismatch_is_refused_in_the_real_words(fabric, machine):
    done = fabric("590.48.01")
    assert done.returncode == 1
    assert done.stderr == (
        "fabric manager NVIDIA GPU driver interface version 590.48.01 don't match with driver version 595.91.07."
        " Please update with matching NVIDIA driver package.\n"
    )
    assert "fabric=In Progress" in (machine / "state").read_text()


def test_fabric_is_completed_by_the_drivers_fabric_manager(fabric, machine):
    done = fabric()
    assert done.returncode == 0
    assert "simulated" in done.stderr
    assert (machine / "state").read_text() == STATE.replace("In Progress", "Completed")


def test_fabric_manager_has_nothing_to_do_without_switches(fabric, machine):
    (machine / "state").write_text(STATE.replace("nvlinks", "x"))
    assert "NV_WARN_NOTHING_TO_DO" in fabric().stderr


def test_fabric_manager_without_a_loaded_driver(fabric, machine):
    (machine / "version").unlink()
    assert "the driver is not loaded" in fabric().stderr


def test_fm_b200_ib_needs_the_subnet_manager(fabric, machine):
    (machine / "state").write_text(STATE.replace("H100", "B200"))
    done = fabric()
    assert (done.returncode, "nvlsm, is not there" in done.stderr) == (1, True)
    (machine / "nvlsm").touch(mode=0o755)
    assert fabric().returncode == 0


def test_every_kind_of_file_and_script_is_used():
    rows = nvidia_data.rows()
    assert nvidia_programs.KINDS.keys() <= {kind for row in rows for kind in row.files.values()}
    assert nvidia_programs.SCRIPTS.keys() <= {kind for row in rows for kind in row.scripts.values()}


def test_programs_know_their_packages_version():
    [base] = [
        package
        for package in nvidia_data.packages("container-toolkit")
        if (package.name, package.version) == ("nvidia-container-toolkit-base", "1.20.0-1")
    ]
    made = nvidia_files.files(base, nvidia_files.Site("", b""))
    assert b'VERSION = "1.20.0"' in made["usr/bin/nvidia-ctk"].content
    assert made["usr/bin/nvidia-ctk"].content.startswith(b"#!/usr/bin/python3\n")
    assert made["usr/bin/nvidia-ctk"].mode == 0o755
    assert "enable --now nvidia-cdi-refresh.path" in nvidia_files.scripts(base)["postinst"]
