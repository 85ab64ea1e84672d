"""Where a site keeps things."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Site:
    """A site directory. ``.gpustrap/`` is 0700 and ignored by git, except where docs/site.md says otherwise."""

    root: Path

    @property
    def inventory(self) -> Path:
        """The user's inventory directory."""
        return self.root / "inventory"

    @property
    def lock(self) -> Path:
        """The plan written down; the user commits it."""
        return self.root / "gpustrap.lock.yml"

    @property
    def state(self) -> Path:
        """What gpustrap keeps for itself."""
        return self.root / ".gpustrap"

    @property
    def known_hosts(self) -> Path:
        """Host keys taken by enroll; one file, shared with Ansible."""
        return self.state / "known_hosts"

    @property
    def ssh_key(self) -> Path:
        """The site's own private key; the public one is beside it with .pub."""
        return self.state / "ssh" / "id_ed25519"

    @property
    def runs(self) -> Path:
        """One directory per apply: events.jsonl, summary.json, report.md, report.html."""
        return self.state / "runs"

    @property
    def certificates(self) -> Path:
        """What the last verification found: the fleet's summary, and under nodes/ the last certificate of each node."""
        return self.state / "certificates"

    def node(self, name: str) -> Path:
        """What is kept about one node: access.json, facts.json."""
        return self.state / "nodes" / name
