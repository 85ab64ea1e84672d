"""Reports of a run: everything that happened is in them, and nothing a node says becomes markup."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from gpustrap.model.check import Check, NodeChecks, Verdict
from gpustrap.model.lock import Choice, Lock, NodeLock
from gpustrap.model.run import NodeRun, Outcome, RunSummary, TaskFailure
from gpustrap.report import html, markdown, run_report, run_text, verify_text
from gpustrap.report.view import duration, view_run

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "\x1b]0;title\x07\x1b[2J\x1b[31mred",
    "a\rb\x08\x9b31m",
    "\u202etxt.exe\u2066\u200b",
    "</pre></style><style>*{display:none}</style>",
    "{{ 7 * 7 }} {% raw %} [bold red]x[/bold red] [/]",
    "```\n# heading\n<script>alert(1)</script>",
    "cell | another | [link](javascript:alert(1)) ![x](http://evil/x.png)",
]


def make_check(text: str = "", verdict: str = "pass", **changed: Any) -> Check:
    found = {"title": text or "A check", "reason": text or "a reason", "evidence": text, "remedy": text}
    return Check(id="a-check", verdict=Verdict(verdict), **{**found, **changed})


def make_lock(text: str = "", *, simulated: bool = False) -> Lock:
    choice = Choice(
        item=text or "docker",
        value=text or "26.1.5",
        reason=text or "newest in the archive",
        source=text or "apt",
        confidence="recalled",
        simulated=simulated,
    )
    entry = NodeLock(request_digest="a", system_digest="b", os=text or "debian 13", choices=(choice,), roles={})
    return Lock(tool="1.2.3", catalog="c", nodes={"n1": entry})


def make_summary(text: str = "", *checks: Check, outcome: str = "failed", **changed: Any) -> RunSummary:
    failure = TaskFailure(role=text or "docker", task=text or "Ensure x", message=text or "E: broken", hint=text)
    run = NodeRun(
        node="n1",
        outcome=Outcome(outcome),
        ok=3,
        changed=2,
        changed_tasks=(text or "docker: Ensure y",),
        failure=failure if outcome == "failed" else None,
        seconds=61,
    )
    values = {"id": "20260101T000000Z-abc", "started": "2026-01-01T00:00:00+00:00", "seconds": 75.0, "nodes": (run,)}
    return RunSummary(**{**values, "checks": (NodeChecks(node="n1", checks=checks),) if checks else (), **changed})


def terminal(renderable: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=200, color_system=None, highlight=False)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.shown = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.shown += data


def parse(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    return tags


def test_html_says_what_was_asked_given_changed_checked_and_what_is_next() -> None:
    check = make_check(verdict="fail", evidence="no space left on device", remedy="df -h", seconds=2.5)
    page = html.render(view_run(make_summary("", check), make_lock(simulated=True)))
    shown = parse(page).shown
    for words in (
        "20260101T000000Z-abc", "Apply the lock to 1 node", "1 January 2026, 00:00 UTC", "1 min 15 s",
        "26.1.5", "newest in the archive", "recalled", "simulated", "docker: Ensure y", "E: broken",
        "no space left on device", "df -h", "2.5 s", "planned by gpustrap 1.2.3",
    ):  # fmt: skip
        assert words in shown, words


def test_html_is_one_file_without_script_or_anything_to_fetch() -> None:
    page = html.render(view_run(make_summary("", make_check()), make_lock()))
    tags = parse(page)
    assert not {"script", "link", "img", "iframe", "object", "form"} & {tag for tag, _ in tags.found}
    links = [a["href"] for tag, a in tags.found if tag == "a"]
    assert links
    assert all(link and link.startswith("#") for link in links)
    assert not re.search(r"url\(|@import|https?://", page)
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: ascii(t)[:30])
def test_nothing_a_node_says_is_markup_in_html(text: str) -> None:
    plain = html.render(view_run(make_summary("", make_check("words", "fail")), make_lock()))
    page = html.render(view_run(make_summary(text, make_check(text, "fail")), make_lock(text)))

    def skeleton(of: str) -> list[str]:
        return [tag for tag, _ in parse(of).found if tag not in {"p", "pre", "code", "br"}]  # parts that may be empty

    assert skeleton(page) == skeleton(plain)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b]", page)
    page.encode("utf-8")


@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: ascii(t)[:30])
def test_nothing_a_node_says_is_markup_in_markdown(text: str) -> None:
    document = markdown.render(view_run(make_summary(text, make_check(text, "fail")), make_lock(text)))
    outside, fence = [], ""
    for line in document.splitlines():
        ticks = re.match(r"`{3,}", line)
        if fence:
            fence = "" if line == fence else fence
        elif ticks:
            fence = ticks.group()
        else:
            outside.append(re.sub(r"\\.|(`+)(?!`).*?(?<!`)\1(?!`)", "", line))  # escapes and inline code
    assert not fence
    bare = "\n".join(outside)
    assert not re.search(r"<[a-z/!]|\[[^\]]*\]\(|!\[", bare), bare
    assert all(line.count("|") in {0, 4, 5, 6} for line in bare.splitlines())
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", document)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: ascii(t)[:30])
def test_nothing_a_node_says_moves_the_cursor(text: str) -> None:
    view = view_run(make_summary(text, make_check(text, "fail")), make_lock(text))
    for shown in (
        terminal(run_text.render(view)),
        terminal(verify_text.render([NodeChecks(node="n1", checks=(make_check(text, "fail"),))])),
    ):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
        if "[bold red]" in text:
            assert "[bold red]x[/bold red]" in shown


def test_terminal_shows_verdicts_problems_and_next_steps() -> None:
    checks = (
        make_check(verdict="pass", title="First"),
        make_check(verdict="fail", title="Second", reason="dead", evidence="the words", remedy="do this"),
        make_check(verdict="skip", title="Third", reason="not in this node's lock"),
    )
    shown = terminal(verify_text.render([NodeChecks(node="n1", checks=checks)]))
    assert re.search(r"n1\s+✗ fail\s+3 checks, 1 failed", shown)
    assert re.search(r"✓ pass\s+First", shown)
    assert re.search(r"- skip\s+Third.*not in this node's lock", shown)
    assert "│ the words" in shown
    assert "Next: do this" in shown
    run = terminal(run_text.render(view_run(make_summary("", *checks), make_lock(simulated=True))))
    for words in ("✗ failed", "Simulated", "E: broken", "do this", "1 node: 1 failed; 1 failed verification"):
        assert words in run


def test_a_node_that_was_not_verified_says_so() -> None:
    view = view_run(make_summary(outcome="changed"), None)
    assert view.tone == "good"
    page = html.render(view)
    assert "This node was not verified" in page
    assert "not verified" in markdown.render(view)


def test_a_failed_verification_is_bad_though_the_apply_went_well() -> None:
    view = view_run(make_summary("", make_check(verdict="fail"), outcome="changed"), None)
    assert view.tone == "bad"
    assert "failed verification" in view.headline


def test_check_mode_says_would_change() -> None:
    view = view_run(make_summary(outcome="would-change", check=True, tags=("docker",)), make_lock())
    page = html.render(view)
    assert "What would change" in page
    assert "Check what an apply would change on 1 node, only docker" in page
    assert "What it got" not in page


@pytest.mark.parametrize("outcome", ["unreachable", "unknown", "not-run", "failed"])
def test_every_bad_ending_has_a_next_step(outcome: str) -> None:
    view = view_run(make_summary(outcome=outcome), None)
    assert [s.node for s in view.steps] == ["n1"]
    assert view.steps[0].step.startswith("gpustrap ")


def test_write(tmp_path: Path) -> None:
    run_report.write(tmp_path, make_summary("\u202e", make_check("\x1b")), None)
    assert {p.name for p in tmp_path.iterdir()} == {"report.html", "report.md"}
    assert "20260101T000000Z-abc" in (tmp_path / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (12.2, "12 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (28912, "8 h 02 min"),
    ],
)
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize("render", [markdown.render, html.render, lambda view: terminal(run_text.render(view))])
def test_what_is_only_planned_is_not_said_to_be_there(render: Any) -> None:
    choice = Choice(item="driver", value="580.178.04", reason="r", source="s", pending=True)
    entry = make_lock().nodes["n1"]
    entry = entry.model_copy(update={"choices": (*entry.choices, choice), "pending": {"nvidia_driver": {}}})
    lock = make_lock().model_copy(update={"nodes": {"n1": entry}})
    text = render(view_run(make_summary(outcome="changed"), lock)).replace("\\_", "_")
    assert "580.178.04" not in text
    assert text.count("Planned for n1, but not installed by this version of gpustrap yet: nvidia_driver") == 1
    assert "not installed by this version" not in render(view_run(make_summary(), make_lock()))
