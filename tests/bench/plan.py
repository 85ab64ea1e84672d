"""``./run bench``: how ``gpustrap plan --from-facts`` grows with the number of nodes. Nothing is asserted.

Each size runs in a fresh process. Where the time goes is measured in this one.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from machines import write_machines

from gpustrap.catalog.loader import load_catalog
from gpustrap.commands.facts_files import read_facts_files
from gpustrap.commands.plan import decide
from gpustrap.exitcodes import ExitCode
from gpustrap.model.request import Request

SIZES = (500, 1000, 2500, 5000)
SHARES_OF = 1000
GPUSTRAP = Path(sys.executable).parent / "gpustrap"


@dataclass(frozen=True)
class Took:
    """Seconds by the clock and of the processor, and peak memory in MiB."""

    clock: float
    cpu: float
    memory: float


def run(directory: Path) -> Took:
    """Plan the facts of a directory. A failure ends it all."""
    start = time.monotonic()
    with (directory.parent / "stderr").open("w+", encoding="utf-8") as said:
        argv = [GPUSTRAP, "plan", "--from-facts", directory, "--format", "json"]
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - start
        code = process.returncode = os.waitstatus_to_exitcode(status)
        if code not in (ExitCode.OK, ExitCode.REFUSED):
            said.seek(0)
            sys.exit(f"{' '.join(map(str, argv))} ended with {code}:\n{said.read()[-4000:]}")
    return Took(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def shares(directory: Path) -> str:
    """One line: what reading and resolving take of a node, and how the plans ended."""
    catalog = load_catalog()
    start = time.process_time()
    recorded, _ = read_facts_files([str(directory)], io.BytesIO(), catalog)
    read = time.process_time()
    plans = [decide(name, found.facts, Request(), catalog) for name, found in recorded.items()]
    resolved = time.process_time()
    planned = sum(p.lock is not None for p in plans)
    reading, resolving = (1000 * (b - a) / len(plans) for a, b in ((start, read), (read, resolved)))
    return (
        f"of a node: reading and validating {reading:.2f} ms, resolving {resolving:.2f} ms; "
        f"{planned} planned, {len(plans) - planned} refused"
    )


def main() -> None:
    """Make the machines, measure, print."""
    with tempfile.TemporaryDirectory() as scratch:
        every = Path(scratch) / str(max(SIZES))
        write_machines(every, max(SIZES))
        files = sorted(every.iterdir())
        print(f"plan --from-facts, {files[0].stat().st_size >> 10} KiB a node; load {os.getloadavg()[0]:.1f}")
        took: dict[int, Took] = {}
        for size in SIZES:
            directory = Path(scratch) / str(size)
            directory.mkdir(exist_ok=True)
            for file in files[:size] if size < max(SIZES) else ():
                os.link(file, directory / file.name)
            took[size] = done = run(directory)
            each = f"{done.cpu:6.2f} s of processor, {1000 * done.cpu / size:5.2f} ms a node"
            print(f"{size:6} nodes {done.clock:7.2f} s  {each}  {done.memory:6.0f} MiB", flush=True)
        low, high = min(SIZES), max(SIZES)
        ratio = took[high].cpu / took[low].cpu
        print(f"{high} nodes take {ratio:.1f} times the processor time of {low}; linear growth is {high / low:.0f}")
        print(shares(Path(scratch) / str(SHARES_OF)))


if __name__ == "__main__":
    main()
