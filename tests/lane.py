"""Runs the lanes of ``./run test`` and counts what they did.

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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS_IN = ("docs", "molecule", "roles", "src")
SHELL_SCRIPTS = ("run", ".ci/run", *(str(p) for d in SCRIPTS_IN for p in (ROOT / d).rglob("*.sh")))


@dataclass(frozen=True)
class Step:
    """One program of a lane.

    Attributes:
        name: Shown before each of its lines.
        argv: What to run. With `suite`, the arguments of pytest.
        suite: Whether it is pytest, which counts by itself.
        may_be_empty: Whether no test at all is fine: a shard of the slow lane may have none.
    """

    name: str
    argv: tuple[str, ...]
    suite: bool = False
    may_be_empty: bool = False


@dataclass(frozen=True)
class Tally:
    """What one step counted, how long it took in seconds, and what it has to say of how it tested."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


LINT = (
    Step("ruff check", ("ruff", "check", ".")),
    Step("ruff format", ("ruff", "format", "--check", ".")),
    Step("mypy", ("mypy",)),
    Step("import-linter", ("lint-imports",)),
    Step("yamllint", ("yamllint", "--strict", ".")),
    Step("ansible-lint", ("ansible-lint", "--offline", "--strict")),
    Step("codespell", ("codespell",)),
    Step("shellcheck", ("shellcheck", *SHELL_SCRIPTS)),
)
SUITES = (
    Step("unit", ("tests/unit", "-m", "not slow", "-n", "2"), suite=True),
    Step("contract", ("tests/contract", "-m", "not slow"), suite=True),
    Step("packaging", ("tests/packaging", "-m", "not slow"), suite=True),
    Step("runner", ("tests/runner", "-m", "not slow"), suite=True),
)
MOLECULE = Step("molecule", ("molecule", "test"))  # scenario gpu is in the slow lane
WHOLE = "0/1"
LAB = Step("lab", ("tests/lab", "-m", "not slow", "-vv"), suite=True)


def slow(shard: str) -> Step:
    """The whole slow lane, or a shard of it without the big tests: those that take most of an hour."""
    marked = "slow" if shard == WHOLE else "slow and not big"
    return Step(f"slow {shard}", ("tests", "-m", marked, "-vv", f"--shard={shard}"), suite=True, may_be_empty=True)


def run(step: Step) -> Tally:
    """Run one step. A suite is heard while it runs; anything else only when it failed."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        junit = Path(scratch) / "junit.xml"
        argv = (sys.executable, "-m", "pytest", "-q", f"--junitxml={junit}", *step.argv) if step.suite else step.argv
        code, output = listen(step, argv)
        seconds = time.monotonic() - start
        tally = count(step, code, junit, seconds) if step.suite else Tally(step.name, int(not code), int(code != 0))
    if tally.failed and not step.suite:
        print(output, flush=True)
    mark = "FAIL" if tally.failed else "ok  "
    print(f"{mark} {step.name}: {tally.passed} passed, {tally.failed} failed, {seconds:.0f} s", flush=True)
    return replace(tally, seconds=seconds)


def listen(step: Step, argv: tuple[str, ...]) -> tuple[int, str]:
    """Run a program with the tools of .venv and the one ansible.cfg; give its exit status and what it said."""
    tools = Path(sys.executable).parent
    environ = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    said = []
    with subprocess.Popen(
        argv, cwd=ROOT, env=environ, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if step.suite:
                print(f"{step.name} | {line}", end="", flush=True)
    return process.returncode, "".join(said)


def count(step: Step, code: int, junit: Path, seconds: float) -> Tally:
    """Count from pytest's JUnit file. No file, or no test where there should be one: failed."""
    try:
        suite = ET.parse(junit).getroot().find("testsuite")
    except (OSError, ET.ParseError):
        suite = None
    if suite is None:
        return Tally(step.name, failed=1, seconds=seconds)
    counts = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
    bad = counts["failures"] + counts["errors"]
    if code not in (0, 1) and not (code == 5 and step.may_be_empty):
        bad = max(bad, 1)
    said = tuple(f"{p.get('name', '').capitalize()}: {p.get('value')}" for p in suite.iterfind("properties/property"))
    passed = max(0, counts["tests"] - bad - counts["skipped"])
    return Tally(step.name, passed, bad, counts["skipped"], seconds, said)


def streams(options: argparse.Namespace) -> tuple[list[Step], list[Step]]:
    """What runs side by side; the lab tests, which mostly wait, take as long as all the rest."""
    if options.slow:
        return [], [slow(options.slow)]
    if options.only:
        return (list(LINT), []) if options.only == "lint" else ([], [MOLECULE])
    steps = [*LINT, *SUITES]
    return (steps, []) if options.no_lab else ([*steps, MOLECULE], [LAB])


def containers_missing() -> list[str]:
    """What keeps containers from running here, in words."""
    from gpustrap.lab.preflight import missing

    return [f"{p.message}. {p.remedy}" for p in missing()]


def main() -> int:
    """Run, tell, and end with 1 when anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-lab", action="store_true", help="leave out what needs containers, and say so")
    parser.add_argument("--only", choices=("lint", "molecule"))
    parser.add_argument(
        "--slow", metavar="K/N", nargs="?", const=WHOLE, help="only the slow lane, or shard K of N of it"
    )
    parser.add_argument("--slow-shard", metavar="K/N", help="after the default lane, this shard of the slow lane")
    parser.add_argument("--counts", type=Path, help="write the last line to this file too")
    options = parser.parse_args()
    wants_lab = not options.no_lab and options.only != "lint"
    if wants_lab and (lacking := containers_missing()):
        print("Containers cannot run here, so the lab cannot be tested:", *lacking, sep="\n  ")
        print("./run test --no-lab runs the rest.")
        return finish([Tally("lab preflight", failed=1)], options)
    with ThreadPoolExecutor() as pool:
        done = [t for tallies in pool.map(lambda steps: [run(s) for s in steps], streams(options)) for t in tallies]
    if options.slow_shard:
        done.append(run(slow(options.slow_shard)))
    return finish(done, options)


def finish(done: list[Tally], options: argparse.Namespace) -> int:
    """Print one line per step, then the sum."""
    print()
    for tally in done:
        counts = f"{tally.passed:5} passed {tally.failed:3} failed {tally.skipped:3} skipped"
        print(f"{tally.name:28}{counts}  {tally.seconds:6.1f} s")
    for note in dict.fromkeys(note for tally in done for note in tally.notes):
        print(note)
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
