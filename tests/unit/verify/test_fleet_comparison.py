"""GPUs against their equals: who is behind them is told, whatever the rest of the fleet is like."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustrap.model.check import WORST_FIRST, Check, Measure, NodeChecks, Verdict
from gpustrap.verify.fleet import compare

KIND = "NVIDIA H100 80GB HBM3, 132 multiprocessors"


def measured(value: float, number: int = 0, **changed: Any) -> Measure:
    found = {"name": "cublas-fp16", "subject": f"GPU-{number}", "kind": KIND, "value": value, "unit": "TFLOPS"}
    return Measure.model_validate({**found, **changed})


def node(called: str, /, *values: float, verdict: str = "pass", **changed: Any) -> NodeChecks:
    measures = tuple(measured(value, number, **changed) for number, value in enumerate(values))
    check = Check(id="gpu-cublas", title="Products are right", verdict=Verdict(verdict), measures=measures)
    return NodeChecks(node=called, checks=(check,))


def fleet(*nodes: NodeChecks) -> dict[str, NodeChecks]:
    return compare({one.node: one for one in nodes})


def verdicts(node: NodeChecks) -> list[str]:
    return [measure.verdict.value for measure in node.checks[0].measures]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((100, 100), ["pass", "pass"]),
        ((100, 95), ["pass", "pass"]),
        ((100, 94.9), ["pass", "warn"]),
        ((100, 90), ["pass", "warn"]),
        ((100, 89.9, 97), ["pass", "fail", "pass"]),
        ((100, 0), ["pass", "fail"]),
        ((100,), ["pass"]),
    ],
)
def test_within_a_node_the_best_counts(values: tuple[float, ...], expected: list[str]) -> None:
    assert verdicts(fleet(node("n1", *values))["n1"]) == expected


def test_a_node_whose_gpus_are_all_slow_does_not_pass() -> None:
    """As it does with gpu-fryer, which compares only inside a node."""
    found = fleet(node("n1", 100, 101), node("n2", 100, 99), node("n3", 70, 70))
    assert [found[name].verdict.value for name in ("n1", "n2", "n3")] == ["pass", "pass", "fail"]
    assert "the middle of the fleet" in found["n3"].checks[0].reason


def test_a_node_of_one_gpu_does_not_always_pass() -> None:
    """As it does where a GPU is compared with its siblings alone."""
    found = fleet(*(node(f"n{number}", 100) for number in range(1, 4)), node("n4", 80))
    assert [found[name].verdict.value for name in found] == ["pass", "pass", "pass", "fail"]


def test_one_fast_gpu_does_not_condemn_a_fleet() -> None:
    found = fleet(*(node(f"n{number}", 100) for number in range(1, 5)), node("n5", 115))
    assert {one.verdict for one in found.values()} == {Verdict.PASS}


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": ""},
        {"name": "host-to-gpu", "unit": "GB/s"},
        {"name": "memory-tested", "unit": "GiB"},
        {"better": "neither"},
        {"peer": "GPU-9"},
    ],
    ids=["no kind", "its slot", "its users", "neither", "pairs"],
)
def test_what_does_not_rest_on_the_gpu_alone_is_not_compared(changed: dict[str, Any]) -> None:
    before = node("n1", 100, 10, **changed)
    assert fleet(before)["n1"] == before


@pytest.mark.parametrize(("value", "verdict"), [(76, "pass"), (74, "warn"), (1, "warn")])
def test_our_own_kernels_tell_only_of_a_gpu_that_is_far_behind(value: float, verdict: str) -> None:
    """They run for a second, on matrices that are too small for a steady speed."""
    assert verdicts(fleet(node("n1", 100, value, name="matmul-fp16"))["n1"]) == ["pass", verdict]


def test_gpus_of_another_kind_are_not_equals() -> None:
    slower = node("n2", 10, kind="Tesla T4, 40 multiprocessors")
    assert {one.verdict for one in fleet(node("n1", 100), slower, node("n3", 100)).values()} == {Verdict.PASS}


def test_less_may_be_better() -> None:
    assert verdicts(fleet(node("n1", 10.0, 12.0, unit="s", better="less"))["n1"]) == ["pass", "fail"]


def test_it_says_who_is_behind_what_and_what_to_do() -> None:
    (check,) = fleet(node("n1", 100, 80))["n1"].checks
    assert check.reason == "GPU-1: cublas-fp16 is 80 TFLOPS, 20 % behind the best of this node (100)"
    assert check.remedy.endswith("then gpustrap verify n1")


def test_a_gpu_is_told_by_where_it_is_if_that_is_known() -> None:
    nodes, place = {"n1": node("n1", 100, 80)}, {"GPU-1": "0000:81:00.0"}
    for addresses, called in (({"n1": place}, "GPU 0000:81:00.0"), ({"n2": place}, "GPU-1")):
        assert compare(nodes, addresses)["n1"].checks[0].reason.startswith(f"{called}: ")


def test_many_that_are_behind_are_not_all_told_in_one_sentence() -> None:
    (check,) = fleet(node("n1", 100, *[80] * 15))["n1"].checks
    assert check.reason.endswith("; and 11 more")
    assert len(check.reason) < 500


VALUES = st.lists(st.floats(min_value=0, max_value=1e6, allow_nan=False), min_size=1, max_size=8)
FLEETS = st.lists(st.tuples(VALUES, st.sampled_from(["pass", "warn", "fail"])), min_size=1, max_size=6).map(
    lambda of: [node(f"n{number}", *values, verdict=verdict) for number, (values, verdict) in enumerate(of)]
)


@given(FLEETS)
def test_nothing_is_ever_better_than_before(nodes: list[NodeChecks]) -> None:
    after = fleet(*nodes)
    for before in nodes:
        for old, new in zip(before.checks, after[before.node].checks, strict=True):
            assert WORST_FIRST.index(new.verdict) <= WORST_FIRST.index(old.verdict)
            assert [m.value for m in new.measures] == [m.value for m in old.measures]


@given(FLEETS, st.randoms())
def test_the_order_of_nodes_does_not_count(nodes: list[NodeChecks], random: Any) -> None:
    other = list(nodes)
    random.shuffle(other)
    assert fleet(*nodes) == fleet(*other)


@given(st.floats(min_value=1, max_value=1e6), st.lists(st.integers(1, 8), min_size=1, max_size=5))
def test_equals_pass(value: float, sizes: list[int]) -> None:
    nodes = [node(f"n{number}", *[value] * size) for number, size in enumerate(sizes)]
    assert {one.verdict for one in fleet(*nodes).values()} == {Verdict.PASS}


@given(FLEETS, st.floats(min_value=1, max_value=1e6))
def test_who_is_far_behind_a_sibling_never_passes(nodes: list[NodeChecks], best: float) -> None:
    after = fleet(*nodes, node("pair", best, best * 0.8))
    assert verdicts(after["pair"])[1] == "fail"


@given(VALUES)
def test_the_unit_does_not_count(values: list[float]) -> None:
    whole = [round(value) for value in values]  # so that rounding does not move one over a limit
    one, other = (verdicts(fleet(node("n1", *[value * by for value in whole]))["n1"]) for by in (1.0, 1024.0))
    assert one == other
