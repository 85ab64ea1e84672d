"""Role cuda_toolkit on a real node, with the stand-in of NVIDIA's repository: toolkits side by side, no driver ever."""

from __future__ import annotations

from typing import Any

import pytest

FIRST, SECOND, THIRD = (
    {"name": f"cuda-toolkit-13-{minor}", "version": version}
    for minor, version in ((2, "13.2.2-1"), (1, "13.1.2-1"), (3, "13.3.1-1"))
)
LIBRARIES = [
    *({"name": f"libcudnn9-{part}cuda-13", "version": "9.27.0.42-1"} for part in ("", "dev-", "headers-")),
    *({"name": name, "version": "2.32.3-1+cuda13.4"} for name in ("libnccl-dev", "libnccl2")),
]
# As NVIDIA's keyring package writes it, or a person who followed an old guide.
FOREIGN = "/etc/apt/sources.list.d/cuda-debian13-x86_64.list"
# A package that drags a driver along, which no toolkit of NVIDIA's does and some day one might.
TRICKY = """set -e
mkdir -p /srv/tricky/p/DEBIAN && cd /srv/tricky
printf 'Package: libtricky\\nVersion: 1\\nArchitecture: amd64\\nMaintainer: x <x@example.org>\\nDescription: x\\n' \
  >p/DEBIAN/control
echo 'Depends: nvidia-driver-cuda' >>p/DEBIAN/control
dpkg-deb --build p tricky.deb >/dev/null
{ dpkg-deb --field tricky.deb; echo 'Filename: ./tricky.deb'; echo "Size: $(stat -c %s tricky.deb)"
  echo "SHA256: $(sha256sum tricky.deb | cut -d' ' -f1)"; } >Packages
echo 'deb [trusted=yes] file:/srv/tricky ./' >/etc/apt/sources.list.d/tricky.list
apt-get -q update"""


@pytest.fixture(scope="module")
def target(lab, make_target) -> Any:
    """Debian 13 with an entry of the same repository that somebody else wrote, and no toolkit."""
    standins = lab.standins()
    made = make_target("roles-cuda", "debian13")
    uri = f"{standins['gpustrap_nvidia_repository']}/debian13/x86_64"
    made.variables |= {
        "gpustrap_roles": ["cuda_toolkit"],
        "cuda_toolkit_version": "13.2",
        "cuda_toolkit_packages": [FIRST, SECOND, *LIBRARIES],
        "cuda_toolkit_prefix": "/usr/local/cuda-13.2",
        "cuda_toolkit_driver_pin": True,
        "cuda_toolkit_repository": {"uri": uri, "suite": "/", "components": [], "architectures": ["amd64"]},
        "cuda_toolkit_key": {
            "url": f"{uri}/8793F200.pub",
            "fingerprints": standins["gpustrap_nvidia_key_fingerprints"]["debian13"],
            "sha256": "",
        },
    }
    made.sh("apt-get -q update && apt-get -q -y install --no-install-recommends python3-apt")
    made.sh(f"echo 'deb [trusted=yes] {uri} /' >{FOREIGN}")
    return made


def default(there: Any) -> str:
    return there.sh("readlink -f /usr/local/cuda")


def test_toolkits_side_by_side(target):
    check = target.play("--check", "--diff")
    assert check.rc == 0, check.text
    assert "would follow: install cuda-toolkit-13-2=13.2.2-1" in check.text
    target.sh("ls -d /usr/local/cuda* /etc/profile.d/gpustrap-cuda.sh /etc/apt/keyrings/gpustrap-nvidia.gpg", rc=2)

    first = target.play()
    assert first.rc == 0, first.text
    assert default(target) == "/usr/local/cuda-13.2"
    for version in ("13.1", "13.2"):
        assert f"release {version}" in target.sh(f"/usr/local/cuda-{version}/bin/nvcc --version")
    shell = target.sh("bash -lc 'nvcc --version; echo $CUDA_HOME ${LD_LIBRARY_PATH-none}'", user=target.node.user)
    assert "release 13.2" in shell
    assert shell.endswith("/usr/local/cuda none")
    assert not drivers(target)

    again = target.play()
    assert (again.rc, again.counts["changed"]) == (0, 0), again.text


def drivers(there: Any) -> list[str]:
    """Packages of a driver that are there."""
    names = there.sh("dpkg-query -W -f '${Package}\\n'").split()
    return [n for n in names if n.startswith(("nvidia-", "libnvidia-", "libcuda1", "cuda-drivers"))]


@pytest.fixture(scope="module")
def installed(target) -> Any:
    """The same node, with both toolkits."""
    first = target.play()
    assert first.rc == 0, first.text
    return target


