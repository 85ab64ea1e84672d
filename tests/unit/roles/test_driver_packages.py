"""The driver's one transaction: what apt is asked for, what it may do, and what becomes of a failure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpustrap.ansible_plugins.module_utils import gpustrap_apt as apt
from gpustrap.ansible_plugins.module_utils import gpustrap_driver_files as files
from gpustrap.ansible_plugins.module_utils import gpustrap_driver_plan as plan
from gpustrap.ansible_plugins.module_utils.gpustrap_apt_plan import repair
from gpustrap.ansible_plugins.module_utils.gpustrap_driver import Asked, Driver
from gpustrap.ansible_plugins.module_utils.gpustrap_driver_mend import mend
from gpustrap.ansible_plugins.module_utils.gpustrap_node import dpkg
from gpustrap.ansible_plugins.module_utils.gpustrap_node.driver_set import Wanted
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host

KERNEL = "6.1.0-31-amd64"
NAMES = ("nvidia-driver-cuda", "nvidia-kernel-open-dkms")
OPEN = Wanted("595", "open", "dkms", dict.fromkeys(NAMES, "595.71.05-1"))
MADISON = "".join(
    f" {name} | {version} | http://mirror/nvidia  Packages\n"
    for name in (*NAMES, "libcuda1", "libnvidia-fbc1", "linux-headers-" + KERNEL)
    for version in ("595.71.05-1", "580.178.04-1")
)
LOG = "DKMS make.log for nvidia-595.71.05 for kernel 6.1.0-31-amd64 (x86_64)\nnv.c:1:2: error: no such thing\n"


class Node(apt.Runner):
    """A node's dpkg and apt: answers by the first rule whose words are all in the command, and may change the node."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rules: list[tuple[str, int, str, dict[str, str | None]]] = [("apt-cache madison", 0, MADISON, {})]
        self.commands: list[str] = []
        self.states: dict[str, str] = {}
        for name in ("var/lib/dpkg/updates", "proc", f"lib/modules/{KERNEL}/build", "boot"):
            (root / name).mkdir(parents=True)
        self.module(KERNEL)
        self.have("linux-headers-" + KERNEL, "6.1.128-1")

    def have(self, name: str, version: str, state: str = "installed", want: str = "install") -> None:
        self.states[name] = f"Package: {name}\nStatus: {want} ok {state}\nArchitecture: amd64\nVersion: {version}\n"
        (self.root / "var/lib/dpkg/status").write_text("\n".join(self.states.values()))

    def gone(self, name: str) -> None:
        self.states.pop(name, None)
        (self.root / "var/lib/dpkg/status").write_text("\n".join(self.states.values()))

    def module(self, kernel: str) -> None:
        where = self.root / f"lib/modules/{kernel}/updates/dkms"
        where.mkdir(parents=True, exist_ok=True)
        (where / "nvidia.ko").touch()

    def answer(self, words: str, code: int = 0, output: str = "", **after: str | None) -> None:
        """From now on; ``after`` has packages (``_`` for ``-``) and the state they are in then, None: gone."""
        self.rules.insert(0, (words, code, output, after))

    def run(self, argv, timeout=0):
        self.commands.append(" ".join(argv))
        for words, code, output, after in self.rules:
            if set(words.split()) <= set(argv):
                for name, state in after.items():
                    package = name.replace("_", "-")
                    self.gone(package) if state is None else self.have(package, "595.71.05-1", state)
                return code, output
        return 0, ""

    def ran(self, words: str) -> list[str]:
        return [line for line in self.commands if set(words.split()) <= set(line.split())]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def installed(node: Node, version: str = "595.71.05-1") -> None:
    for name in (*NAMES, "libcuda1"):
        node.have(name, version)


def ensure(
    node: Node, wanted: Wanted = OPEN, pin: str = "preferences", *, check: bool = False, kernel=None, refresh=False
):
    asked = Asked(wanted, kernel or ["linux-headers-{kernel}"], pin, 5, refresh, KERNEL)
    return Driver(node, Host(str(node.root)), asked, check).ensure()


