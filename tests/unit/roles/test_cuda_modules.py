"""Role cuda_toolkit: what a toolkit must not do to a driver or a disk, and whose choice /usr/local/cuda is."""

from __future__ import annotations

import subprocess

import pytest
import yaml

from gpustrap.content import content_root

# As apt-get -s says it.
TOOLKIT = """Inst cuda-nvcc-12-9 (12.9.86-1 NVIDIA CUDA:repo [amd64])
Inst libcublas-12-9 [12.9.1.4-1] (12.9.2.10-1 NVIDIA CUDA:repo [amd64])
Inst nsight-compute-2025.2.1 (2025.2.1.3-1 NVIDIA CUDA:repo [amd64])
Inst libcudnn9-cuda-12 (9.24.0.43-1 NVIDIA CUDA:repo [amd64])
Inst cuda-toolkit-12-9 (12.9.2-1 NVIDIA CUDA:repo [amd64])
Conf cuda-toolkit-12-9 (12.9.2-1 NVIDIA CUDA:repo [amd64])
"""
SHOWN = """Package: cuda-nvcc-12-9
Version: 12.9.86-1
Installed-Size: 300000
Size: 100000000
Description: nvcc
 Package: not this one

Package: nsight-compute-2025.2.1
Installed-Size: 1000
Size: 500

Package: libcudnn9-cuda-12
Size: 7
Installed-Size: 2000
"""
VARIABLES = yaml.safe_load((content_root() / "roles/cuda_toolkit/vars/main.yml").read_text(encoding="utf-8"))
DRIVERS, OTHERS = (VARIABLES[f"__cuda_toolkit_{kind}_packages"] for kind in ("driver", "other"))
PACKAGES = [{"name": "cuda-toolkit-12-9", "version": "12.9.2-1"}]
GIB = 1 << 30


@pytest.fixture
def cuda(run):
    """The pure core, imported as Ansible does."""
    import ansible.module_utils.gpustrap_cuda as core

    return core


@pytest.fixture
def default(run):
    import ansible.module_utils.gpustrap_cuda_default as core

    return core


class Apt:
    """Answers as apt would, and keeps what it was asked."""

    def __init__(self, *simulations: tuple[int, str], shown: str = SHOWN) -> None:
        self.simulations, self.shown, self.asked = list(simulations), shown, []

    def run(self, argv, timeout=0):
        self.asked.append(" ".join(argv))
        if "-s" in argv:
            return self.simulations.pop(0)
        return (0, self.shown) if list(argv[:2]) == ["apt-cache", "show"] else (0, "")

    def now(self):
        return 0.0


@pytest.fixture
def plan(cuda, tmp_path):
    """``plan(apt, known={}, **more)`` on a node with room enough."""

    def call(runner, known=None, **more):
        room = more.pop("room", cuda.Room(1, 100 * GIB, 1_000_000))
        given = {"drivers": DRIVERS, "but": OTHERS, "lock_timeout": 1, "check_mode": False, "root": str(tmp_path)}
        return cuda.plan(runner, known or {}, PACKAGES, looked=lambda _path: room, **{**given, **more})

    return call


def package(cuda, name, version, *, hold=False):
    return {
        name: cuda.dpkg.Package(
            name=name,
            architecture="amd64",
            version=version,
            want="hold" if hold else "install",
            flag="ok",
            state="installed",
        )
    }


def test_packages_are_told_to_apt_after_a_simulation(plan):
    runner = Apt((0, TOOLKIT))
    result = plan(runner)
    assert result["install"] == ["cuda-toolkit-12-9=12.9.2-1"]
    assert result["claims"] == [{"kind": "package", "name": "cuda-toolkit-12-9"}]
    assert runner.asked[0].endswith(" update"), "there are no lists: they are fetched first"


def test_packages_that_are_there_are_not_asked_about(plan, cuda):
    runner = Apt()
    assert plan(runner, package(cuda, "cuda-toolkit-12-9", "12.9.2-1"))["install"] == []
    assert runner.asked == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Inst libcuda1 (615.71.09-1 x [amd64])", "install libcuda1"),
        ("Inst nvidia-driver-580 [580.1-1] (615.71.09-1 x [amd64])", "change the version of nvidia-driver-580"),
        ("Remv libnvidia-ml1 [595.91.07-1]", "remove libnvidia-ml1"),
        ("Purg nvidia-kernel-open-dkms [595.91.07-1]", "remove nvidia-kernel-open-dkms"),
        ("Inst cuda-runtime-12-9 (12.9.2-1 x [amd64])", "install cuda-runtime-12-9"),
        ("Inst cuda-12-9 (12.9.2-1 x [amd64])", "install cuda-12-9"),
        ("Inst cuda-drivers (615.71.09-1 x [amd64])", "install cuda-drivers"),
        ("Inst firmware-nvidia-gsp (595-1 x [amd64])", "install firmware-nvidia-gsp"),
        ("Inst linux-modules-nvidia-580-open-generic (6.8 x [amd64])", "install linux-modules-nvidia-580-open-generic"),
    ],
)
def test_toolkit_that_would_touch_the_driver_is_refused(plan, cuda, line, said):
    with pytest.raises(cuda.apt.AptError, match="leaves the driver alone; nothing was changed") as refused:
        plan(Apt((0, f"{TOOLKIT}{line}\n")))
    assert said in str(refused.value)
    assert "apt-get -s install --no-install-recommends cuda-toolkit-12-9=12.9.2-1" in str(refused.value)


