"""A plan as people see it: tables, findings, what is not installed yet, and the whole reasoning."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console, RenderableType

from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.lock import Choice, NodeLock
from gpustrap.model.plan import Finding, NodePlan, Reasoning
from gpustrap.report import explain_text, plan_text
from gpustrap.report.pending_text import not_installed

DOCKER = Choice(item="docker", value="docker.io 26", reason="the newest the node's apt knows", source="node: apt")
DRIVER = Choice(
    item="driver",
    value="",
    reason="version open",
    source="catalog: drivers, 580",
    confidence="recalled",
    pending=True,
)
NOTE = Finding(
    code="pcie", severity="note", subject="GPU 1", message="has 4 of 16 lanes", evidence="sysfs", advice="reseat it"
)
WARNING = Finding(code="boot", severity="warning", subject="", message="/boot is small", advice="make room: apt clean")
REFUSAL = Problem("secure-boot-dkms", "node n1", "cannot be signed", ExitCode.REFUSED, "SecureBoot enabled", "turn off")


def entry(*choices: Choice, **pending: object) -> NodeLock:
    return NodeLock(request_digest="r", system_digest="s", os="d", choices=choices, roles={}, pending=pending)


def shown(what: RenderableType, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(what)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def lines(what: RenderableType) -> list[str]:
    return [" ".join(line.split()) for line in shown(what).splitlines()]


def test_equal_nodes_share_a_table_and_others_have_their_own() -> None:
    plans = {f"n{i}": NodePlan(entry(DOCKER)) for i in range(1, 9)} | {"x": NodePlan(entry(DOCKER), (), (WARNING,))}
    said = lines(plan_text.render(plans, ()))
    assert said[0] == "n1, n2, n3, n4, n5, n6 and 2 more"
    assert said.count("docker docker.io 26 the newest the node's apt knows") == 2
    assert said[said.index("x") + 3] == "! warning /boot is small"


def test_warnings_come_first_with_advice_and_a_note_is_one_line() -> None:
    said = lines(plan_text.render({"n1": NodePlan(entry(DOCKER), (), (NOTE, WARNING))}, ()))
    at = said.index("! warning /boot is small")
    assert said[at : at + 3] == ["! warning /boot is small", "make room: apt clean", "- note GPU 1: has 4 of 16 lanes"]
    assert not any("reseat" in line for line in said)


def test_what_a_choice_rests_on_is_marked() -> None:
    said = lines(plan_text.render({"n1": NodePlan(entry(DRIVER, nvidia_driver={}))}, ()))
    assert "driver * open version open (recalled)" in said


def test_a_refused_node_shows_what_was_noticed_and_no_table() -> None:
    said = lines(
        plan_text.render({"n1": NodePlan(None, (REFUSAL,), (WARNING,)), "n2": NodePlan(None)}, (), complete=False)
    )
    assert said[:2] == ["n1 (no plan)", "! warning /boot is small"]
    assert not any(line.startswith(("n2", "Choice", "Nothing")) for line in said)


def test_changes_are_lines_and_their_absence_is_said_only_where_all_was_planned() -> None:
    plans = {"n1": NodePlan(entry(DOCKER))}
    assert lines(plan_text.render(plans, ("+ n1: new",)))[-2:] == ["Changes:", "+ n1: new"]
    assert "Nothing changes." in lines(plan_text.render(plans, ()))
    assert "Nothing changes." not in lines(plan_text.render(plans, (), complete=False))


def test_what_this_version_does_not_install_is_said_once() -> None:
    pending = {name: entry(nvidia_driver={}, cuda_toolkit={}) for name in ("n2", "n1")}
    text = "but not installed by this version of gpustrap yet: nvidia_driver, cuda_toolkit"
    assert not_installed(pending | {"n3": entry()}) == f"Planned for n1, n2, {text}"
    assert not_installed({f"n{i}": entry(nvidia_driver={}, cuda_toolkit={}) for i in range(9)}).startswith(
        "Planned for 9 nodes, "
    )
    assert not_installed({"n3": entry()}) == ""
    plans = {name: NodePlan(lock) for name, lock in pending.items()}
    assert lines(plan_text.render(plans, ())).count(f"* Planned for n1, n2, {text}") == 1


def test_what_a_node_says_cannot_draw() -> None:
    odd = "x[red]\x1b[31m\nforged"
    choice = DOCKER.model_copy(update={"value": odd, "reason": odd})
    finding = WARNING.model_copy(update={"subject": odd, "message": odd, "advice": odd, "evidence": odd})
    plans = {odd: NodePlan(entry(choice), (), (finding,), (Reasoning(item=odd, sentences=(odd,)),))}
    for text in (shown(plan_text.render(plans, (odd,))), shown(explain_text.render(plans))):
        assert "\x1b" not in text
        assert "x[red]\\x1b[31m forged" in text


def test_the_explanation_has_every_sentence_source_and_finding() -> None:
    reasoning = (
        Reasoning(item="driver", sentences=("All GPUs are Ampere", "Branch 580 drives them.")),
        Reasoning(item="limits", sentences=("No GPU sets a ceiling",)),
    )
    said = lines(explain_text.render({"n1": NodePlan(entry(DOCKER, DRIVER), (), (NOTE, WARNING), reasoning)}))
    assert said[0] == "n1"
    at = said.index("driver: open")
    assert said[at : at + 5] == [
        "driver: open",
        "All GPUs are Ampere.",
        "Branch 580 drives them.",
        "Version open.",
        "Rests on catalog: drivers, 580 (recalled: not everything of it was read at its source yet).",
    ]
    assert "Rests on node: apt." in said
    assert said[said.index("limits") + 1] == "No GPU sets a ceiling."
    at = said.index("What was noticed")
    assert said[at + 1 : at + 6] == [
        "! warning /boot is small",
        "make room: apt clean",
        "- note GPU 1: has 4 of 16 lanes",
        "│ sysfs",
        "reseat it",
    ]


def test_a_reason_that_the_sentences_have_is_not_told_twice() -> None:
    told = Reasoning(item="docker", sentences=(f"Chosen: docker.io 26: {DOCKER.reason}",))
    text = shown(explain_text.render({"n1": NodePlan(entry(DOCKER), (), (), (told,))}))
    assert text.count(DOCKER.reason) == 1


def test_a_long_sentence_stays_indented() -> None:
    told = Reasoning(item="docker", sentences=("word " * 30,))
    text = shown(explain_text.render({"n1": NodePlan(entry(DOCKER), (), (), (told,))}), width=60)
    assert all(line.startswith("  word") for line in text.splitlines() if "word" in line)


def test_a_note_of_which_the_refusal_tells_all_is_not_told_beside_it() -> None:
    note = NOTE.model_copy(update={"evidence": "GPU 1 (0000:01:00.0)\nGPU 2 (0000:02:00.0)"})
    refusal = replace(REFUSAL, evidence="GPU 1 (0000:01:00.0): open only\nGPU 2 (0000:02:00.0): proprietary only")
    said = lines(explain_text.render({"n1": NodePlan(None, (refusal,), (note, WARNING))}))
    assert not any("4 of 16" in line for line in said)
    assert "! warning /boot is small" in said
    assert any("4 of 16" in line for line in lines(explain_text.render({"n1": NodePlan(None, (REFUSAL,), (note,))})))


def test_the_parts_of_a_reason_are_told_once_each() -> None:
    choice = DOCKER.model_copy(update={"reason": "the newest; locked"})
    told = Reasoning(item="docker", sentences=("Chosen: docker.io 26: the newest (apt).",))
    said = lines(explain_text.render({"n1": NodePlan(entry(choice), (), (), (told,))}))
    assert said[said.index("docker: docker.io 26") + 2] == "Locked."
    assert sum("newest" in line for line in said) == 1


def test_the_explanation_of_a_refusal_has_its_way_out() -> None:
    reasoning = (Reasoning(item="driver", sentences=("Secure Boot is on.",)),)
    said = lines(explain_text.render({"n1": NodePlan(None, (REFUSAL,), (), reasoning)}))
    assert said[0] == "n1: refused"
    assert said[said.index("driver") + 1] == "Secure Boot is on."
    at = said.index("Why there is no plan")
    assert said[at + 1 : at + 4] == [
        "✗ refused cannot be signed (secure-boot-dkms)",
        "│ SecureBoot enabled",
        "Next: turn off",
    ]
