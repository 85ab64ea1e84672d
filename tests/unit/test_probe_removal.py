"""What gpustrap may remove from a node: its own packages and files, and nothing that anybody else has or needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_driver_files import PREFERENCES, preferences
from gpustrap.ansible_plugins.module_utils.gpustrap_node import ledger, removal
from gpustrap.ansible_plugins.module_utils.gpustrap_node.driver_set import Wanted
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host, NodeError
from gpustrap.model.removal import ROLES, Part

DRIVER, CUDA = "nvidia_driver", "cuda_toolkit"
CONF = "/etc/modprobe.d/gpustrap-nvidia.conf"
DKMS, HEADERS, COMPILER, DAEMON = "nvidia-kernel-open-dkms", "linux-headers-6.1", "cuda-toolkit-12-9", "nvidia-daemon"
SOURCES, KEY = removal.SHARED[1], removal.SHARED[0]


class Node:
    """A tree of dpkg's state, a ledger, the note from before and files; and an apt that knows dependencies."""

    def __init__(self, root: Path) -> None:
        self.root, self.host = root, Host(str(root))
        self.resources: list[dict[str, Any]] = []
        self.left: list[dict[str, Any]] = []
        self.installed: dict[str, str] = {}
        self.before: dict[str, str] | None = {}
        self.holds: list[str] = []
        self.automatic: list[str] = []
        self.needs: dict[str, set[str]] = {}  # package -> what it depends on
        self.asked: list[tuple[tuple[str, ...], bool]] = []

    def write(self, path: str, text: str) -> None:
        where = self.root / path.lstrip("/")
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(text)
        where.chmod(0o644)

    def package(self, name: str, role: str = DRIVER, *, want: str = "install", hold: bool = False) -> None:
        self.installed[name] = want
        if role:
            state = {"version": "1", "hold": hold}
            self.resources.append({"kind": "package", "name": name, "role": role, "state": state})

    def file(self, path: str, role: str = DRIVER, *, text: str = "ours\n") -> None:
        self.write(path, text)
        (state,) = removal.observe_all(self.host, [("file", path)])
        self.resources.append({"kind": "file", "name": path, "role": role, "state": state})

    def apt(self, names: Sequence[str], needless: bool) -> str:
        """What apt-get -s prints: who needs a removed package goes; with autoremove, what nobody needs, too."""
        self.asked.append((tuple(names), needless))
        gone = set(names)
        while more := {p for p in self.installed if self.needs.get(p, set()) & gone} - gone:
            gone |= more
        while needless and (
            more := {
                a for a in self.automatic if not any(a in self.needs.get(p, set()) for p in set(self.installed) - gone)
            }
            - gone
        ):
            gone |= more
        return "".join(f"Remv {name} [1]\n" for name in sorted(gone))

    def look(self, part: str = "driver", wanted: Sequence[str] = ()) -> removal.Removal:
        status = "".join(
            f"Package: {name}\nStatus: {want} ok installed\nArchitecture: amd64\nVersion: 1\n\n"
            for name, want in self.installed.items()
        )
        self.write("/var/lib/dpkg/status", status)
        states = "".join(f"Package: {n}\nArchitecture: amd64\nAuto-Installed: 1\n\n" for n in self.automatic)
        self.write(removal.EXTENDED, states)
        book = {"version": 1, "run": {"id": "r1"}, "resources": self.resources, "left": self.left}
        self.write(ledger.LEDGER, json.dumps(book))
        if self.before is not None:
            self.write(ledger.BEFORE, json.dumps({"run": "r1", "packages": self.before, "holds": self.holds}))
        (self.root / "var/lib/gpustrap").chmod(0o700)
        return removal.look(self.host, part, wanted, self.apt)

    def refusal(self, part: str = "driver", wanted: Sequence[str] = ()) -> tuple[str, str]:
        with pytest.raises(NodeError) as caught:
            self.look(part, wanted)
        return caught.value.code, str(caught.value)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    there = Node(tmp_path)
    there.package(DKMS)
    there.file(CONF)
    return there


def test_parts_are_the_same_on_both_sides() -> None:
    assert {part: ROLES[Part(part)] for part in removal.PARTS} == removal.PARTS
    assert {part.value for part in Part} == set(removal.PARTS)
    assert removal.PREFERENCES == PREFERENCES


def test_what_a_role_claimed_goes_and_nothing_of_other_roles(node: Node) -> None:
    node.package("docker.io", "docker")
    node.file("/etc/profile.d/gpustrap-other.sh", "docker")
    found = node.look()
    assert (found.packages, found.files, found.kept) == ([DKMS], [CONF], [])
    assert ("package", DKMS) in found.forgotten
    assert ("package", "docker.io") not in found.forgotten


