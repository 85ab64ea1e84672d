"""The lock of a node: one holder, named to others, free again however the holder ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from gpustrap.model.site import Site
from gpustrap.site.node_lock import hold_nodes

HOLDER = """
import sys, time
from pathlib import Path
from gpustrap.model.site import Site
from gpustrap.site.node_lock import hold_nodes
with hold_nodes(Site(Path(sys.argv[1])), ["n1"], "r1"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_taker_is_refused_until_the_first_ends_and_other_nodes_are_not(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with hold_nodes(site, ["n1"], "r1") as first:
        with hold_nodes(site, ["n1", "n2"], "r2") as second:
            assert (first, list(second)) == ({}, ["n1"])
            assert re.fullmatch(rf"pid {os.getpid()}, run r1, since \d\d:\d\d UTC", second["n1"])
        with hold_nodes(site, ["n1", "n2"], "r3") as third:  # who was refused has taken nothing away
            assert list(third) == ["n1"]
    with hold_nodes(site, ["n1"], "a-shorter-one") as after:
        assert after == {}
    assert (site.node("n1") / "lock").stat().st_mode & 0o777 == 0o600


def test_a_holder_that_has_not_said_who_it_is_holds_it_all_the_same(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with hold_nodes(site, ["n1"], "r1"):
        (site.node("n1") / "lock").write_text("")
        with hold_nodes(site, ["n1"], "r2") as busy:
            assert busy == {"n1": ""}


def test_a_holder_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "held\n"
        with hold_nodes(site, ["n1"], "r2") as busy:
            assert busy["n1"].startswith(f"pid {holder.pid}, run r1")
        holder.send_signal(signal.SIGKILL)
    with hold_nodes(site, ["n1"], "r3") as after:
        assert after == {}


FEW_FILES = """
import resource, sys
from pathlib import Path
from gpustrap.model.site import Site
from gpustrap.site.node_lock import hold_nodes
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
with hold_nodes(Site(Path(sys.argv[1])), [f"n{i}" for i in range(200)], "r") as busy:
    assert busy == {}
"""


def test_a_rack_has_more_nodes_than_the_shell_allows_open_files(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FEW_FILES, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
