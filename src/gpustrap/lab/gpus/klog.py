"""Writes lines to the log of a node's kernel, one record each: ``lab-gpu-log <lines``. Standard library only."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable
from pathlib import Path

KMSG = Path("/dev/kmsg")
COUNTER = Path("/run/lab-gpu/kmsg")  # records so far: journald skips a number that it has seen
WARNING = 4


def write(lines: Iterable[str], kmsg: Path = KMSG, counter: Path = COUNTER) -> None:
    """Write records as the kernel formats them.

    The pipe is in packet mode (pipe(2), O_DIRECT), so that every read gives one record, as the real device does.
    """
    with counter.open("a+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read() or 0)
        pipe = os.open(kmsg, os.O_WRONLY | os.O_NONBLOCK)
        try:
            fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_DIRECT)
            for line in lines:
                microseconds = time.monotonic_ns() // 1000
                os.write(pipe, f"{WARNING},{number},{microseconds},-;{line.strip()}\n".encode())
                number += 1
        finally:
            os.close(pipe)
        file.truncate(0)
        file.write(str(number))
