"""report: what a run did, and a support archive about a node."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import ValidationError

from gpustrap import __version__
from gpustrap.commands.ledgers import ask_verb
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.node import Node, Secrets
from gpustrap.model.progress import Progress, silent
from gpustrap.model.run import RunSummary
from gpustrap.model.site import Site
from gpustrap.report import run_report
from gpustrap.report.bundle import Bundle
from gpustrap.site.access import load_access
from gpustrap.site.facts_cache import load_facts
from gpustrap.site.inventory import require_site
from gpustrap.site.lockfile import read_lock

SUMMARY = "summary.json"
RUNS_IN_BUNDLE = 3
LIBRARIES = ("ansible-core", "ansible-runner", "paramiko", "pydantic", "jinja2")


def find_run(site: Site, run: str | None) -> tuple[Path, RunSummary]:
    """A run by its id or an unambiguous beginning of it; the last one when there is no id.

    Raises:
        GpustrapError: no-site, run-unknown, run-ambiguous, run-unreadable, no-runs.
    """
    known = list_runs(site)
    if not known:
        require_site(site)
        raise GpustrapError(_refuse("no-runs", "this site has had no run yet", remedy="gpustrap apply"))
    found = known[-1:] if run is None else [d for d in known if d.name.startswith(run)]
    if len(found) != 1:
        code, message = (
            ("run-ambiguous", f"{run} may be any of these runs") if found else ("run-unknown", f"no run {run}")
        )
        names = [d.name for d in found or known[-10:]]
        raise GpustrapError(_refuse(code, message, "\n".join(names), f"gpustrap report {names[-1]}"))
    try:
        return found[0], RunSummary.model_validate_json((found[0] / SUMMARY).read_bytes())
    except (OSError, ValidationError) as error:
        message = f"the summary of run {found[0].name} cannot be read"
        raise GpustrapError(_refuse("run-unreadable", message, str(error), "gpustrap apply")) from error


def list_runs(site: Site) -> list[Path]:
    """The directories of all runs that ended, oldest first: their names begin with the time."""
    return sorted(path.parent for path in site.runs.glob(f"*/{SUMMARY}"))


def report_file(site: Site, directory: Path, summary: RunSummary, name: str) -> Path:
    """The path of a run's report; written now when the run was stopped before it could be."""
    path = directory / name
    if not path.exists():
        run_report.write(directory, summary, read_lock(site))
    return path


def make_bundle(site: Site, node: Node, *, secrets: Secrets, progress: Progress = silent) -> Bundle:
    """Collect the support archive of a node. Asks the node for its ledger; goes on without when it does not answer.

    Args:
        site: The site.
        node: The node.
        secrets: Passwords of this run; they are taken out of everything as well.
        progress: Told how it goes.
    """
    bundle = Bundle(node.name, (secrets.ssh_password, secrets.become_password))
    bundle.add_data("versions.json", _versions())
    facts = load_facts(site, node.name)
    bundle.add_data("facts.json", facts.model_dump(mode="json") if facts else {"missing": "never inspected"})
    lock = read_lock(site)
    entry = lock.nodes.get(node.name) if lock else None
    bundle.add_data("lock.json", entry.model_dump(mode="json") if entry else {"missing": "not in the lock"})
    access = load_access(site, node.name)
    bundle.add_data("access.json", {"escalation": access.escalation, "python": access.python} if access else {})
    answer = ask_verb(site, [node], "ledger-read", secrets=secrets, progress=progress)[node.name]
    said = {"missing": str(answer)} if isinstance(answer, GpustrapError) else answer
    bundle.add_data("ledger.json", said)
    for directory in _runs_with(site, node.name):
        bundle.add_run(*find_run(site, directory.name))
    bundle.add_text("README.txt", _readme(bundle))
    return bundle


def _runs_with(site: Site, node: str) -> Sequence[Path]:
    """The last runs that the node had part in."""
    found: list[Path] = []
    for directory in reversed(list_runs(site)):
        try:
            _, summary = find_run(site, directory.name)
        except GpustrapError:
            continue
        if any(n.node == node for n in summary.nodes):
            found.append(directory)
        if len(found) == RUNS_IN_BUNDLE:
            break
    return found


def _versions() -> dict[str, str]:
    versions = {"gpustrap": __version__, "python": sys.version.split()[0], "system": platform.platform()}
    for library in LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            versions[library] = "not installed"
    return versions


def _readme(bundle: Bundle) -> str:
    names = "\n".join(f"  {name}" for name in sorted(bundle.files))
    return (
        f"Support archive of gpustrap {__version__} about node {bundle.node}.\n\n{names}\n\n"
        "Passwords, tokens, private keys, credentials in URLs and machine ids were taken out.\n"
        "Host names, addresses and package lists are in it: look through it before you pass it on.\n"
    )


def _refuse(code: str, message: str, evidence: str = "", remedy: str = "") -> Problem:
    return Problem(code, "site", message, ExitCode.USAGE, evidence, remedy)
