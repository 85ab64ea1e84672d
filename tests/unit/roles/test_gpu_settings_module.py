"""Module gpustrap_gpu_settings and its boot program, with an nvidia-smi that remembers and a systemctl that runs it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpustrap.ansible_plugins.module_utils import gpustrap_gpu_settings as core
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Completed, Host
from gpustrap.content import content_root

PROGRAM = (Path(content_root()) / "roles/nvidia_driver/files/gpustrap-gpu-settings.sh").read_text()
FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"
SERVICE, DAEMON = "gpustrap-gpu-settings.service", "nvidia-persistenced.service"
DROPIN = f"/etc/systemd/system/{DAEMON}.d/gpustrap-persistence.conf"
COMMAND = "/usr/bin/nvidia-persistenced --user nvidia-persistenced"
UBUNTU = f"[Service]\nExecStart={COMMAND} --no-persistence-mode --verbose\n"
# A line a GPU: address, uuid, name, persistence mode, limit, least, most.
SMI = """
state={state}
touch {root}/asked
case "$*" in
*-pm\\ 1*) sed -i 's/Disabled/Enabled/' "$state" ;;
*-pl*) grep -q "$2" "$state" || exit 6
    sed -i -E "/$2/s/^(([^,]*, ){{4}})[^,]*/\\\\1$4.00/" "$state" ;;
*uuid,power.limit*)
    awk -F', ' -v id="$2" '$1 ~ id {{ print $2 ", " $5 ", " $6 ", " $7; n = 1 }} END {{ exit !n }}' "$state" ;;
*) cat "$state" ;;
esac
"""
SYSTEMCTL = """
echo "$@" >>{root}/systemctl
case "$1" in
show) cat {root}/units ;;
restart | start) [ "$2" != {service} ] || {root}/usr/local/sbin/gpustrap-gpu-settings $(cat {root}/arguments) ;;
esac
"""


class Tree(Host):
    """A recorded tree on which the commands of the test run."""

    def run(self, argv, timeout=10.0):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout)
        return Completed(done.returncode, done.stdout, done.stderr)


class Machine:
    """Two RTX 3090 as after a boot: persistence mode off, each with its own limit."""

    def __init__(self, root, run, tools):
        self.root, self.call = root, run
        self.gpus(f"{FIRST}, GPU-aaaa, RTX 3090, Disabled, 350.00, 100.00, 366.00")
        self.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module  595.91.07\n")
        self.write("/usr/lib/systemd/system/" + DAEMON, UBUNTU)
        self.units(daemon="static")
        tools(
            **{
                "nvidia-smi": SMI.format(state=f"{root}/gpus", root=root),
                "systemctl": SYSTEMCTL.format(root=root, service=SERVICE),
                "journalctl": "echo the last words",
            }
        )

    def gpus(self, *lines):
        self.write("/gpus", "".join(f"{line}\n" for line in lines))

    def units(self, *, daemon="", service="", active="active", **further):
        loaded = "loaded" if daemon else "not-found"
        rows = {
            SERVICE: {"LoadState": "loaded", "UnitFileState": service},
            DAEMON: {
                "LoadState": loaded,
                "UnitFileState": daemon,
                "ActiveState": active,
                "FragmentPath": f"/usr/lib/systemd/system/{DAEMON}",
                "ActiveEnterTimestampMonotonic": "1",
            },
            **further,
        }
        blocks = ("\n".join(f"{k}={v}" for k, v in {"Id": name, **row}.items()) for name, row in rows.items())
        self.write("/units", "\n\n".join(blocks) + "\n")

    def path(self, name):
        return self.root / name.lstrip("/")

    def write(self, name, text):
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        self.path(name).write_text(text)

    def read(self, name):
        return self.path(name).read_text() if self.path(name).exists() else ""

    @property
    def done(self):
        """What systemctl was told, without questions."""
        return [line for line in self.read("/systemctl").splitlines() if not line.startswith("show")]

    @property
    def record(self):
        return self.read("/var/lib/gpustrap/gpu-power-limits")

    def limit(self, address):
        return next(line.split(", ")[4] for line in self.read("/gpus").splitlines() if line.startswith(address))

    def apply(self, limits=None, **given):
        check, limits = given.pop("check", False), limits or {}
        self.write("/arguments", "--persistence " + " ".join(f"{a}={w}" for a, w in limits.items()))
        self.write("/systemctl", "")
        return self.call(
            "gpustrap_gpu_settings",
            check=check,
            patch={"Host": lambda _: Tree(self.root)},
            power_limits=[{"address": a, "watts": w} for a, w in limits.items()],
            program=PROGRAM.replace("/var/lib/gpustrap", f"{self.root}/var/lib/gpustrap"),
            unit="[Service]\n",
            **given,
        )

    def boot(self):
        """The boot's program, after the driver forgot everything."""
        words = self.read("/arguments").split()
        return subprocess.run(
            [self.path("/usr/local/sbin/gpustrap-gpu-settings"), *words], capture_output=True, text=True
        )


