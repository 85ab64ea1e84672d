"""Plans without environments that have no lock file."""

from __future__ import annotations

from gpustrap.commands.plain_ansible import with_lock_files
from gpustrap.model.plan import Finding
from gpustrap.model.request import Request
from gpustrap.resolve.environments.left_out import items, leave_out
from gpustrap.resolve.plan import plan_node

WHY = Finding(code="environment-not-locked", severity="warning", subject="environment jax", message="no index")


def planned(node, catalog, *environments):
    request = Request(environments=environments, docker=False)
    plan = plan_node("n1", node(gpus=[]).facts(), request, catalog)
    assert plan.lock, plan.problems
    return plan


def values(plan):
    return {choice.item: (choice.value, choice.reason) for choice in plan.lock.choices}


def test_one_goes_and_the_others_stay(node, catalog):
    plan = leave_out(planned(node, catalog, "torch", "jax"), {"jax": WHY})
    assert [item["name"] for item in items(plan.lock)] == ["torch"]
    assert values(plan)["environment-jax"] == ("none", "no index")
    assert values(plan)["environment-torch"][0].startswith("pytorch 2.15.0 cpu")
    assert "uv" in values(plan)
    assert plan.findings[-1] == WHY


def test_without_any_left_the_role_goes_and_the_rest_of_the_node_stays(node, catalog):
    before = planned(node, catalog, "jax")
    plan = leave_out(before, {"jax": WHY})
    assert items(plan.lock) == ()
    assert "ml_environments" not in plan.lock.roles | plan.lock.pending
    assert "uv" not in values(plan)
    assert plan.lock.roles["conda"] == before.lock.roles["conda"]


def test_nothing_to_leave_out_is_the_same_plan(node, catalog):
    plan = planned(node, catalog, "jax")
    assert leave_out(plan, {}) is plan


def test_plain_ansible_without_a_lock_builds_none_and_says_so(node, catalog):
    plan = planned(node, catalog, "torch", "jax")
    left = with_lock_files(plan)
    assert items(left.lock) == ()
    assert [finding.subject for finding in left.findings] == ["environment torch", "environment jax"]
    role = plan.lock.roles | plan.lock.pending
    locked = [item | {"digest": "0" * 64} for item in role["ml_environments"]["ml_environments_environments"]]
    role["ml_environments"]["ml_environments_environments"] = locked
    assert with_lock_files(plan) == plan