def test_fresh_node_gets_all_in_one_transaction(node):
    result = ensure(node)
    [act] = [line for line in node.ran("apt-get install") if " -s " not in line]
    assert act.endswith("install -- nvidia-driver-cuda=595.71.05-1 nvidia-kernel-open-dkms=595.71.05-1")
    assert {"--no-install-recommends", *apt.APT_OPTIONS} <= set(act.split())
    assert result["changed"]
    assert (node.root / files.PREFERENCES.lstrip("/")).read_text() == files.preferences(OPEN, "preferences", [])


def test_second_run_changes_nothing(node):
    installed(node)
    ensure(node)
    node.commands.clear()
    result = ensure(node)
    assert (result["changed"], result["done"]) == (False, [])
    assert not node.ran("apt-get")


def test_other_parts_move_along_where_dependencies_do_not_take_them(node):
    installed(node, "580.178.04-1")
    node.have("libnvidia-fbc1", "580.178.04-1")
    node.answer("-s install", 0, "Inst libcuda1 [580.178.04-1] (595.71.05-1 NVIDIA [amd64])\n")
    (node.root / "var/lib/apt").mkdir()
    (node.root / "var/lib/apt/extended_states").write_text(
        "Package: libnvidia-fbc1\nArchitecture: amd64\nAuto-Installed: 1\n"
    )
    ensure(node)
    [act] = [line for line in node.ran("apt-get install") if " -s " not in line]
    assert "libnvidia-fbc1=595.71.05-1" in act
    assert "libcuda1=" not in act
    assert node.ran("apt-mark auto libnvidia-fbc1")


def test_leftovers_of_the_other_flavour_go_in_the_same_transaction(node):
    for name in ("nvidia-driver-cuda", "nvidia-kernel-dkms", "cuda-drivers"):
        node.have(name, "595.71.05-1")
    node.have("nvidia-driver-pinning-595", "595")
    result = ensure(node)
    [act] = [line for line in node.ran("apt-get install") if " -s " not in line]
    assert act.endswith(
        "nvidia-kernel-open-dkms=595.71.05-1 cuda-drivers- nvidia-driver-pinning-595- nvidia-kernel-dkms-"
    )
    assert "remove nvidia-kernel-dkms, which has modules of the proprietary flavour" in result["done"]


@pytest.mark.parametrize(
    ("simulation", "said"),
    [
        ("Remv gdm3 [43.0-3]\nInst libcuda1 (595.71.05-1 NVIDIA [amd64])\n", "apt would remove gdm3 to install"),
        ("Remv nvidia-driver-cuda [580]\n", "apt would remove nvidia-driver-cuda"),
        ("The following packages will be DOWNGRADED:\n  dkms libcuda1\n0 upgraded\n", "apt would downgrade dkms to"),
        ("The following held packages will be changed:\n  libc6\n", "though held by somebody, libc6"),
    ],
)
def test_what_apt_may_not_replace_is_refused_and_listed(node, simulation, said):
    node.answer("-s install", 0, simulation)
    with pytest.raises(apt.AptError, match=said):
        ensure(node)
    assert not [line for line in node.ran("apt-get install") if " -s " not in line]


def test_what_apt_may_do(node):
    node.answer(
        "-s install", 0, "Remv xserver-xorg-video-nvidia [580]\nInst dkms [3.0] (3.1 D [all])\nRemv libnvidia-x [1]\n"
    )
    assert ensure(node)["changed"]


def test_somebodys_hold_is_refused_with_what_to_type(node):
    installed(node, "580.178.04-1")
    node.have("libcuda1", "580.178.04-1", want="hold")
    with pytest.raises(apt.AptError, match="sudo apt-mark unhold libcuda1"):
        ensure(node)
    assert not (node.root / files.PREFERENCES.lstrip("/")).exists()


def test_own_holds_move_and_are_set_and_released(node):
    archive = Wanted("550", "open", "dkms", {"nvidia-driver-cuda": "595.71.05-1"})
    ensure(node, archive, "hold")
    node.have("nvidia-driver-cuda", "595.71.05-1")
    ensure(node, archive, "hold")
    assert node.ran("apt-mark hold nvidia-driver-cuda")
    node.have("nvidia-driver-cuda", "580.178.04-1", want="hold")
    node.answer("apt-get install", nvidia_driver_cuda="installed")
    assert ensure(node, archive, "hold")["changed"]
    node.have("nvidia-driver-cuda", "595.71.05-1", want="hold")
    node.answer("apt-get install", nvidia_kernel_open_dkms="installed")
    assert "apt-mark unhold nvidia-driver-cuda" in ensure(node, OPEN, "preferences")["done"]
    assert files.HELD not in (node.root / files.PREFERENCES.lstrip("/")).read_text()