@pytest.fixture
def machine(tmp_path, run, tools):
    return Machine(tmp_path / "node", run, tools)


def warned(result):
    return "\n".join(one["event"]["msg"] for one in result.get("warnings", []))


def test_persistence_power_is_set_now_and_recorded(machine):
    result = machine.apply({FIRST: 250})
    assert machine.limit(FIRST) == "250.00"
    assert "Enabled" in machine.read("/gpus")
    assert machine.record == "GPU-aaaa 350.00\n"
    assert f"enable {SERVICE}" in machine.done
    assert result["waits"] == ""


def test_the_second_run_changes_nothing(machine):
    machine.apply({FIRST: 250})
    machine.units(daemon="static", service="enabled", ActiveEnter={})
    os.utime(machine.path(DROPIN), (1, 1))
    again = machine.apply({FIRST: 250})
    assert not again["changed"]
    assert machine.done == []


def test_no_limit_any_more_is_the_one_from_before(machine):
    machine.apply({FIRST: 250})
    machine.apply({FIRST: 300})
    assert machine.record == "GPU-aaaa 350.00\n", "the limit before the first of ours"
    result = machine.apply()
    assert machine.limit(FIRST) == "350.00"
    assert machine.record == ""
    assert any("350 W again" in action for action in result["actions"])


def test_only_named_gpus_are_touched_and_only_they_are_recorded(machine):
    rows = [f"{a}, GPU-{u}, RTX 3090, Disabled, 350.00, 100.00, 366.00" for a, u in ((FIRST, "aaaa"), (SECOND, "bbbb"))]
    machine.gpus(*rows)
    machine.apply({SECOND: 200})
    assert (machine.limit(FIRST), machine.limit(SECOND)) == ("350.00", "200.00")
    assert machine.record == "GPU-bbbb 350.00\n"


def test_a_limit_a_board_cannot_have_is_refused_before_anything_is_written(machine):
    result = machine.apply({FIRST: 500})
    assert result["failed"]
    assert "RTX 3090 (0000:01:00.0) takes 100 to 366 W, not 500" in result["msg"]
    assert not machine.path("/usr/local").exists()


def test_at_boot_the_nearest_limit_is_set(machine):
    machine.apply()
    machine.write("/arguments", f"{FIRST}=500")
    done = machine.boot()
    assert machine.limit(FIRST) == "366.00"
    assert "366 W, its most, instead of 500 W" in done.stderr
    assert done.returncode == 0


def test_at_boot_a_dead_gpu_keeps_no_other_from_its_limit(machine):
    machine.apply()
    machine.write("/arguments", f"{SECOND}=200 {FIRST}=250")
    done = machine.boot()
    assert machine.limit(FIRST) == "250.00"
    assert done.returncode == 1
    assert f"GPU {SECOND}:" in done.stderr


def test_the_record_of_a_gpu_that_is_away_is_kept(machine):
    machine.apply({FIRST: 250})
    machine.write("/gpus", "")
    machine.write("/arguments", "")
    machine.boot()
    assert machine.record == "GPU-aaaa 350.00\n"


