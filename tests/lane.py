"""Runs the lanes of ``./run test`` one after another and counts what they did.

Each lint tool counts as one test, each pytest test as one, the molecule scenario as one. The last line is
``N passed, N failed, N skipped``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHELL_SCRIPTS = ("run", ".ci/run", *(str(p) for d in ("docs", "molecule", "src") for p in (ROOT / d).rglob("*.sh")))
LINT: tuple[tuple[str, ...], ...] = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports",),
    ("yamllint", "--strict", "."),
    ("ansible-lint", "--offline", "--strict"),
    ("codespell",),
    ("shellcheck", *SHELL_SCRIPTS),
)
SUITES = ("unit", "contract", "packaging", "runner")


@dataclass(frozen=True)
class Tally:
    """What one step counted, and how long it took in seconds."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0


def environment() -> dict[str, str]:
    """The tools of .venv first, and the one ansible.cfg."""
    tools = Path(sys.executable).parent
    return os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}


def tool(name: str, argv: tuple[str, ...]) -> Tally:
    """Run one program; its output is shown only when it fails."""
    print(f"== {name}", flush=True)
    start = time.monotonic()
    done = subprocess.run(
        argv, cwd=ROOT, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        print(done.stdout, flush=True)
    ok = done.returncode == 0
    return Tally(name, passed=int(ok), failed=int(not ok), seconds=time.monotonic() - start)


def pytest(name: str, *arguments: str) -> Tally:
    """Run pytest, its output live; count from its JUnit file. No test collected, or no file: failed."""
    print(f"== {name}", flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        junit = Path(scratch) / "junit.xml"
        argv = [sys.executable, "-m", "pytest", "-q", f"--junitxml={junit}", *arguments]
        code = subprocess.run(argv, cwd=ROOT, env=environment()).returncode
        seconds = time.monotonic() - start
        try:
            suite = ET.parse(junit).getroot().find("testsuite")
        except (OSError, ET.ParseError):
            suite = None
    if suite is None:
        return Tally(name, failed=1, seconds=seconds)
    count = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
    bad = count["failures"] + count["errors"]
    if code not in (0, 1) and not (code == 5 and "slow" in name):  # a shard of the slow lane may be empty
        bad = max(bad, 1)
    return Tally(name, max(0, count["tests"] - bad - count["skipped"]), bad, count["skipped"], seconds)


def steps(options: argparse.Namespace) -> Iterator[Tally]:
    """The lanes asked for, in order: what fails fastest comes first."""
    if options.slow:
        yield pytest(f"slow {options.slow}", "tests", "-m", "slow", f"--shard={options.slow}")
        return
    if options.only in (None, "lint"):
        for argv in LINT:
            yield tool(" ".join(argv[:2]), argv)
    if options.only is None:
        for suite in SUITES:
            yield pytest(suite, f"tests/{suite}", "-m", "not slow", *(("-n", "2") if suite == "unit" else ()))
    if options.only in (None, "molecule") and not options.no_lab:
        yield tool("molecule", ("molecule", "test", "--all"))
    if options.only is None and not options.no_lab:
        yield pytest("lab", "tests/lab", "-m", "not slow")
    if options.slow_shard:
        yield pytest(f"slow {options.slow_shard}", "tests", "-m", "slow", f"--shard={options.slow_shard}")


def containers_missing() -> list[str]:
    """What keeps containers from running here, in words."""
    from gpustrap.lab.preflight import missing

    return [f"{p.message}. {p.remedy}" for p in missing()]


def main() -> int:
    """Run, tell, and end with 1 when anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-lab", action="store_true", help="leave out what needs containers, and say so")
    parser.add_argument("--only", choices=("lint", "molecule"))
    parser.add_argument("--slow", metavar="K/N", help="only shard K of N of the slow lane")
    parser.add_argument("--slow-shard", metavar="K/N", help="after the default lane, this shard of the slow lane")
    parser.add_argument("--counts", type=Path, help="write the last line to this file too")
    options = parser.parse_args()
    wants_lab = not options.no_lab and options.only != "lint"
    if wants_lab and (lacking := containers_missing()):
        print("Containers cannot run here, so the lab cannot be tested:", *lacking, sep="\n  ")
        print("./run test --no-lab runs the rest.")
        return finish([Tally("lab preflight", failed=1)], options)
    return finish(list(steps(options)), options)


def finish(done: list[Tally], options: argparse.Namespace) -> int:
    """Print one line per step, then the sum."""
    print()
    for tally in done:
        counts = f"{tally.passed:5} passed {tally.failed:3} failed {tally.skipped:3} skipped"
        print(f"{tally.name:28}{counts}  {tally.seconds:6.1f} s")
    if options.no_lab:
        print("Left out (--no-lab): molecule, lab")
    total = [sum(getattr(t, key) for t in done) for key in ("passed", "failed", "skipped")]
    line = "{} passed, {} failed, {} skipped".format(*total)
    if options.counts:
        options.counts.write_text(line + "\n", encoding="utf-8")
    print(line)
    return int(total[1] > 0 or total[0] == 0)


if __name__ == "__main__":
    sys.exit(main())
