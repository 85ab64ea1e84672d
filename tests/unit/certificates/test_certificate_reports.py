"""Certificates in every format: all of it is in them, and nothing a node says becomes markup."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from gpustrap.model.certificate import Change, Fleet
from gpustrap.model.check import Verdict
from gpustrap.report import certificate_json, html, junit, markdown, prometheus
from gpustrap.report.certificate_view import view_fleet
from gpustrap.report.verify_text import render_changes

HOSTILE = [
    "<script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "'><svg onload=alert(1)>",
    "\x1b]0;title\x07\x1b[2J\x1b[31mred",
    "a\rb\x08\x9b31m",
    "\u202etxt.exe\u2066\u200b",
    "</pre></style></svg><style>*{display:none}</style>",
    "{{ 7 * 7 }} {% raw %} [bold red]x[/bold red] [/]",
    "```\n# heading\n<script>alert(1)</script>",
    'cell | another | [link](javascript:alert(1)) ![x](http://evil/x.png) \\" } 1\n# TYPE x gauge',
    "]]> \x00 \ufffe & &amp; <!--",
]
# A sample as the exposition format has it.
SAMPLE = re.compile(r'[a-z_]+\{([a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+\} -?\d+(\.\d+)?(e[+-]?\d+)?')


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


def page(fleet: Fleet) -> str:
    return html.render_certificates(view_fleet(fleet))


def compared(fleet: Fleet) -> Fleet:
    found = [
        Change(node="lab-n3", what="stack", subject="driver", before="580.82", after="580.95", worse=False),
        Change(node="rack1-n2", what="check", subject="Products", before="pass", after="fail: slow", worse=True),
    ]
    return fleet.model_copy(update={"against": "last-week.json", "changes": tuple(found)})


def test_the_page_has_everything(whole: Fleet) -> None:
    tags = parse(page(compared(whole)))
    for words in (
        "4 nodes: 1 passed, 1 passed with warnings, 1 failed, 1 could not be checked", "1 December 2026, 04:00 UTC",
        "Burn-in", "8 h 02 min", "8 x H100 SXM5, 4 x NVSwitch", "Ubuntu 24.04.3 LTS, x86_64", "580.95.05 (open module)",
        "192 threads", "GPU-00000002-89ab-cdef-0123-456789abcdef", "newest that driver 580 supports",
        "Matmul bf16".lower(), "expected: 730 TFLOPS (gpu-fryer README, H100 SXM bf16)", "88 %", "No route to host",
        "gpustrap inspect rack2-n4", "GPUs copy to each other, GB/s", "temperature", "°C", "What got worse",
        "fail: slow", "What else differs", "4 NVSwitches", "x1 of x16", "catalog", "sha256:0123456789abcdef",
        "matmul-bf16: 640 of 735 TFLOPS", "not in the lock",
    ):  # fmt: skip
        assert words in tags.shown, words
    classes = [str(attributes.get("class")) for _, attributes in tags.found]
    assert classes.count("checks") == 3  # they are elements, not words
    assert sum(name.startswith("curve ") for name in classes) == 2 * 2 * 16  # in the charts and in their legends
    assert sum(name.startswith("bar ") for name in classes) == 8 + 8 + 2
    assert "&lt;section" not in page(whole)


def test_a_step_for_several_checks_is_told_once(whole: Fleet) -> None:
    node = whole.nodes[1]
    checks = tuple(c.model_copy(update={"verdict": Verdict.FAIL, "remedy": "gpustrap apply n1"}) for c in node.checks)
    fleet = whole.model_copy(update={"nodes": (node.model_copy(update={"checks": checks}),)})
    (step,) = view_fleet(fleet).steps
    assert step.what == "; ".join(check.title for check in checks)


def test_figures_that_rest_on_a_stand_in_say_so(whole: Fleet) -> None:
    node = whole.nodes[0]
    checks = tuple(check.model_copy(update={"simulated": True}) for check in node.checks)
    fleet = whole.model_copy(update={"nodes": (node.model_copy(update={"checks": checks, "simulated": True}),)})
    captions = re.findall(r"<figcaption>.*?</figcaption>", page(fleet))
    assert len(captions) == 4
    assert all('<span class="badge simulated">simulated</span>' in caption for caption in captions)


def test_what_failed_comes_first(whole: Fleet) -> None:
    for text in (parse(page(whole)).shown, markdown.render_certificates(view_fleet(whole))):
        places = [text.index(name) for name in ("rack1-n2", "lab-n3", "rack1-n1")]
        assert places == sorted(places)


def test_the_page_of_one_node_is_about_it_alone(whole: Fleet) -> None:
    one = whole.model_copy(update={"nodes": whole.nodes[2:], "problems": ()})
    shown = parse(page(one)).shown
    assert "lab-n3 passed with warnings" in shown
    assert "Could not be checked" not in shown
    assert "simulated" in shown
    assert "Nodes" not in shown


def test_the_page_fetches_nothing_and_runs_nothing(whole: Fleet) -> None:
    text = page(compared(whole))
    tags = parse(text)
    assert not {"script", "link", "img", "iframe", "object", "form", "use", "image"} & {tag for tag, _ in tags.found}
    links = [attributes["href"] for tag, attributes in tags.found if tag == "a"]
    assert links
    assert all(link and link.startswith("#") for link in links)
    assert not re.search(r"url\(|@import|https?://", text)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: ascii(t)[:30])
def test_nothing_a_node_says_is_markup_on_the_page(text: str, hostile: Callable[[str], Fleet]) -> None:
    def skeleton(of: str) -> list[tuple[str, tuple[str, ...]]]:
        return [(tag, tuple(sorted(a for a in attributes))) for tag, attributes in parse(of).found]

    found = page(hostile(text))
    assert skeleton(found) == skeleton(page(hostile("words")))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b]", found)
    found.encode("utf-8")


@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: ascii(t)[:30])
def test_nothing_a_node_says_is_markup_in_markdown(text: str, hostile: Callable[[str], Fleet]) -> None:
    document = markdown.render_certificates(view_fleet(compared(hostile(text))))
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
    assert all(line.count("|") in {0, 3, 4, 5, 6, 10} for line in bare.splitlines())
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", document)


def test_markdown_has_everything(whole: Fleet) -> None:
    document = markdown.render_certificates(view_fleet(compared(whole)))
    for words in (
        "# gpustrap certificate 20261201T040000Z-1a2b3c", "**Simulated**", "| rack1-n2 | fail |", "**node rack2-n4**",
        "## Against last-week.json", "| rack1-n2 | Products | pass | fail: slow | worse |", "| 3b:00.0 | 373 |",
        "88 % of 730 TFLOPS (gpu-fryer README, H100 SXM bf16) | fail |", "```text\nmatmul-bf16: 640 of 735 TFLOPS\n```",
        "| Memory | 67 GB |",
    ):  # fmt: skip
        assert words in document, words
    assert document.index("fail: slow") < document.index("580.95 |")  # what got worse first


def test_junit_has_a_suite_for_each_node_and_counts(whole: Fleet) -> None:
    root = ET.fromstring(junit.render(whole))
    assert root.attrib == {
        "name": "gpustrap verify", "time": "28912.000", "tests": "13", "failures": "1", "errors": "1", "skipped": "2",
    }  # fmt: skip
    suites = {suite.get("name"): suite for suite in root}
    assert list(suites) == ["rack1-n1", "rack1-n2", "lab-n3", "rack2-n4"]
    failure = suites["rack1-n2"].find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == "GPU 0000:4c:00.0 is 12 % behind the best of this node"
    assert "640 of 735" in (failure.text or "")
    warning = suites["lab-n3"].find("testcase/system-out")
    assert warning is not None
    assert (warning.text or "").startswith("warning: GPU 0000:02:00.0 has 1 of its 16 lanes")
    assert suites["rack2-n4"].find("testcase/error") is not None
    run = {p.get("name"): p.get("value") for p in suites["lab-n3"].iter("property")}
    assert (run["run"], run["simulated"], run["verdict"]) == ("20261201T040000Z-1a2b3c", "true", "warn")
    for suite in root:
        assert int(suite.get("tests", 0)) == len(suite.findall("testcase"))


@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: ascii(t)[:30])
def test_junit_is_xml_whatever_a_node_says(text: str, hostile: Callable[[str], Fleet]) -> None:
    document = junit.render(hostile(text)).encode("utf-8")
    plain = junit.render(hostile("words"))
    assert [e.tag for e in ET.fromstring(document).iter()] == [e.tag for e in ET.fromstring(plain).iter()]


def test_prometheus_has_verdicts_measures_and_what_is_expected(whole: Fleet) -> None:
    lines = prometheus.render(whole).splitlines()
    gpu = 'subject="GPU-00000002-89ab-cdef-0123-456789abcdef",peer=""'
    for line in (
        'gpustrap_node_verified{node="rack1-n1"} 1',
        'gpustrap_node_verified{node="rack1-n2"} 0',
        'gpustrap_node_verified{node="lab-n3"} 1',
        'gpustrap_node_verified{node="rack2-n4"} 0',
        'gpustrap_node_verdict{node="lab-n3",level="burnin",simulated="true"} 1',
        'gpustrap_node_verify_timestamp_seconds{node="lab-n3"} 1796097600',
        'gpustrap_check_verdict{node="rack1-n2",check="gpu-matmul",simulated="false"} 2',
        f'gpustrap_measure{{node="rack1-n2",check="gpu-matmul",measure="matmul-bf16",{gpu},unit="TFLOPS"}} 640',
        f'gpustrap_measure_ratio{{node="rack1-n2",check="gpu-matmul",measure="matmul-bf16",{gpu}}} 0.8767',
    ):
        assert line in lines, line


@pytest.mark.parametrize("text", ["words", *HOSTILE], ids=lambda t: ascii(t)[:30])
def test_prometheus_can_read_it_whatever_a_node_says(text: str, hostile: Callable[[str], Fleet]) -> None:
    fleet = hostile("words")
    (node,) = fleet.nodes
    first = node.checks[1].measures[0].model_copy(update={"subject": text[:200], "unit": text[:16]})
    check = node.checks[1].model_copy(update={"measures": (first, first, *node.checks[1].measures)})
    found = prometheus.render(fleet.model_copy(update={"nodes": (node.model_copy(update={"checks": (check,)}),)}))
    samples = [line for line in found.splitlines() if not line.startswith("# ")]
    assert [line for line in samples if not SAMPLE.fullmatch(line)] == []
    names = [line.rpartition(" ")[0] for line in samples]
    assert len(names) == len(set(names))  # one that is there twice makes the whole file unreadable
    heads = [line.split()[2] for line in found.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads))
    assert found.endswith("\n")


def test_json_is_what_was_found(whole: Fleet) -> None:
    read = json.loads(certificate_json.text(whole))
    assert Fleet.model_validate_json(certificate_json.text(whole)) == whole
    assert [node["verdict"] for node in read["nodes"]] == ["pass", "fail", "warn"]
    assert read["exit_code"] == 12
    assert read["nodes"][1]["checks"][1]["measures"][2]["ratio"] == 0.8767


@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: ascii(t)[:30])
def test_nothing_a_node_says_moves_the_cursor_of_who_shows_a_file(text: str, hostile: Callable[[str], Fleet]) -> None:
    fleet = hostile(text)
    for found in (certificate_json.text(fleet), junit.render(fleet), prometheus.render(fleet)):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", found)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: ascii(t)[:30])
def test_nothing_a_node_says_moves_the_cursor(text: str) -> None:
    change = Change(node="n1", what="check", subject=text, before=text, after=text, worse=True)
    console = Console(file=io.StringIO(), width=200, color_system=None, highlight=False)
    fleet = Fleet.model_construct(changes=(change,), against="old.json")
    console.print(render_changes(fleet))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "✗ worse" in shown
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)


def test_a_fleet_of_no_node_has_not_passed(make_fleet: Callable[..., Fleet]) -> None:
    fleet = make_fleet()
    assert fleet.verdict is Verdict.FAIL
    assert "nothing was checked" in page(fleet)
    assert ET.fromstring(junit.render(fleet)).get("tests") == "0"
    assert prometheus.render(fleet) == ""