def test_a_board_that_lets_no_limit_be_set_is_told_and_left_out(machine):
    machine.gpus(f"{FIRST}, GPU-aaaa, RTX 3070 Laptop GPU, Enabled, [N/A], [N/A], [N/A]")
    result = machine.apply({FIRST: 80})
    assert "RTX 3070 Laptop GPU (0000:01:00.0) does not let its power limit be set" in warned(result)
    assert machine.record == ""
    assert "cannot be set" in machine.boot().stderr


def test_without_a_loaded_driver_the_next_boot_sets_all(machine):
    machine.path("/proc/driver/nvidia/version").unlink()
    result = machine.apply({FIRST: 250})
    assert result["waits"] == "the driver is not loaded yet"
    assert not machine.path("/asked").exists(), "nvidia-smi would load the driver"
    assert machine.done == ["daemon-reload", f"enable {SERVICE}"]


def test_driver_lib_mismatch_waits_for_the_next_boot(machine, tools):
    tools(**{"nvidia-smi": "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18"})
    result = machine.apply({FIRST: 250})
    assert "version mismatch" in result["waits"]
    assert "restart" not in " ".join(machine.done)


def test_ubuntus_daemon_gets_persistence_mode(machine):
    machine.apply()
    assert machine.read(DROPIN).splitlines()[1:] == [
        "[Service]",
        "ExecStart=",
        f"ExecStart={COMMAND} --verbose --persistence-mode",
    ]
    assert f"restart {DAEMON}" in machine.done


def test_the_daemon_is_enabled_where_its_unit_can_be(machine):
    machine.units(daemon="disabled", active="inactive")
    machine.apply()
    assert f"enable {DAEMON}" in machine.done
    assert f"start {DAEMON}" in machine.done


def test_without_the_daemon_our_unit_sets_persistence_mode(machine):
    machine.units()
    result = machine.apply()
    assert "Enabled" in machine.read("/gpus")
    assert not machine.path(DROPIN).exists()
    assert {claim["name"] for claim in result["claims"] if claim["kind"] == "unit"} == {SERVICE}


def test_the_daemon_gets_the_group_of_the_device_files():
    assert core.persistenced_dropin(UBUNTU, "gpu").endswith("--persistence-mode --group gpu\n")
    assert core.persistenced_dropin("[Unit]\n", "gpu") == ""


def test_a_users_own_settings_are_told_and_left(machine):
    machine.write("/etc/systemd/system/power.service", "[Service]\nExecStart=/usr/bin/nvidia-smi -pl 200\n")
    result = machine.apply()
    assert "/etc/systemd/system/power.service: ExecStart=/usr/bin/nvidia-smi -pl 200" in warned(result)
    assert machine.read("/etc/systemd/system/power.service").endswith("200\n")


def test_sleep_units_are_enabled_all_or_none(machine):
    names = ["nvidia-suspend.service", "nvidia-resume.service"]
    rows = {name: {"LoadState": "loaded", "UnitFileState": "disabled"} for name in names}
    machine.units(daemon="static", **rows)
    machine.apply(suspend_units=names)
    assert [line for line in machine.done if "suspend" in line or "resume" in line] == [f"enable {n}" for n in names]
    machine.units(daemon="static", **{names[0]: rows[names[0]], names[1]: {"LoadState": "not-found"}})
    machine.apply(suspend_units=names)
    assert not [line for line in machine.done if "suspend" in line]


def test_check_mode_writes_and_sets_nothing(machine):
    result = machine.apply({FIRST: 250}, check=True)
    assert result["changed"]
    assert machine.limit(FIRST) == "350.00"
    assert not machine.path("/usr/local").exists()
    assert machine.done == []


def test_a_setting_that_does_not_stay_fails(machine, tools):
    tools(**{"nvidia-smi": f"cat {machine.root}/gpus"})
    result = machine.apply()
    assert "ran, and still: 0000:01:00.0: persistence mode is off" in result["msg"]
    assert "the last words" in result["msg"]
