"""A plan for programs: ``gpustrap plan --format json``. docs/plan.schema.json is its schema.

``python -m gpustrap.report.plan_json`` writes that file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from gpustrap.content import content_root
from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode, worst
from gpustrap.model.base import Frozen
from gpustrap.model.lock import NodeLock
from gpustrap.model.plan import Finding, NodePlan, Reasoning


class PlanReport(Frozen):
    """The plans of nodes. By node: its name in the inventory, or in its facts."""

    version: Literal[1] = 1
    nodes: dict[str, NodeLock] = Field(description="by node: its plan, as the lock has it; refused nodes have none")
    findings: dict[str, tuple[Finding, ...]] = Field(description="by node: what was noticed, also of refused ones")
    reasoning: dict[str, tuple[Reasoning, ...]] = Field(description="by node: how each choice was made, in sentences")
    changes: tuple[str, ...] = Field(description="what changes in the lock; a line for a person each")
    problems: tuple[Problem, ...] = Field(description="refusals, and nodes or files that could not be read")
    exit_code: ExitCode


def report(plans: Mapping[str, NodePlan], changes: Iterable[str], problems: Iterable[Problem]) -> PlanReport:
    """Put the report together.

    Args:
        plans: By node.
        changes: What changes in the lock.
        problems: Of all nodes, and of what is about none.
    """
    found = tuple(problems)
    return PlanReport(
        nodes={name: plan.lock for name, plan in plans.items() if plan.lock},
        findings={name: plan.findings for name, plan in plans.items() if plan.findings},
        reasoning={name: plan.reasoning for name, plan in plans.items() if plan.reasoning},
        changes=tuple(changes),
        problems=found,
        exit_code=worst(p.exit_code for p in found),
    )


def schema() -> str:
    """The text of docs/plan.schema.json."""
    described = PlanReport.model_json_schema(mode="serialization")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "gpustrap plan --format json"}
    return json.dumps(head | {k: v for k, v in described.items() if k != "title"}, indent=2, ensure_ascii=False) + "\n"


def target(root: Path) -> Path:
    """Where the schema is kept in a checkout."""
    return root / "docs" / "plan.schema.json"


if __name__ == "__main__":
    target(content_root()).write_text(schema(), encoding="utf-8")