@pytest.mark.parametrize(
    "name", ["libnvidia-container1", "nvidia-container-toolkit", "libnvjitlink-12-9", "gds-tools-12-9"]
)
def test_what_only_looks_like_a_driver_is_none(plan, name):
    assert plan(Apt((0, f"{TOOLKIT}Inst {name} (1-1 x [amd64])\n")))["install"]


def test_old_toolkits_are_never_removed_unasked(plan, cuda):
    with pytest.raises(cuda.apt.AptError, match="installing would remove cuda-toolkit-11-8"):
        plan(Apt((0, f"{TOOLKIT}Remv cuda-toolkit-11-8 [11.8.0-1]\n")))


def test_package_on_hold_in_another_version_is_named(plan, cuda):
    with pytest.raises(cuda.apt.AptError, match=r"on hold in another version: cuda-toolkit-12-9 12.9.1-1.*unhold"):
        plan(Apt(), package(cuda, "cuda-toolkit-12-9", "12.9.1-1", hold=True))


def test_check_mode_on_a_bare_node_says_what_would_follow(plan):
    runner = Apt((100, "E: Unable to locate package cuda-toolkit-12-9"))
    result = plan(runner, check_mode=True)
    assert result["would_follow"] == ["cuda-toolkit-12-9=12.9.2-1"]
    assert result["install"] == []
    assert not any("update" in words for words in runner.asked)


def test_apt_says_why_it_cannot(plan, cuda):
    with pytest.raises(cuda.apt.AptError, match="apt cannot install cuda-toolkit-12-9") as refused:
        plan(Apt((100, "E: Version '12.9.2-1' for 'cuda-toolkit-12-9' was not found"), (100, "E: not found")))
    assert "not found" in refused.value.evidence


def test_sizes_are_those_that_apt_has(cuda):
    assert cuda.parse_versions(TOOLKIT)[1] == ("libcublas-12-9", "12.9.2.10-1")
    assert len(cuda.parse_versions(TOOLKIT)) == 5
    sizes = cuda.parse_sizes(SHOWN)
    assert sizes == {
        "cuda-nvcc-12-9": (100_000_000, 300_000 * 1024),
        "nsight-compute-2025.2.1": (500, 1000 * 1024),
        "libcudnn9-cuda-12": (7, 2000 * 1024),
    }
    assert [(where, size) for where, size, _files in cuda.needs(sizes)] == [
        ("/var/cache/apt/archives", 100_000_507),
        ("/usr/local", 300_000 * 1024),
        ("/opt", 1000 * 1024),
        ("/usr", 2000 * 1024),
    ]


def test_disk_too_small_names_every_file_system_at_once(cuda):
    rooms = {"/var/cache/apt/archives": cuda.Room(1, 10, None), "/usr/local": cuda.Room(2, 10 * GIB, 3)}
    wanted = [("/var/cache/apt/archives", GIB, 5), ("/usr/local", GIB, 10), ("/usr", GIB, 10)]
    with pytest.raises(cuda.apt.AptError) as refused:
        cuda.refuse_shortage(wanted, lambda path: rooms.get(path, cuda.Room(3, 100 * GIB, 100)), 5)
    assert "/var/cache/apt/archives has 0 MiB free, 1280 MiB needed" in str(refused.value)
    assert "/usr/local has 3 inodes free, about 10 needed" in str(refused.value)
    assert "/usr has" not in str(refused.value)


def test_disk_too_small_adds_up_what_one_file_system_takes(cuda):
    wanted = [("/var/cache/apt/archives", GIB, 1), ("/usr/local", GIB, 1)]
    cuda.refuse_shortage(wanted, lambda _path: cuda.Room(1, 3 * GIB, None), 2)
    with pytest.raises(cuda.apt.AptError, match="/var/cache/apt/archives has 2048 MiB free, 2304 MiB needed"):
        cuda.refuse_shortage(wanted, lambda _path: cuda.Room(1, 2 * GIB, None), 2)


def test_room_of_a_directory_still_to_come_is_that_of_the_one_above(cuda, tmp_path):
    assert cuda.look(str(tmp_path / "a/b")).device == tmp_path.stat().st_dev


DISPLAY = """cuda - {status}
  link best version is /usr/local/cuda-13.2
  link currently points to {target}
  link cuda is /usr/local/cuda
/usr/local/cuda-12.9 - priority 129
/usr/local/cuda-13.2 - priority 132
"""
REDHAT = """cuda - status is {status}.
 link currently points to {target}
/usr/local/cuda-12.9 - priority 129
/usr/local/cuda-13.2 - family cuda priority 132
Current `best' version is /usr/local/cuda-13.2.
"""
OLD, NEW = "/usr/local/cuda-12.9", "/usr/local/cuda-13.2"


