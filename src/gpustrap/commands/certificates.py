"""verify, and what it leaves: a certificate of each node, and the summary of all."""

from __future__ import annotations

import secrets as random
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from gpustrap import __version__
from gpustrap.catalog.loader import load_catalog
from gpustrap.commands.verify import Verified, exit_code, verify
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode, worst
from gpustrap.model.certificate import Certificate, Change, Fleet
from gpustrap.model.check import Level
from gpustrap.model.node import Node, Secrets
from gpustrap.model.progress import Progress, silent
from gpustrap.model.site import Site
from gpustrap.report import certificate_json, html, junit, markdown, prometheus
from gpustrap.report.certificate_view import view_fleet
from gpustrap.site.files import write_atomically
from gpustrap.site.lockfile import read_lock
from gpustrap.verify.against import changes
from gpustrap.verify.certify import Verification, certify

NEW = "no certificate"
OURS, OTHERS = 0o600, 0o644  # a site is its user's; what goes elsewhere is for a web server, CI or Prometheus


def certify_nodes(
    site: Site,
    nodes: Sequence[Node],
    *,
    secrets: Secrets,
    level: Level = "quick",
    forks: int = 20,
    progress: Progress = silent,
) -> Fleet:
    """Verify nodes; everything that was found out is in the summary.

    Args:
        site: The site.
        nodes: Which nodes.
        secrets: Passwords of this run.
        level: How thorough.
        forks: Nodes worked on at a time.
        progress: Told how it goes.
    """
    start, now = time.monotonic(), datetime.now(UTC)
    catalog, lock = load_catalog(), read_lock(site)
    run = f"{now:%Y%m%dT%H%M%SZ}-{random.token_hex(3)}"
    results = verify(site, nodes, secrets=secrets, level=level, facts=True, run_id=run, forks=forks, progress=progress)
    of = Verification(run, now.isoformat(timespec="seconds"), level, __version__, catalog.digest)
    certificates = tuple(
        certify(of, result.checks, result.facts, lock.nodes.get(name) if lock else None, catalog)
        for name, result in results.items()
        if isinstance(result, Verified)
    )
    errors = [result for result in results.values() if isinstance(result, GpustrapError)]
    return Fleet(
        level=of.level,
        run=run,
        started=of.started,
        seconds=round(time.monotonic() - start, 3),
        tool=of.tool,
        catalog=of.catalog,
        nodes=certificates,
        problems=tuple(problem for error in errors for problem in error.problems),
        exit_code=exit_code({n: r.checks if isinstance(r, Verified) else r for n, r in results.items()}),
    )


def compare(fleet: Fleet, against: str, before: Mapping[str, Certificate]) -> Fleet:
    """The same with what differs from earlier certificates; what got worse is a warning at least.

    Args:
        fleet: The summary of now.
        against: What the earlier ones are called.
        before: The earlier ones, by node.
    """
    found = tuple(change for node in fleet.nodes for change in _changes(before.get(node.node), node))
    code = worst([fleet.exit_code, ExitCode.WARNINGS if any(c.worse for c in found) else ExitCode.OK])
    return fleet.model_copy(update={"against": against, "changes": found, "exit_code": code})


def _changes(before: Certificate | None, after: Certificate) -> tuple[Change, ...]:
    if before:
        return changes(before, after)
    now = after.verdict.value
    return (Change(node=after.node, what="check", subject="the node", before=NEW, after=now, worse=False),)


def write(fleet: Fleet, directory: Path, *, mode: int) -> None:
    """Write the summary in every format, and each node's certificate under ``nodes/``.

    Args:
        fleet: The summary.
        directory: Made where it is missing; what it has of other nodes stays.
        mode: Of the files.

    Raises:
        GpustrapError: It cannot be written to.
    """
    try:
        for place in (directory, directory / "nodes"):
            place.mkdir(parents=True, exist_ok=True, mode=0o700 if mode == OURS else 0o755)
        for name, text in _files(fleet):
            write_atomically(directory / name, text, mode=mode)
    except OSError as error:
        raise GpustrapError(
            Problem(
                code="certificates-not-written",
                subject=str(directory),
                message="the certificates cannot be written there",
                exit_code=ExitCode.USAGE,
                evidence=str(error),
                remedy=f"df -h {shlex.quote(str(directory.parent))}, or name another directory with --out",
            )
        ) from error


def _files(fleet: Fleet) -> Iterator[tuple[str, str]]:
    for node in fleet.nodes:
        alone = view_fleet(of_one(fleet, node))
        yield f"nodes/{node.node}.json", certificate_json.text(node)
        yield f"nodes/{node.node}.md", markdown.render_certificates(alone)
        yield f"nodes/{node.node}.html", html.render_certificates(alone)
    view = view_fleet(fleet)
    yield "fleet.json", certificate_json.text(fleet)
    yield "fleet.md", markdown.render_certificates(view)
    yield "fleet.html", html.render_certificates(view)
    yield "junit.xml", junit.render(fleet)
    yield "gpustrap.prom", prometheus.render(fleet)


def of_one(fleet: Fleet, node: Certificate) -> Fleet:
    """The summary as if the node had been the only one."""
    found = tuple(change for change in fleet.changes if change.node == node.node)
    return fleet.model_copy(update={"nodes": (node,), "problems": (), "changes": found})