def test_check_mode_on_a_bare_node_says_what_would_follow(node):
    node.answer("apt-cache madison", 0, "")
    result = ensure(node, check=True)
    assert "nvidia-driver-cuda=595.71.05-1" in result["would_follow"]
    assert result["changed"]
    assert not (node.root / files.PREFERENCES.lstrip("/")).exists()
    assert not node.ran("apt-get")


def test_check_mode_simulates_with_our_preferences_and_touches_nothing(node):
    result = ensure(node, check=True)
    [simulated] = node.ran("apt-get install")
    assert " -s " in simulated
    assert "Dir::Etc::Preferences=" in simulated
    assert "install nvidia-driver-cuda=595.71.05-1" in result["done"]


def test_version_that_is_gone_is_named_after_a_look_at_fresh_lists(node):
    node.answer("apt-cache madison", 0, MADISON.replace("595.71.05-1", "595.99.99-1"))
    with pytest.raises(apt.AptError, match=r"apt does not have nvidia-driver-cuda=595.71.05-1"):
        ensure(node)
    assert node.ran("apt-get update")


def test_missing_headers(node):
    """The running kernel's headers cannot be had: the way out is the newer kernel that is there."""
    node.gone("linux-headers-" + KERNEL)
    (node.root / f"lib/modules/{KERNEL}/build").rmdir()
    for kernel in (KERNEL, "6.1.0-40-amd64"):
        (node.root / f"boot/vmlinuz-{kernel}").touch()
    (node.root / "lib/modules/6.1.0-40-amd64").mkdir()
    node.answer("apt-cache madison", 0, MADISON.replace(f"linux-headers-{KERNEL}", "linux-headers-6.1.0-40-amd64"))
    with pytest.raises(
        apt.AptError, match=r"linux-headers-6.1.0-31-amd64 \(kernel 6.1.0-40-amd64 is installed: reboot"
    ):
        ensure(node)


def test_headers_that_lie_there_under_another_name_do(node):
    node.gone("linux-headers-" + KERNEL)
    node.answer("apt-cache madison", 0, MADISON.replace("linux-headers-" + KERNEL, "x"))
    assert "linux-headers" not in " ".join(ensure(node)["done"])


def test_compiler_of_the_kernel_comes_along(node):
    (node.root / "proc/version").write_text(
        "Linux version 6.8.0-40-generic (x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0) 12.3.0)"
    )
    node.answer("apt-cache madison", 0, MADISON + " gcc-12 | 12.3.0-1 | http://archive  Packages\n")
    assert "install gcc-12" in ensure(node)["done"]
    assert plan.compiler("Linux version 6.18 (gcc (GCC) 15.3.0)") == ""


def test_dkms_build_fail(node):
    """The first errors of the log are shown, and the failed package goes, so that apt works."""
    log = node.root / "var/lib/dkms/nvidia/595.71.05/build/make.log"
    log.parent.mkdir(parents=True)
    log.write_text(LOG)
    said = "Consult /var/lib/dkms/nvidia/595.71.05/build/make.log for more information.\n"
    node.answer("apt-get -q -y remove", nvidia_kernel_open_dkms=None, nvidia_driver_cuda=None)
    node.answer("-s remove", 0, "Remv nvidia-driver-cuda [595]\nRemv nvidia-kernel-open-dkms [595]\n")
    node.answer("apt-get install", 100, said, nvidia_kernel_open_dkms="half-configured", nvidia_driver_cuda="unpacked")
    node.answer("-s install", 0, "")
    with pytest.raises(apt.AptError) as failed:
        ensure(node)
    words = str(failed.value)
    assert "the module of driver 595.71.05 does not build for kernel 6.1.0-31-amd64 (/var/lib/dkms" in words
    assert "nv.c:1:2: error: no such thing" in words
    assert "removed, so that apt works: nvidia-driver-cuda, nvidia-kernel-open-dkms" in words
    assert "left in the middle" not in words