@pytest.mark.slow
def test_signed_by_conflict_another_entry_of_the_repository_is_switched_off(installed):
    assert installed.sh(f"cat {FOREIGN}").startswith("# replaced by gpustrap: deb [trusted=yes]")
    assert installed.sh("grep -l debian13/x86_64 /etc/apt/sources.list.d/*.sources").endswith("gpustrap-nvidia.sources")
    said = installed.sh("apt-get update 2>&1")
    assert "Conflicting" not in said
    assert "configured multiple times" not in said


@pytest.mark.slow
def test_driver_of_this_repository_is_never_a_candidate(installed):
    policy = installed.sh("apt-cache policy nvidia-driver-cuda nvidia-open cuda-drivers libcuda1 cuda-13-2")
    assert policy.count("Candidate: (none)") == 5, policy
    assert "Candidate: 13.2.2-1" in installed.sh("apt-cache policy cuda-toolkit-13-2")


@pytest.mark.slow
def test_transaction_that_would_bring_a_driver_is_refused(installed):
    installed.sh(TRICKY)
    before = installed.sh("dpkg-query -W")
    try:
        packages = [FIRST, {"name": "libtricky", "version": "1"}]
        refused = installed.play(cuda_toolkit_packages=packages, cuda_toolkit_driver_pin=False)
        assert refused.rc == 2
        assert "would install" in refused.text
        assert "nvidia-driver-cuda" in refused.text
        assert "a toolkit leaves the driver alone; nothing was changed" in refused.text
        assert installed.sh("dpkg-query -W") == before
    finally:
        installed.sh("rm /etc/apt/sources.list.d/tricky.list")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("size=20m", "/var/cache/apt/archives has 20 MiB free, 256 MiB needed"),
        ("size=1g,nr_inodes=3", "/var/cache/apt/archives has 2 inodes free, about"),
    ],
)
def test_disk_full_stops_before_anything_is_installed(installed, options, said):
    installed.sh(f"mount -t tmpfs -o {options} tmpfs /var/cache/apt/archives")
    try:
        stopped = installed.play(cuda_toolkit_packages=[FIRST, SECOND, THIRD])
        assert stopped.rc == 2
        assert said in stopped.text
        assert "sudo du -xh --max-depth 2 /" in stopped.text
        installed.sh("dpkg-query -W cuda-toolkit-13-3", rc=1)
    finally:
        installed.sh("umount /var/cache/apt/archives")


@pytest.mark.slow
def test_metapackages_that_pull_a_driver_are_refused_by_name(installed):
    for name in ("cuda", "cuda-13-2", "cuda-drivers", "libcuda1"):
        refused = installed.play(cuda_toolkit_packages=[FIRST, {"name": name, "version": "13.2.2-1"}])
        assert refused.rc == 2, name
        assert "__cuda_toolkit_names" in refused.text


@pytest.mark.slow
def test_first_toolkit_changes_and_the_old_one_stays(installed):
    older = {"cuda_toolkit_version": "13.1", "cuda_toolkit_prefix": "/usr/local/cuda-13.1"}
    changed = installed.play(**older, cuda_toolkit_packages=[SECOND, *LIBRARIES])
    assert changed.rc == 0, changed.text
    assert default(installed) == "/usr/local/cuda-13.1"
    assert "auto mode" in installed.sh("update-alternatives --display cuda")
    assert installed.sh("dpkg-query -W -f '${Version}' cuda-toolkit-13-2") == "13.2.2-1"
    again = installed.play(**older, cuda_toolkit_packages=[SECOND, *LIBRARIES])
    assert (again.rc, again.counts["changed"]) == (0, 0), again.text
    assert installed.play().rc == 0
    assert default(installed) == "/usr/local/cuda-13.2"


@pytest.mark.slow
def test_toolkit_chosen_by_hand_stays_and_the_run_says_so(installed):
    installed.sh("update-alternatives --set cuda /usr/local/cuda-13.1")
    kept = installed.play()
    assert (kept.rc, kept.counts["changed"]) == (0, 0), kept.text
    assert "/usr/local/cuda is /usr/local/cuda-13.1, chosen by hand; it stays" in " ".join(kept.text.split())
    assert default(installed) == "/usr/local/cuda-13.1"
    installed.sh("update-alternatives --auto cuda")
    assert default(installed) == "/usr/local/cuda-13.2"


@pytest.mark.slow
def test_directory_of_a_runfile_stays_and_the_run_says_so(installed):
    installed.sh("rm /usr/local/cuda && mkdir -p /usr/local/cuda/bin && touch /usr/local/cuda/bin/mine")
    try:
        kept = installed.play()
        assert (kept.rc, kept.counts["changed"]) == (0, 0), kept.text
        assert "/usr/local/cuda is no link" in " ".join(kept.text.split())
        assert installed.sh("ls /usr/local/cuda/bin") == "mine"
    finally:
        installed.sh("rm -r /usr/local/cuda && update-alternatives --auto cuda")
    assert installed.play().counts["changed"] == 0
