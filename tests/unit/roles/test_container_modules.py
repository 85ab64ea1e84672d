"""What role nvidia_container_toolkit runs on a node: its look before, and the specification it keeps true."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFIG = """\
disable-require = false

[nvidia-container-cli]
environment = []
no-cgroups = true # rootless
ldconfig = "@/sbin/ldconfig"

[nvidia-container-runtime]
mode = "auto"
no-cgroups = true
"""
VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.91.07  Release Build\n"


@pytest.fixture
def machine(tmp_path, monkeypatch, run):
    """A tree of a node with a loaded driver; programs are replaced by ``machine.answers``."""
    from ansible.module_utils.basic import AnsibleModule
    from ansible.module_utils.gpustrap_node import host

    for path, text in {
        "proc/driver/nvidia/version": VERSION,
        "proc/driver/nvidia/gpus/0000:01:00.0/information": "",
        "etc/nvidia-container-runtime/config.toml": CONFIG.replace("true", "false"),
        "dev/nvidia0": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    for directory in ("etc/cdi", "var/run/cdi"):
        (tmp_path / directory).mkdir(parents=True)
    real = host.Host.__init__
    monkeypatch.setattr(host.Host, "__init__", lambda self, *_: real(self, str(tmp_path)))

    class Machine:
        def __init__(self):
            self.root, self.answers, self.called, self.warned = tmp_path, {}, [], []

        def write(self, path, text):
            (tmp_path / path).write_text(text)
            (tmp_path / path).chmod(0o644)

        def run(self, name, **arguments):
            self.called.clear()
            self.warned.clear()
            return run(name, **arguments)

    there = Machine()

    def run_command(_module, argv, **_options):
        there.called.append(argv)
        answer = there.answers.get(Path(argv[0]).name, (0, "", ""))
        return answer(argv) if callable(answer) else answer

    monkeypatch.setattr(AnsibleModule, "run_command", run_command)
    monkeypatch.setattr(AnsibleModule, "warn", lambda _module, words: there.warned.append(words))
    return there


# --- gpustrap_container_preflight ----------------------------------------------------------------------------------


@pytest.fixture
def preflight(machine, tmp_path, monkeypatch):
    from ansible.module_utils.basic import AnsibleModule

    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libnvidia-ml.so.1").touch()
    (tmp_path / "dockerd").touch()
    places = {"dockerd": (str(tmp_path / "dockerd"),), "snap": (str(tmp_path / "snap"),)}
    monkeypatch.setattr(AnsibleModule, "get_bin_path", lambda _self, name: places.get(name))

    def call(**changed):
        patch = {
            "DOCKERD": places["dockerd"],
            "SNAP_PATHS": places["snap"],
            "LIBRARIES": (str(tmp_path / "lib"),),
            **changed,
        }
        return machine.run("gpustrap_container_preflight", patch=patch, podman_min="5.1")

    call.places = places
    return call


def test_preflight_says_what_is_there(preflight, machine):
    result = preflight()
    assert (result["driver"], result["docker"], result["changed"]) == ("595.91.07", True, False)
    assert machine.warned == []


def test_preflight_without_a_loaded_driver_is_no_mistake(preflight, machine):
    (machine.root / "proc/driver/nvidia/version").unlink()
    (machine.root / "lib/libnvidia-ml.so.1").unlink()
    assert preflight()["driver"] == ""
    assert machine.warned == ["containers get no GPU until a reboot: no driver is loaded"]


def libraries(machine, version):
    directory = machine.root / "usr/lib/x86_64-linux-gnu"
    directory.mkdir(parents=True)
    (directory / f"libnvidia-ml.so.{version}").touch()
    (directory / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{version}")


def test_preflight_while_a_new_driver_waits_for_its_reboot(preflight, machine):
    libraries(machine, "610.57.04")
    assert preflight()["driver"] == ""
    assert machine.warned == [
        "containers get no GPU until a reboot: driver 595.91.07 is loaded, and 610.57.04 is what its libraries are"
    ]


@pytest.mark.parametrize(
    ("version", "runs", "warned"),
    [
        ("595.91.07", True, []),
        ("", True, []),
        ("610.57.04", False, ["driver 595.91.07 is loaded, and 610.57.04 is installed"]),
    ],
)
def test_fabricmanager_mismatch_waits_for_the_drivers_reboot(machine, version, runs, warned):
    libraries(machine, "595.91.07")
    result = machine.run("gpustrap_driver_loaded", version=version)
    assert (result["runs"], result["changed"]) == (runs, False)
    assert machine.warned == [f"what needs the driver waits for a reboot: {words}" for words in warned]


def test_docker_no_gpu_driver_by_dockers_snap(preflight, tmp_path):
    (tmp_path / "snap").touch()
    assert preflight()["docker"]  # a docker of packages beside it is what the containers run in
    assert "docker's snap is installed" in preflight(DOCKERD=())["msg"]


def test_nvml_not_loaded_container(preflight, machine):
    (machine.root / "lib/libnvidia-ml.so.1").unlink()
    assert "driver 595.91.07 is loaded, but its library libnvidia-ml.so.1 is not there" in preflight()["msg"]


@pytest.mark.parametrize(("version", "warned"), [("4.9.3", True), ("5.0.3", True), ("5.1.0", False), ("5.10.0", False)])
def test_toolkit_1_18_cdi_default_with_an_older_podman(preflight, machine, version, warned):
    preflight.places["podman"] = "/usr/bin/podman"
    machine.answers["podman"] = (0, f"podman version {version}\n", "")
    preflight()
    assert [f"podman {version} cannot read" in text for text in machine.warned] == [True] * warned


@pytest.mark.parametrize(("mode", "warned"), [("auto", False), ("cdi", True), ("legacy", False)])
def test_toolkit_1_18_cdi_default_by_its_mode(preflight, machine, mode, warned):
    machine.write("etc/nvidia-container-runtime/config.toml", CONFIG.replace('"auto"', f'"{mode}"'))
    preflight()
    assert ["docker run --gpus fails" in text for text in machine.warned] == [True] * warned


def test_toolkit_1_18_cdi_default_without_settings(preflight, machine):
    (machine.root / "etc/nvidia-container-runtime/config.toml").unlink()
    preflight()
    assert machine.warned == []


# --- gpustrap_nvidia_cdi -------------------------------------------------------------------------------------------

SPEC = "kind: nvidia.com/gpu\ndevices:\n- containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia0\n  name: '0'\n"
STALE = SPEC + "containerEdits:\n  mounts:\n  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.535.129.03\n"
OURS = "var/run/cdi/nvidia.yaml"


@pytest.fixture
def keep(machine):
    """Runs gpustrap_nvidia_cdi below the tree; the unit writes what ``keep.unit`` holds."""

    def systemctl(_argv):
        machine.write(OURS, keep_it.unit)
        return 0, "", ""

    def keep_it(check=False):
        return machine.run("gpustrap_nvidia_cdi", check=check, unit="gpustrap-nvidia-cdi.service")

    machine.answers["systemctl"] = systemctl
    keep_it.unit = SPEC
    return keep_it


def restarts(machine):
    return [argv for argv in machine.called if "restart" in argv]


def test_a_right_specification_is_left_alone(keep, machine):
    machine.write(OURS, SPEC)
    result = keep()
    assert (result["changed"], result["actions"], restarts(machine)) == (False, [], [])


def test_cdi_stale_is_made_anew(keep, machine):
    machine.write(OURS, STALE)
    assert keep(check=True)["changed"]
    assert restarts(machine) == []
    result = keep()
    assert "it is of driver 535.129.03, and 595.91.07 is loaded" in result["actions"][0]
    assert restarts(machine) == [["systemctl", "restart", "gpustrap-nvidia-cdi.service"]]
    assert not keep()["changed"]


def test_cdi_stale_that_stays_so_is_an_error_with_the_units_words(keep, machine):
    keep.unit = STALE
    machine.answers["journalctl"] = (0, "failed to initialize NVML: Driver/library version mismatch\n", "")
    result = keep()
    assert result["failed"]
    assert "libraries and its module may differ until a reboot" in result["msg"]
    assert "version mismatch" in result["msg"]


def test_cdi_stale_leftover_goes_with_a_copy(keep, machine):
    machine.write(OURS, SPEC)
    machine.write("etc/cdi/nvidia.yaml", STALE)
    result = keep()
    assert result["actions"] == ["removed /etc/cdi/nvidia.yaml, which nothing renews (a copy is beside it)"]
    [copy] = (machine.root / "etc/cdi").iterdir()
    assert copy.name.startswith("nvidia.yaml.")
    assert copy.name.endswith("~")
    assert not keep()["changed"]


def test_cdi_stale_of_somebody_else_is_only_warned_of(keep, machine):
    machine.write(OURS, SPEC)
    machine.write("etc/cdi/theirs.yaml", SPEC)
    result = keep()
    assert not result["changed"]
    assert "/etc/cdi/theirs.yaml names GPUs that /var/run/cdi/nvidia.yaml names, too" in machine.warned[0]
    assert (machine.root / "etc/cdi/theirs.yaml").exists()


def test_a_lost_gpu_is_warned_of_and_no_change(keep, machine):
    machine.write(OURS, SPEC)
    (machine.root / "proc/driver/nvidia/gpus/0000:02:00.0").mkdir()
    result = keep()
    assert not result["changed"]
    assert "it names 1 of 2 GPUs, also after it was made anew" in machine.warned[0]


def test_cgroup_v2_old_toolkit_leftover_no_cgroups_is_set_back(keep, machine):
    machine.write(OURS, SPEC)
    path = machine.root / "etc/nvidia-container-runtime/config.toml"
    path.write_text(CONFIG)
    assert keep(check=True)["changed"]
    assert path.read_text() == CONFIG
    result = keep()
    assert "no-cgroups" in result["actions"][0]
    assert path.read_text() == CONFIG.replace("no-cgroups = true # rootless", "no-cgroups = false # rootless")
    assert [p.read_text() for p in path.parent.glob("config.toml.*~")] == [CONFIG]
    assert not keep()["changed"]


def test_cgroup_v2_old_toolkit_in_lxc_it_is_needed(keep, machine):
    machine.write(OURS, SPEC)
    path = machine.root / "etc/nvidia-container-runtime/config.toml"
    path.write_text(CONFIG)
    machine.answers["systemd-detect-virt"] = (0, "lxc\n", "")
    assert not keep()["changed"]
    assert path.read_text() == CONFIG


@pytest.mark.parametrize("text", ["", "[nvidia-container-cli]\n#no-cgroups = true\n", "no-cgroups = true\n"])
def test_settings_that_are_not_set_are_not_touched(keep, machine, text):
    machine.write(OURS, SPEC)
    path = machine.root / "etc/nvidia-container-runtime/config.toml"
    path.write_text(text)
    assert not keep()["changed"]
    assert path.read_text() == text