def test_what_an_apply_after_the_plan_no_longer_claims_is_still_ours(node: Node) -> None:
    node.resources, node.left = [], node.resources
    assert node.look().packages == [DKMS]


def test_what_was_there_before_gpustrap_stays(node: Node) -> None:
    node.before = {DKMS: "550.1-1"}
    found = node.look()
    assert found.packages == []
    assert found.kept == [f"{DKMS}: was there before gpustrap, as version 550.1-1"]


def test_what_is_already_gone_is_no_matter(node: Node) -> None:
    node.installed = {}
    assert node.look().packages == []
    assert node.asked == []


@pytest.mark.parametrize("kernel", [HEADERS, "linux-image-generic", "linux-headers-generic"])
def test_kernel_packages_stay(node: Node, kernel: str) -> None:
    node.package(kernel)
    found = node.look()
    assert found.packages == [DKMS]
    assert kernel in found.kept[0]


def test_prebuilt_modules_go(node: Node) -> None:
    node.package("linux-modules-nvidia-580-open-generic")
    assert "linux-modules-nvidia-580-open-generic" in node.look().packages


def test_what_came_along_goes_with_it_and_what_others_need_stays(node: Node) -> None:
    for name in ("dkms", "libc6-dev", "old-library"):
        node.package(name, "")
    node.automatic = ["dkms", "libc6-dev", "old-library"]
    node.needs = {DKMS: {"dkms", "libc6-dev"}, "gcc": {"libc6-dev"}}
    node.package("gcc", "")
    assert node.look().packages == ["dkms", DKMS]  # old-library was needless already: not by us


def test_what_came_along_and_was_there_before_stays(node: Node) -> None:
    node.package("dkms", "")
    node.automatic, node.needs, node.before = ["dkms"], {DKMS: {"dkms"}}, {"dkms": "1"}
    assert node.look().packages == [DKMS]


def test_what_came_along_of_the_kernel_stays(node: Node) -> None:
    node.package(HEADERS, "")
    node.automatic, node.needs = [HEADERS], {DKMS: {HEADERS}}
    assert node.look().packages == [DKMS]


def test_an_automatic_package_that_needs_ours_goes_with_it(node: Node) -> None:
    node.package(DAEMON, "")
    node.automatic, node.needs = [DAEMON], {DAEMON: {DKMS}}
    assert node.look().packages == [DAEMON, DKMS]


@pytest.mark.parametrize("there", [True, False])
def test_another_package_that_needs_ours_is_a_refusal_that_names_it(node: Node, there: bool) -> None:
    node.package("users-tool", "")
    node.needs = {"users-tool": {DKMS}}
    node.automatic = ["users-tool"] if there else []
    node.before = {"users-tool": "1"} if there else {}
    code, said = node.refusal()
    assert code == "others-need-it"
    assert "apt would remove users-tool as well" in said


def test_apt_that_would_install_something_is_refused(node: Node) -> None:
    known = node.apt
    node.apt = lambda names, needless: known(names, needless) + "Inst nouveau-thing (1 Debian)\n"  # type: ignore[method-assign]
    assert node.refusal() == ("more-than-removal", "apt would install or change nouveau-thing")


def test_somebodys_hold_is_refused_and_ours_is_not(node: Node) -> None:
    node.package("libcuda1", want="hold", hold=True)
    assert "libcuda1" in node.look().packages
    node.package("nvidia-smi", want="hold")
    code, said = node.refusal()
    assert (code, said.startswith("somebody put nvidia-smi on hold")) == ("held", True)


def test_the_kernel_that_we_held_may_move_again_and_what_was_held_before_may_not(node: Node) -> None:
    for name in ("linux-generic", "linux-headers-generic"):
        node.package(name, "", want="hold")
    wanted = Wanted("580", "open", "prebuilt", {"nvidia-utils-580": "580.1-1"})
    node.write(removal.PREFERENCES, preferences(wanted, "hold", ["linux-generic", "linux-headers-generic", "gone"]))
    node.holds = ["linux-headers-generic"]
    assert node.look().released == ["linux-generic"]
    assert node.look("cuda").released == []
    node.package("linux-generic", "")
    assert node.look().released == []


def test_a_file_that_was_changed_stays(node: Node) -> None:
    node.write(CONF, "# mine now\n")
    found = node.look()
    assert (found.files, found.kept) == ([], [f"{CONF}: was changed since the last run"])


@pytest.mark.parametrize("path", ["/etc/apt/sources.list.d/debian.sources", "/etc/notgpustrap.conf", "/etc/passwd"])
def test_a_file_that_is_not_ours_alone_stays(node: Node, path: str) -> None:
    node.file(path)
    found = node.look()
    assert found.files == [CONF]
    assert found.kept == [f"{path}: is not gpustrap's alone; what it changed there stays"]


