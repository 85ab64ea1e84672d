"""A small site of its own for each runner test: real ansible-runner, local connections, no containers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.converge.events import Event
from gpustrap.converge.masking import Mask
from gpustrap.converge.runlog import RunLog
from gpustrap.converge.session import SessionResult, Settings, Target, run_ansible
from gpustrap.converge.tally import Tally
from gpustrap.model.node import Access, Endpoint, Escalation, Secrets
from gpustrap.model.run import NodeRun

ACCESS = Access(escalation=Escalation.ROOT)
NO_SECRETS = Secrets()


@dataclass
class Ran:
    """What came out of a run."""

    session: SessionResult
    nodes: dict[str, NodeRun]
    events: list[Event]
    raw: list[dict[str, Any]]
    directory: Path


@dataclass
class Content:
    """A playbook with roles, and an inventory."""

    root: Path
    hosts: dict[str, dict[str, Any]] = field(default_factory=lambda: {"n1": {"ansible_connection": "local"}})

    def role(self, name: str, tasks: list[dict[str, Any]]) -> None:
        directory = self.root / "roles" / name / "tasks"
        directory.mkdir(parents=True)
        (directory / "main.yml").write_text(yaml.safe_dump(tasks))

    def run(
        self,
        *roles: str,
        secrets: Secrets = NO_SECRETS,
        watch: Callable[[dict[str, Any]], None] = lambda _event: None,
        access: Access = ACCESS,
        **settings: Any,
    ) -> Ran:
        play = {
            "name": "Test",
            "hosts": "all",
            "gather_facts": False,
            "serial": "{{ gpustrap_serial | default('100%') }}",  # as playbooks/site.yml has it
            "roles": [{"role": r, "tags": [r]} for r in roles],
        }
        playbook = self.root / "site.yml"
        playbook.write_text(yaml.safe_dump([play]))
        inventory = self.root / "inventory.yml"
        inventory.write_text(yaml.safe_dump({"all": {"hosts": self.hosts}}))
        mask = Mask([secrets.become_password])
        tally = Tally(self.hosts, dict.fromkeys(self.hosts, roles))
        raws: list[dict[str, Any]] = []
        events: list[Event] = []
        with RunLog(self.root / "run", mask) as log:

            def handle(raw: Any) -> None:
                raws.append(raw)
                event = log.write(raw)
                if event is not None:
                    events.append(event)
                    list(tally.take(event))
                watch(raw)

            session = run_ansible(
                Settings(
                    playbook=playbook,
                    inventories=(inventory,),
                    targets=tuple(Target(Endpoint(name=n, host=n), access) for n in self.hosts),
                    known_hosts=self.root / "known hosts",
                    **settings,
                ),
                secrets,
                handle,
            )
        result = tally.result(check=settings.get("check", False))
        return Ran(session, {r.node: r for r in result}, events, raws, self.root / "run")


@pytest.fixture
def content(tmp_path: Path) -> Content:
    return Content(tmp_path)
