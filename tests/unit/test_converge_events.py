"""Recorded events of real runs -> how each node ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpustrap.converge.events import EventKind, read_event
from gpustrap.converge.masking import Mask
from gpustrap.converge.tally import Tally
from gpustrap.model.run import Outcome

CASES = Path(__file__).parent.parent / "cases" / "events"
NAMES = sorted(p.name.removesuffix(".jsonl") for p in CASES.glob("*.jsonl"))
NO_MASK = Mask([])


def raw_events(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CASES / f"{name}.jsonl").read_text().splitlines()]


def tally_of(raws: list[dict[str, Any]], nodes: list[str], mask: Mask = NO_MASK) -> Tally:
    tally = Tally(nodes, {})
    for raw in raws:
        event = read_event(raw, mask)
        if event is not None:
            list(tally.take(event))
    return tally


@pytest.mark.parametrize("name", NAMES)
def test_recorded_run_ends_as_expected(name: str) -> None:
    expected = json.loads((CASES / f"{name}.expected.json").read_text())
    tally = tally_of(raw_events(name), list(expected["nodes"]))
    found = {
        run.node: run.model_dump(mode="json", exclude={"node", "seconds", "changed_tasks"})
        for run in tally.result(check=expected["check"])
    }
    assert found == {name: {"boots": [], **run} for name, run in expected["nodes"].items()}


def test_there_are_cases() -> None:
    assert len(NAMES) >= 10


def test_a_run_without_its_end_leaves_the_state_unknown() -> None:
    raws = [r for r in raw_events("check-mode") if r["event"] != "playbook_on_stats"]
    tally = tally_of(raws, ["n1", "n2"])
    assert not tally.ended()
    outcomes = {r.node: r.outcome for r in tally.result(check=False)}
    assert outcomes == {"n1": Outcome.UNKNOWN, "n2": Outcome.NOT_RUN}


def test_nodes_of_a_batch_that_ended_are_known_also_when_a_later_one_is_cut_off() -> None:
    def event(kind: str, node: str = "", **result: Any) -> dict[str, Any]:
        return {"event": kind, "event_data": {"host": node, "task": "t", "res": result}}

    batch = event("playbook_on_play_start")
    raws = [batch, event("runner_on_start", "n1"), event("runner_on_ok", "n1", changed=True)]
    raws += [event("runner_on_start", "n2"), event("runner_on_failed", "n2", msg="no"), batch]
    raws += [event("runner_on_start", "n3")]
    runs = tally_of(raws, ["n1", "n2", "n3", "n4"]).result(check=False)
    assert [r.outcome for r in runs] == [Outcome.CHANGED, Outcome.FAILED, Outcome.UNKNOWN, Outcome.NOT_RUN]


def test_a_task_that_only_began_already_makes_the_state_unknown() -> None:
    begin = next(r for r in raw_events("check-mode") if r["event"] == "runner_on_start")
    assert tally_of([begin], ["n1"]).result(check=False)[0].outcome is Outcome.UNKNOWN


def test_progress_names_role_task_and_how_far_it_is() -> None:
    tally = Tally(["n1"], {"n1": ("ubuntu_server", "docker", "conda")})
    begin = {
        "event": "runner_on_start",
        "event_data": {"host": "n1", "role": "docker", "task": "install | Install docker"},
    }
    event = read_event(begin, NO_MASK)
    assert event is not None
    assert [s.text for s in tally.take(event)] == ["docker | install | Install docker (2/3)"]


def test_only_naming_arguments_are_kept() -> None:
    raw = {
        "event": "runner_on_ok",
        "event_data": {
            "host": "n1",
            "task": "configure | Write",
            "res": {
                "changed": True,
                "invocation": {"module_args": {"dest": "/etc/x", "content": "body", "mode": "0600", "src": "s"}},
            },
        },
    }
    event = read_event(raw, NO_MASK)
    assert event is not None
    assert event.as_data()["arguments"] == {"dest": "/etc/x", "mode": "0600"}
    assert "body" not in json.dumps(event.as_data())


def test_secrets_are_masked_in_messages_and_arguments() -> None:
    raw = {
        "event": "runner_on_failed",
        "event_data": {
            "host": "n1",
            "task": "t",
            "res": {"msg": "sudo: hunter22 is wrong", "invocation": {"module_args": {"name": "hunter22"}}},
        },
    }
    event = read_event(raw, Mask(["hunter22", "hunter2"]))
    assert event is not None
    assert "hunter" not in json.dumps(event.as_data())
    assert event.message == "sudo: ******** is wrong"


def test_a_short_secret_does_not_mangle_words() -> None:
    assert Mask(["a", "", None])("an apt lock") == "an apt lock"


@pytest.mark.parametrize("name", ["playbook_on_start", "runner_item_on_ok", "verbose"])
def test_what_does_not_matter_is_dropped(name: str) -> None:
    assert read_event({"event": name, "stdout": "PLAY [x]"}, NO_MASK) is None


def test_a_warning_of_ansible_is_kept() -> None:
    event = read_event({"event": "verbose", "stdout": "[WARNING]: a plugin failed"}, NO_MASK)
    assert event is not None
    assert event.kind is EventKind.SAID