@pytest.mark.parametrize(
    "path",
    [
        "/etc/apt/apt.conf.d/96gpustrap-nvidia-driver",
        "/usr/local/sbin/gpustrap-gpu-settings",
        "/etc/systemd/system/nvidia-fabricmanager.service.d/gpustrap.conf",
    ],
)
def test_names_of_ours(node: Node, path: str) -> None:
    node.file(path)
    assert path in node.look().files


def test_units_of_ours_are_named_and_those_of_packages_not(node: Node) -> None:
    for unit in ("gpustrap-gpu-settings.service", "nvidia-persistenced.service"):
        node.resources.append({"kind": "unit", "name": unit, "role": DRIVER, "state": {}})
    assert node.look().units == ["gpustrap-gpu-settings.service"]


@pytest.mark.parametrize("owner", [DRIVER, CUDA])
def test_the_shared_repository_stays_while_cuda_is_there_and_goes_with_the_last(node: Node, owner: str) -> None:
    node.package(COMPILER, CUDA)
    for path in removal.SHARED:
        node.file(path, owner)
    found = node.look()
    assert found.files == [CONF]
    assert not {name for _kind, name in found.forgotten} & set(removal.SHARED)
    del node.installed[COMPILER]
    found = node.look()
    assert found.files == sorted([CONF, KEY, SOURCES])
    assert ("file", KEY) in found.forgotten
    assert set(removal.SHARED) <= set(node.look("driver").files)


def test_the_shared_repository_stays_while_the_lock_wants_it(node: Node) -> None:
    for path in removal.SHARED:
        node.file(path)
    assert node.look(wanted=["docker", CUDA]).files == [CONF]


def test_cuda_leaves_the_driver_alone(node: Node) -> None:
    node.package(COMPILER, CUDA)
    node.file("/etc/profile.d/gpustrap-cuda.sh", CUDA)
    found = node.look("cuda", wanted=[DRIVER])
    assert (found.packages, found.files) == ([COMPILER], ["/etc/profile.d/gpustrap-cuda.sh"])


def test_a_part_that_the_lock_still_has_is_refused(node: Node) -> None:
    assert node.refusal(wanted=["docker", DRIVER])[0] == "still-wanted"


def test_a_node_without_the_note_from_before_is_refused(node: Node) -> None:
    node.before = None
    code, said = node.refusal()
    assert (code, ledger.BEFORE in said) == ("no-note-from-before", True)


def test_a_node_without_a_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NodeError) as caught:
        removal.look(Host(str(tmp_path)), "driver", [], lambda _names, _needless: "")
    assert caught.value.code == "no-ledger"


def test_a_program_on_the_gpus_is_a_refusal_unless_nothing_goes(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    found = node.look()
    folder = node.root / "proc" / "4711"
    (folder / "fd").mkdir(parents=True)
    (folder / "fd" / "3").symlink_to("/dev/nvidia0")
    (folder / "comm").write_text("python3\n")
    with pytest.raises(NodeError, match="4711") as caught:
        removal.refuse_users(node.host, "driver", found)
    assert caught.value.code == "gpus-in-use"
    removal.refuse_users(node.host, "cuda", found)
    removal.refuse_users(node.host, "driver", found._replace(packages=[]))


def test_the_note_is_of_the_time_before_the_first_run_only(node: Node) -> None:
    node.look()
    (node.root / ledger.LEDGER.lstrip("/")).unlink()
    (node.root / ledger.BEFORE.lstrip("/")).unlink()
    ledger.open_run(node.host, {"run_id": "r1"})
    assert ledger.before(node.host) == ({DKMS: "1"}, [])
    node.installed["later"] = "install"
    node.look()  # has a ledger again
    (node.root / ledger.BEFORE.lstrip("/")).unlink(missing_ok=True)
    ledger.open_run(node.host, {"run_id": "r2"})
    assert ledger.before(node.host) is None


def test_what_is_gone_is_forgotten_and_the_rest_is_not(node: Node) -> None:
    node.package("docker.io", "docker")
    found = node.look()
    ledger.forget(node.host, set(found.forgotten))
    left = ledger.read(node.host, {})["ledger"]
    assert isinstance(left, dict)
    assert [one["name"] for one in left["resources"]] == ["docker.io"]


def test_digest_of_a_file_is_what_is_compared(node: Node) -> None:
    (state,) = (r["state"] for r in node.resources if r["name"] == CONF)
    assert state["sha256"] == hashlib.sha256(b"ours\n").hexdigest()