def test_module_whose_build_came_before_its_compiler_is_built_once_more(node):
    """apt configures driver, headers and compiler in any order: dpkg ends healthy, and so does the run."""
    node.answer("apt-get install", 100, "Consult nothing\n", nvidia_kernel_open_dkms="half-configured")
    node.answer("-s install", 0, "")
    finished = node.run

    def configured(argv, timeout=0):
        if argv[:2] == ["dpkg", "--configure"]:
            node.answer("apt-get install", nvidia_kernel_open_dkms="installed", nvidia_driver_cuda="installed")
        return finished(argv)

    node.run = configured
    assert "install nvidia-kernel-open-dkms=595.71.05-1" in ensure(node)["done"]
    assert not node.ran("remove")


def test_failure_that_left_nothing_in_the_middle_is_not_tried_again(node):
    node.answer("apt-get install", 100, "E: Failed to fetch http://mirror/nvidia\n")
    node.answer("-s install", 0, "")
    with pytest.raises(apt.AptError, match="could not be installed"):
        ensure(node)
    assert len([line for line in node.ran("apt-get install") if " -s " not in line]) == 1


def test_module_that_a_moved_kernel_lacks_is_built(node):
    installed(node)
    (node.root / f"lib/modules/{KERNEL}/updates/dkms/nvidia.ko").unlink()
    node.answer("dkms autoinstall", 10, "Consult nothing\n")
    with pytest.raises(apt.AptError, match="could not be installed"):
        ensure(node)

    answer = node.run

    def build(argv, timeout=0):
        if argv[0] == "dkms":
            node.module(KERNEL)
            return 11, "another module, of a network card, does not build"
        return answer(argv)

    node.run = build
    assert f"build the module for kernel {KERNEL}" in ensure(node)["done"]


def test_dpkg_interrupted(node):
    """Half-configured parts of the driver are finished, else removed to come again; nothing else is."""
    host = Host(str(node.root))
    node.have("nvidia-kernel-open-dkms", "580.178.04-1", "half-configured")
    node.answer("dpkg --configure", nvidia_kernel_open_dkms="installed")
    assert mend(node, host, False) == ["finish what dpkg left: nvidia-kernel-open-dkms"]

    node.have("nvidia-kernel-open-dkms", "580.178.04-1", "half-configured")
    node.answer("dpkg --configure", 1, "exit status 10")
    node.answer("apt-get -q -y remove", nvidia_kernel_open_dkms=None)
    node.answer("-s remove", 0, "Remv nvidia-kernel-open-dkms [580]\n")
    assert mend(node, host, False)[-1] == "remove nvidia-kernel-open-dkms, which could not be configured"
    assert mend(node, host, False) == []


def test_what_is_not_ours_and_stuck_is_left_to_a_person(node):
    host = Host(str(node.root))
    node.have("openssh-server", "1", "half-configured")
    node.answer("dpkg --configure", 1, "exit status 1")
    with pytest.raises(apt.AptError, match="dpkg cannot finish openssh-server"):
        mend(node, host, False)
    assert not node.ran("remove")


def test_driver_that_is_stuck_does_not_keep_the_first_role_from_its_work(node):
    host = Host(str(node.root))
    node.answer("dpkg --configure", 1, "exit status 10")
    node.have("nvidia-kernel-open-dkms", "580.178.04-1", "half-configured")
    node.have("linux-headers-6.1.0-40-amd64", "6.1", "half-configured")
    assert repair(node, host, 5, False)
    node.have("openssh-server", "1", "half-configured")
    with pytest.raises(apt.AptError, match="cannot finish"):
        repair(node, host, 5, False)


