"""Many nodes at a time: order, failures, our own faults, and Ctrl-C."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.node import Endpoint, Node
from gpustrap.model.progress import SEE_BELOW
from gpustrap.model.request import Request
from gpustrap.ssh.fanout import for_each


def nodes(count):
    return [Node(Endpoint(f"n{i}", f"n{i}"), (), Request()) for i in range(count)]


def test_one_failure_stops_nobody_and_is_shown():
    def work(node):
        if node.name == "n1":
            raise GpustrapError(Problem("unreachable", "node n1", "gone", ExitCode.UNREACHABLE))
        return node.name.upper()

    steps = []
    results = for_each(nodes(4), work, forks=2, progress=steps.append)
    assert list(results) == ["n0", "n1", "n2", "n3"]
    assert isinstance(results.pop("n1"), GpustrapError)
    assert list(results.values()) == ["N0", "N2", "N3"]
    assert [(s.node, s.text, s.done, s.ok) for s in steps] == [("n1", SEE_BELOW, True, False)]


def test_at_most_forks_at_a_time():
    running, most, lock = set(), [0], threading.Lock()

    def work(node):
        with lock:
            running.add(node.name)
            most[0] = max(most[0], len(running))
        time.sleep(0.02)
        with lock:
            running.remove(node.name)

    for_each(nodes(12), work, forks=3)
    assert most[0] == 3


def test_a_fault_of_ours_is_raised_after_all_are_done():
    seen = []

    def work(node):
        seen.append(node.name)
        if node.name == "n0":
            raise KeyError("ours")

    with pytest.raises(KeyError):
        for_each(nodes(5), work, forks=1)
    assert len(seen) == 5


def test_no_nodes():
    assert for_each([], lambda _node: 1) == {}


INTERRUPTED = """
import signal, threading, time
from gpustrap.model.node import Endpoint, Node
from gpustrap.model.request import Request
from gpustrap.ssh.fanout import for_each
nodes = [Node(Endpoint(f"n{i}", "x"), (), Request()) for i in range(50)]
threading.Timer(0.3, lambda: signal.raise_signal(signal.SIGINT)).start()
try:
    for_each(nodes, lambda node: time.sleep(60), forks=4)
except KeyboardInterrupt:
    raise SystemExit(130)
"""


def test_ctrl_c_ends_promptly():
    start = time.monotonic()
    assert subprocess.run([sys.executable, "-c", INTERRUPTED], timeout=30, check=False).returncode == 130
    assert time.monotonic() - start < 5
