"""What got worse from one certificate to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpustrap.model.certificate import Certificate, Change
from gpustrap.model.check import Check
from gpustrap.model.lock import Choice
from gpustrap.verify.against import changes

Make = Callable[..., Certificate]


def check(verdict: str, reason: str = "", name: str = "a-check", **changed: Any) -> Check:
    return Check.model_validate({"id": name, "title": "A check", "verdict": verdict, "reason": reason, **changed})


def measured(value: float, **changed: Any) -> Check:
    found = {"name": "matmul-bf16", "subject": "GPU-1", "value": value, "unit": "TFLOPS", "verdict": "pass", **changed}
    return check("pass", measures=[found])


def told(found: tuple[Change, ...]) -> list[tuple[str, str, str, str, bool]]:
    return [(c.what, c.subject, c.before, c.after, c.worse) for c in found]


@pytest.fixture
def compare(make_certificate: Make) -> Callable[..., tuple[Change, ...]]:
    def run(before: dict[str, Any], after: dict[str, Any]) -> tuple[Change, ...]:
        return changes(make_certificate(**before), make_certificate(**after))

    return run


def test_the_same_twice_differs_in_nothing(make_certificate: Make) -> None:
    assert changes(make_certificate(), make_certificate(run="later", started="2027-01-01T00:00:00+00:00")) == ()


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        ("pass", "warn", True),
        ("pass", "fail", True),
        ("warn", "fail", True),
        ("pass", "skip", True),
        ("skip", "fail", True),
        ("fail", "warn", False),
        ("fail", "pass", False),
        ("skip", "pass", False),
        ("fail", "skip", False),
    ],
)
def test_verdicts(compare: Any, before: str, after: str, worse: bool) -> None:
    found = compare({"checks": (check(before),)}, {"checks": (check(after, "why"),)})
    assert told(found) == [("check", "A check", before, f"{after}: why", worse)]


def test_a_check_that_is_no_longer_made_proves_nothing(compare: Any) -> None:
    assert told(compare({"checks": (check("pass"),)}, {"checks": ()})) == [
        ("check", "A check", "pass", "not there", True)
    ]
    assert not compare({"checks": (check("fail"),)}, {"checks": ()})[0].worse
    assert [c.worse for c in compare({"checks": ()}, {"checks": (check("pass"),)})] == [False]
    assert [c.worse for c in compare({"checks": ()}, {"checks": (check("warn"),)})] == [True]


def test_a_quicker_level_is_not_held_against_a_node(compare: Any) -> None:
    whole = {"level": "standard", "checks": (check("pass", name="only-standard"), measured(9, name="other"))}
    quick = {"level": "quick", "checks": (check("pass"),)}
    assert compare(whole, quick) == ()


@pytest.mark.parametrize(
    ("before", "after", "changed", "worse"),
    [
        (100, 94.9, {}, True),
        (100, 95.1, {}, None),
        (100, 106, {}, False),
        (10, 11, {"better": "less"}, True),
        (10, 9, {"better": "less"}, False),
        (10, 99, {"better": "neither"}, None),
        (0, 0, {}, None),
        (0, 5, {}, False),
    ],
)
def test_measures(compare: Any, before: float, after: float, changed: dict[str, Any], worse: bool | None) -> None:
    found = compare({"checks": (measured(before, **changed),)}, {"checks": (measured(after, **changed),)})
    assert [c.worse for c in found] == ([] if worse is None else [worse])


def test_a_measure_says_of_which_gpu(compare: Any, make_certificate: Make) -> None:
    machine = make_certificate().hardware
    assert machine
    one, other = machine.gpus[:2]
    pair = {"subject": one.uuid, "peer": other.uuid, "unit": "GB/s"}
    found = compare({"checks": (measured(100, **pair),)}, {"checks": (check("pass"),)})
    assert told(found) == [("measure", "matmul-bf16 of GPU 19:00.0 to GPU 3b:00.0", "100 GB/s", "not measured", True)]


def test_a_new_version_is_told_and_not_worse(compare: Any) -> None:
    old, new = (Choice(item="driver", value=value, reason="r", source="s") for value in ("580.82.07", "580.95.05"))
    found = compare({"stack": (old,)}, {"stack": (new,)})
    assert told(found) == [("stack", "driver", "580.82.07", "580.95.05", False)]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"kernel": "6.8.0-90"}, ("kernel", "6.8.0-88-generic", "6.8.0-90", False)),
        ({"driver": ""}, ("loaded driver", "580.95.05", "none", True)),
        ({"threads": 96}, ("threads", "192", "96", True)),
        ({"memory": 1082000000000}, ("memory", "2164.0 GB", "1082.0 GB", True)),
        ({"switches": ()}, ("NVSwitches", "4", "0", True)),
    ],
)
def test_a_machine_that_is_less_than_it_was(
    compare: Any, make_certificate: Make, changed: dict[str, Any], expected: tuple[str, str, str, bool]
) -> None:
    machine = make_certificate().hardware
    assert machine
    found = compare({}, {"hardware": machine.model_copy(update=changed)})
    assert [(c.subject, c.before, c.after, c.worse) for c in found] == [expected]


def with_gpu(certificate: Certificate, number: int, **changed: Any) -> dict[str, Any]:
    machine = certificate.hardware
    assert machine
    gpus = list(machine.gpus)
    gpus[number] = gpus[number].model_copy(update=changed)
    return {"hardware": machine.model_copy(update={"gpus": tuple(gpus)})}


def test_a_gpu_that_is_gone_another_card_and_fewer_lanes(compare: Any, make_certificate: Make) -> None:
    whole = make_certificate()
    assert whole.hardware
    gone = whole.hardware.model_copy(update={"gpus": whole.hardware.gpus[1:]})
    assert [(c.subject, c.after, c.worse) for c in compare({}, {"hardware": gone})] == [
        ("GPU 0000:19:00.0", "not there", True)
    ]
    assert [(c.subject, c.worse) for c in compare({}, with_gpu(whole, 0, uuid="GPU-other"))] == [
        ("GPU 0000:19:00.0", False)
    ]
    assert [(c.subject, c.before, c.after, c.worse) for c in compare({}, with_gpu(whole, 0, link_width=8))] == [
        ("link of GPU 0000:19:00.0", "x16", "x8", True)
    ]


def test_a_driver_that_came_only_now_makes_no_other_cards_of_them(compare: Any, make_certificate: Make) -> None:
    assert compare(with_gpu(make_certificate(), 0, uuid=""), {}) == ()


def test_a_stand_in_is_no_proof_of_a_machine(compare: Any) -> None:
    assert told(compare({}, {"simulated": True})) == [
        ("hardware", "what it rests on", "the machine", "a stand-in", True)
    ]


def test_a_machine_that_is_not_known_is_not_compared(compare: Any) -> None:
    assert compare({"hardware": None}, {}) == ()
