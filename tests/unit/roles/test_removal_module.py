"""Module gpustrap_removal below a scratch root: the order in which it acts, and what it refuses to do."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node import ledger, removal
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Completed, Host

CONF = "/etc/modprobe.d/gpustrap-nvidia.conf"
DROPIN = "/etc/systemd/system/nvidia-persistenced.service.d/gpustrap-persistence.conf"
UNIT = "gpustrap-gpu-settings.service"
STATUS = "Package: %s\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n\n"
APPROVED = {"packages": ["nvidia-smi"], "files": [CONF, DROPIN]}


class Tree(Host):
    """A recorded tree with an apt that removes what it is told, and nothing else."""

    def run(self, argv, timeout=10.0):
        names = argv[argv.index("--") + 1 :]
        return Completed(0, "".join(f"Remv {name} [1]\n" for name in names), "")


@pytest.fixture
def machine(tmp_path, run):
    return Machine(tmp_path, run)


class Machine:
    """A node with a driver of ours, and a runner that writes down what it was told."""

    def __init__(self, root, call):
        self.root, self.call, self.host, self.told, self.fails = root, call, Tree(str(root)), [], ""
        self.write("/var/lib/dpkg/status", STATUS % "nvidia-smi" + STATUS % "jq")
        self.write("/usr/sbin/update-initramfs", "")
        for path in (CONF, DROPIN):
            self.write(path, "ours\n")
        states = removal.observe_all(self.host, [("file", CONF), ("file", DROPIN)])
        rows = [("package", "nvidia-smi", {}), ("unit", UNIT, {})]
        rows += [("file", path, state) for path, state in zip((CONF, DROPIN), states, strict=True)]
        mine = [{"kind": k, "name": n, "state": s, "role": "nvidia_driver"} for k, n, s in rows]
        other = {"kind": "package", "name": "jq", "state": {}, "role": "ubuntu_server"}
        book = {"version": 1, "run": {"id": "r1"}, "resources": [*mine, other]}
        self.write(ledger.LEDGER, json.dumps(book))
        self.write(ledger.BEFORE, json.dumps({"packages": {"jq": "1"}, "holds": []}))
        (root / "var/lib/gpustrap").chmod(0o700)

    def write(self, name, text):
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)

    def run(self, argv, timeout=0):
        self.told.append(" ".join(w for w in argv if not w.startswith(("-o", "DPkg", "Dpkg"))))
        return (1, "its words") if self.fails and self.fails in self.told[-1] else (0, "")

    def remove(self, check=False, wanted=(), **more):
        runner = SimpleNamespace(run=self.run, now=lambda: 0.0, sleep=lambda _s: None)
        patch = {"Host": lambda **_: self.host, "Runner": lambda: runner}
        return self.call(
            "gpustrap_removal", check=check, patch=patch, part="driver", wanted=list(wanted), lock_timeout=1, **more
        )

    def there(self, path):
        return (self.root / path.lstrip("/")).exists()

    def recorded(self):
        return [one["name"] for one in ledger.read(self.host, {})["ledger"]["resources"]]


def test_unit_packages_files_initramfs_and_ledger_in_this_order(machine):
    result = machine.remove(approved=APPROVED)
    assert result["changed"]
    assert machine.told == [
        f"systemctl disable --now {UNIT}",
        "apt-get -q -y --allow-change-held-packages remove -- nvidia-smi",
        "systemctl daemon-reload",
        "/usr/sbin/update-initramfs -u -k all",
    ]
    assert not machine.there(CONF)
    assert not machine.there(DROPIN.rpartition("/")[0])
    assert machine.there("/etc/systemd/system")
    assert machine.recorded() == ["jq"]


def test_a_hold_of_ours_on_a_package_that_stays_is_taken_back_first(machine):
    machine.write(removal.PREFERENCES, "# Held by gpustrap: linux-generic nvidia-smi\n")
    held = (STATUS % "linux-generic").replace("Status: install", "Status: hold")
    machine.write("/var/lib/dpkg/status", STATUS % "nvidia-smi" + held)
    machine.remove()
    assert machine.told[:2] == [f"systemctl disable --now {UNIT}", "apt-mark unhold -- linux-generic"]


def test_a_second_time_changes_nothing(machine):
    machine.remove()
    machine.write("/var/lib/dpkg/status", STATUS % "jq")
    machine.told.clear()
    assert not machine.remove()["changed"]
    assert machine.told == []


def test_check_mode_tells_and_does_nothing(machine):
    result = machine.remove(check=True)
    assert (result["packages"], result["files"], machine.told) == (["nvidia-smi"], [CONF, DROPIN], [])
    assert machine.there(CONF)
    assert "nvidia-smi" in machine.recorded()


def test_more_than_was_shown_is_not_removed(machine):
    result = machine.remove(approved={**APPROVED, "packages": []})
    assert result["failed"]
    assert result["msg"] == "there is more to remove now than was shown: nvidia-smi"
    assert machine.told == []


def test_what_the_lock_has_is_not_removed(machine):
    result = machine.remove(wanted=["nvidia_driver"])
    assert result["msg"] == "the lock still has nvidia_driver for this node"
    assert machine.told == []


@pytest.mark.parametrize("step", ["disable", "remove", "update-initramfs"])
def test_where_a_step_fails_the_ledger_still_has_everything_and_the_next_call_goes_on(machine, step):
    machine.fails = step
    result = machine.remove()
    assert result["failed"]
    assert "its words" in result["msg"] + result.get("stderr", "")
    assert "nvidia-smi" in machine.recorded()