@pytest.mark.parametrize(
    ("text", "auto", "manual"), [(DISPLAY, "auto mode", "manual mode"), (REDHAT, "auto", "manual")]
)
def test_alternatives_of_debian_and_of_rhel_are_read(default, text, auto, manual):
    assert default.parse(text.format(status=auto, target=NEW)) == ("auto", NEW, {OLD: 129, NEW: 132})
    assert default.parse(text.format(status=manual, target=OLD)) == ("manual", OLD, {OLD: 129, NEW: 132})
    assert default.parse("update-alternatives: error: no alternatives for cuda") == default.NONE


@pytest.fixture
def link(run, tools, tmp_path):
    """``link(prefix, status=…, target=…)`` runs the module on a link of its own; ``link.told()`` is what it did."""
    there, log, display = tmp_path / "cuda", tmp_path / "told", tmp_path / "display"
    tools(**{"update-alternatives": f'[ "$1" = --display ] && exec cat {display}; echo "$@" >>{log}'})

    def call(prefix, *, status="auto mode", target=NEW, text=DISPLAY, check=False):
        display.write_text(text.format(status=status, target=target))
        return run("gpustrap_cuda_default", check=check, prefix=prefix, link=str(there))

    call.path = there
    call.told = lambda: log.read_text().splitlines() if log.exists() else []
    return call


def test_newest_toolkit_is_the_default_already(link):
    link.path.symlink_to("/etc/alternatives/cuda")
    result = link(NEW)
    assert not result["changed"]
    assert result["claims"] == [
        {"kind": "link", "name": str(link.path)},
        {"kind": "link", "name": "/etc/alternatives/cuda"},
    ]
    assert link.told() == []


def test_older_toolkit_becomes_the_default_by_priority_and_the_group_stays_auto(link):
    result = link(OLD)
    assert result["changed"]
    assert link.told() == [f"--install {link.path} cuda {OLD} 133"]
    assert "warnings" not in result


def test_check_mode_leaves_the_alternatives(link):
    assert link(OLD, check=True)["changed"]
    assert link.told() == []


def test_group_that_no_package_made_is_made(link):
    link(NEW, text="update-alternatives: error: no alternatives for cuda")
    assert link.told() == [f"--install {link.path} cuda {NEW} 1"]


def test_link_that_lags_behind_its_group_is_mended(link):
    link(NEW, target=OLD)
    assert link.told() == ["--auto cuda"]


def test_link_that_somebody_removed_comes_back(link):
    link(NEW)
    assert link.told() == ["--auto cuda"]


def test_toolkit_chosen_by_hand_stays(link):
    link.path.symlink_to("/etc/alternatives/cuda")
    result = link(NEW, status="manual mode", target=OLD)
    assert (result["changed"], link.told(), result["claims"]) == (False, [], [])
    assert f"{link.path} is {OLD}, chosen by hand; it stays" in result["left_alone"]
    assert "sudo update-alternatives --auto cuda; then gpustrap apply" in result["left_alone"]
    assert len(result["warnings"]) == 1
    assert not link(OLD, status="manual mode", target=OLD)["left_alone"]


def test_directory_of_a_runfile_is_reported_and_left_alone(link):
    link.path.mkdir()
    result = link(NEW)
    assert (result["changed"], link.told()) == (False, [])
    assert "is no link: a toolkit installed by hand lies there; it stays" in result["left_alone"]


def test_link_of_a_runfile_is_reported_and_left_alone(link):
    link.path.symlink_to("/usr/local/cuda-11.8")
    assert "leads to /usr/local/cuda-11.8, and not by the alternatives" in link(NEW)["left_alone"]
    assert link.told() == []


SHELL = """
unset CUDA_HOME
PATH=/usr/bin:/bin
. {profile}
. {profile}
echo "$PATH $CUDA_HOME ${{LD_LIBRARY_PATH-none}}"
"""


@pytest.mark.parametrize("shell", ["sh -eu", "bash -eu"])
def test_profile_puts_the_toolkit_on_the_path_once_and_sets_no_library_path(shell, tmp_path):
    text = (content_root() / "roles/cuda_toolkit/templates/profile.sh.j2").read_text(encoding="utf-8")
    code = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    assert "LD_LIBRARY_PATH" not in code
    (tmp_path / "cuda/bin").mkdir(parents=True)
    profile = tmp_path / "profile.sh"
    profile.write_text(text.replace("/usr/local/cuda", str(tmp_path / "cuda")))
    done = subprocess.run(
        shell.split(), input=SHELL.format(profile=profile), text=True, capture_output=True, check=True, env={}
    )
    assert done.stdout.split() == [f"{tmp_path}/cuda/bin:/usr/bin:/bin", f"{tmp_path}/cuda", "none"]
