"""What all tests share: the shards of the slow lane."""

from __future__ import annotations

import signal
import zlib
from pathlib import Path

import pytest

from gpustrap.report.next_step import remember_site


@pytest.fixture(autouse=True)
def _no_site_remembered() -> None:
    """A test that runs the program leaves its --site to no other."""
    remember_site(Path())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", metavar="K/N", help="of the tests collected, run only shard K (from 0) of N")


def pytest_configure() -> None:
    """A shell's background job ignores Ctrl-C, and so would every program the tests start and interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the files of a shard, chosen by a hash of their names: a file's tests share what is slow to set up."""
    if not (shard := config.getoption("--shard")):
        return
    index, count = (int(n) for n in shard.split("/"))
    mine = [i for i in items if zlib.crc32(i.path.name.encode()) % count == index]
    config.hook.pytest_deselected(items=[i for i in items if i not in mine])
    items[:] = mine
