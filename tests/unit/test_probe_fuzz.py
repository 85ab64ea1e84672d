"""Parsers of the node program take any text: broken files are data, not crashes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpustrap.ansible_plugins.module_utils.gpustrap_node import (
    acs,
    apt,
    apt_sources,
    dpkg,
    installs,
    network,
    nvidia,
    observe,
    pci,
    rpm,
    storage,
    system,
)

SEED = (
    "deb [arch=amd64] http://a.example/debian trixie main\nTypes: deb\nURIs: x\nSuites: y\n Signed-By: z\n\n"
    "Package: a\nStatus: install ok installed\nVersion: 1\n\n24 1 8:2 / / rw - ext4 /dev/sda2 rw\\040\n"
    'a:\n  Candidate: 1\n *** 1 500\n        500 http://a b/c\nAPT::X:: "y";\n0x0 0x1 0x200\n16.0 GT/s\nID=\'a\n'
    "1: POSIX  ADVISORY  WRITE 1 08:02:1 0 EOF\nUnitFileState=enabled\neth0\t000200C0\t0\t1\t0\t0\t0\t00FFFFFF\n"
    "     1 -1 (phased 20%)\n       1001 https://a/b  Packages\n        100 /var/lib/dpkg/status\n0x0 0x0 0x20000200\n"
    "00000000:0A:00.0\nGPU is lost\n../devices/pci0000:00/0000:00:01.0/0000:01:00.0\na 3:1-1.el9 noarch\n"
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
)
PARSERS = [
    apt.parse_policy,
    apt.parse_config,
    lambda text: apt_sources.check(apt_sources.parse_one_line("f", text)[0]),
    lambda text: apt_sources.check(apt_sources.parse_deb822("f", text)[0]),
    apt_sources.normal,
    apt_sources.mask,
    dpkg.parse_status,
    dpkg.parse_proc_locks,
    installs.conda_origin,
    network.parse_proc_route,
    network.parse_fib_trie,
    nvidia.parse_list,
    nvidia.parse_module_version,
    lambda text: observe.parse_units(text, ["a.service"]),
    pci.parse_address,
    pci.parse_bars,
    pci.parse_bridges,
    pci.parse_unassigned,
    pci.parse_width,
    pci.parse_speed,
    lambda text: rpm.parse_query(text, ["a", "a-1-1.el9"]),
    storage.parse_mountinfo,
    system.parse_os_release,
    system.version_key,
]


def mutated() -> st.SearchStrategy[str]:
    """Lines of real files, shuffled, with words lost and noise between."""
    words = st.sampled_from([w for w in SEED.replace("\n", " \n ").split(" ") if w]) | st.text(max_size=6)
    return st.lists(words, max_size=60).map(" ".join) | st.text(max_size=200)


@pytest.mark.parametrize("parse", PARSERS, ids=lambda p: f"{p.__module__.rpartition('.')[2]}.{p.__name__}")
@settings(max_examples=60, deadline=None)
@given(text=mutated())
def test_any_text_is_taken(parse, text: str) -> None:
    parse(text)


HEADERS = st.tuples(st.sampled_from([0x0001, 0x000D]), st.sampled_from([0, 0x40, 0x100, 0x104, 0x108, 0x10C, 0xFFF]))
SPACE = st.lists(HEADERS.map(lambda h: (h[0] | h[1] << 20).to_bytes(4, "little")) | st.binary(max_size=4), max_size=5)


@settings(deadline=None)
@given(SPACE.map(b"".join))
def test_any_configuration_space_is_taken(extended: bytes) -> None:
    space = bytes(0x100) + extended
    assert acs.parse_redirect(lambda offset, size: space[offset : offset + size]) in {True, False, None}
