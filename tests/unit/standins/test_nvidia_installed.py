"""dpkg installs the packages into a scratch root: files, configuration files, scripts."""

from __future__ import annotations

import subprocess

import pytest

from gpustrap.lab.standins.nvidia_data import packages

ALTERNATIVES = ("/usr/local/cuda-12.9", "/usr/local/cuda-13.0")


@pytest.fixture
def dpkg(tmp_path, cuda):
    """Call dpkg on a scratch root; a word with ``=`` is a package of ubuntu2404's at a version."""
    root = tmp_path / "root"
    for part in ("info", "updates", "triggers", "alternatives"):
        (root / "var/lib/dpkg" / part).mkdir(parents=True)
    for part in ("etc/alternatives", "var/log"):
        (root / part).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()

    def call(*words):
        repository = cuda("ubuntu2404")
        names = [
            str(next(repository.glob(f"{name}_{version}_*.deb"))) if version else name
            for name, _, version in (word.partition("=") for word in words)
        ]
        force = ("--force-not-root", "--force-script-chrootless", "--force-depends", "--force-bad-path")
        done = subprocess.run(
            ("dpkg", f"--root={root}", "--log=/dev/null", *force, *names),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return root

    return call


def test_the_pin_of_the_next_package_replaces_that_of_the_last(dpkg):
    root = dpkg("-i", "nvidia-driver-pinning-595=595-1ubuntu1")
    pin = root / "etc/apt/preferences.d/nvidia-driver-pin"
    assert "Pin: version 595.*\nPin-Priority: 1000\n" in pin.read_text()
    dpkg("--remove", "nvidia-driver-pinning-595")
    assert pin.exists()  # a configuration file: it binds until the package is purged
    dpkg("-i", "nvidia-driver-pinning-610.43.02=610.43.02-1ubuntu1")
    assert "Pin: version 610.43.02-*\n" in pin.read_text()
    dpkg("--purge", "nvidia-driver-pinning-595", "nvidia-driver-pinning-610.43.02")
    assert not pin.exists()


def test_toolkits_are_alternatives_of_each_other(dpkg):
    names = [f"cuda-toolkit-{minor}{rest}" for minor in ("12-9", "13-0") for rest in ("-config-common", "")]
    versions = ("12.9.86-1", "12.9.2-1", "13.0.96-1", "13.0.3-1")
    root = dpkg("-i", *(f"{name}={version}" for name, version in zip(names, versions, strict=True)))
    links = {name: (root / "etc/alternatives" / name).readlink().as_posix() for name in ("cuda", "cuda-12", "cuda-13")}
    assert links == {"cuda": ALTERNATIVES[1], "cuda-12": ALTERNATIVES[0], "cuda-13": ALTERNATIVES[1]}
    nvcc = root / "usr/local/cuda-13.0/bin/nvcc"
    said = subprocess.run(("sh", str(nvcc), "--version"), capture_output=True, text=True).stdout
    assert "release 13.0, V13.0.96\n" in said
    assert "simulated" in said
    assert subprocess.run(("sh", str(nvcc), "a.cu"), capture_output=True).returncode == 1
    dpkg("--remove", "cuda-toolkit-13-0", "cuda-toolkit-13-0-config-common")
    assert (root / "etc/alternatives/cuda").readlink().as_posix() == ALTERNATIVES[0]


def test_every_package_says_that_it_is_simulated(cuda):
    shown = subprocess.run(
        ("dpkg-deb", "-c", str(cuda("ubuntu2404") / "nvidia-dkms-open_615.71.09-2ubuntu1_amd64.deb")),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "./usr/share/doc/nvidia-dkms-open/README.simulated" in shown
    assert all("simulated" in package.fields["Description"] for package in packages("ubuntu2404"))