def test_power_lost_between_two_versions_of_the_driver_is_left_to_its_role(node):
    """Half its parts are of the other version: no repair of apt's, and no refusal, but the locked transaction."""
    host = Host(str(node.root))
    node.have("nvidia-driver-cuda", "595.71.05-1", "unpacked")
    node.answer("dpkg --configure", 1, "dependency problems")
    node.answer("apt-get check", 100, " nvidia-driver-cuda : Depends: libnvidia-ml1 (= 595) but 580 is installed\n")
    node.answer("-s -f install", 0, "Inst libnvidia-ml1 [580.178.04-1] (595.71.05-1 NVIDIA [amd64])\n")
    assert repair(node, host, 5, False) == ["finished an interrupted dpkg run: nvidia-driver-cuda"]
    node.answer("-s remove", 100, "unmet dependencies")
    assert mend(node, host, False) == ["finish what dpkg left: nvidia-driver-cuda"]
    node.answer("-s -f install", 0, "Inst openssh-server [1] (2 Debian [amd64])\n")
    with pytest.raises(apt.AptError, match="would change the version of openssh-server"):
        repair(node, host, 5, False)


def test_prebuilt_modules_hold_the_kernels_metapackages_too(node):
    names = ("nvidia-headless-no-dkms-595-server-open", "nvidia-utils-595-server")
    wanted = Wanted("595", "open", "prebuilt", dict.fromkeys(names, "595.71.05-1"))
    metapackage = "linux-modules-nvidia-595-server-open-generic"
    for name in (*names, metapackage, "linux-generic", "linux-image-generic"):
        node.have(name, "595.71.05-1")
    ensure(node, wanted, "hold", kernel=[metapackage])
    [held] = node.ran("apt-mark hold")
    assert held.split()[3:] == sorted([*names, metapackage, "linux-generic", "linux-image-generic"])


def test_every_package_of_dpkg_is_read():
    known = dpkg.parse_status(
        "Package: nvidia-modprobe\nStatus: install ok installed\nVersion: 1\nArchitecture: amd64\n"
    )
    assert list(plan.installed_driver(known)) == ["nvidia-modprobe"]


def test_fabric_manager_that_its_role_holds_moves_with_the_driver(node):
    """Failure mode fabricmanager-mismatch: its hold is ours, although another role set it."""
    fabric = "nvidia-fabricmanager-595"
    node.rules[-1] = ("apt-cache madison", 0, MADISON + f" {fabric} | 595.71.05-1 | http://archive  Packages\n", {})
    installed(node, "595.58.03-1")
    node.have(fabric, "595.58.03-1", want="hold")
    with pytest.raises(apt.AptError, match="held by somebody: nvidia-fabricmanager-595"):
        ensure(node, OPEN, "hold")
    preferences = node.root / files.PREFERENCES.lstrip("/")
    preferences.parent.mkdir(parents=True)
    preferences.write_text(files.preferences(OPEN, "hold", ["nvidia-driver-cuda"]))
    held = f"The following held packages will be changed:\n  {fabric}\nInst {fabric} [595.58.03-1] (595.71.05-1)\n"
    node.answer("-s install", 0, held)
    ensure(node, OPEN, "hold")
    [act] = [line for line in node.ran("apt-get install") if " -s " not in line]
    assert "nvidia-driver-cuda=595.71.05-1" in act


def test_old_lists_are_fetched_before_the_driver_of_an_archive(node):
    """They name compilers and headers that the archive dropped: apt would fetch what is gone."""
    lists = node.root / "var/lib/apt/lists"
    (lists / "partial").mkdir(parents=True)
    (lists / "a_Packages").touch()
    ensure(node)
    assert not node.ran("apt-get update")
    os.utime(lists / "partial", (0, 0))
    ensure(node)
    assert node.ran("apt-get update")
    node.commands.clear()
    installed(node)
    ensure(node)
    assert not node.ran("apt-get update")


def test_cloud_inits_first_boot_is_waited_for(node, monkeypatch):
    """Failure mode dpkg-lock: on a fresh machine it installs packages itself."""
    monkeypatch.setattr(node, "sleep", lambda _seconds: node.answer("cloud-init status", 0, "status: done"))
    (node.root / "run/cloud-init").mkdir(parents=True)
    node.answer("cloud-init status", 0, "status: running")
    ensure(node)
    assert node.commands.index("cloud-init status") < node.commands.index(node.ran("apt-cache madison")[0])
    assert len(node.ran("cloud-init status")) == 2
