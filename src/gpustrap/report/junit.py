"""A verification as JUnit XML: a suite for each node, a case for each check, as CI systems show them."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from gpustrap.errors import Problem
from gpustrap.model.certificate import Certificate, Fleet
from gpustrap.model.check import Check, Verdict
from gpustrap.report.escape import visible

NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, 2.2: all but its characters


def render(fleet: Fleet) -> str:
    """The document. A warning is a case that passed and has something to say: JUnit has no word for it."""
    root = ET.Element("testsuites", {"name": "gpustrap verify", "time": f"{fleet.seconds:.3f}"})
    suites = [_suite(node) for node in fleet.nodes] + [_unverified(problem, fleet) for problem in fleet.problems]
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    root.extend(suites)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(node: Certificate) -> ET.Element:
    verdicts = [check.verdict for check in node.checks]
    suite = ET.Element(
        "testsuite",
        {
            "name": _text(node.node),
            "hostname": _text(node.node),
            "timestamp": _text(node.started.partition("+")[0]),
            "tests": str(len(node.checks)),
            "failures": str(verdicts.count(Verdict.FAIL)),
            "errors": "0",
            "skipped": str(verdicts.count(Verdict.SKIP)),
            "time": f"{sum(check.seconds for check in node.checks):.3f}",
        },
    )
    properties = ET.SubElement(suite, "properties")
    told = {name: str(getattr(node, name)) for name in ("verdict", "level", "run", "tool", "catalog")}
    for name, value in (*told.items(), ("simulated", str(node.simulated).lower())):
        ET.SubElement(properties, "property", {"name": name, "value": _text(value)})
    suite.extend(_case(node.node, check) for check in node.checks)
    return suite


def _case(node: str, check: Check) -> ET.Element:
    name = f"{check.title} (simulated)" if check.simulated else check.title
    case = ET.Element(
        "testcase",
        {"classname": _text(f"{node}.{check.id}"), "name": _text(name), "time": f"{check.seconds:.3f}"},
    )
    next_step = f"Next: {check.remedy}" if check.remedy else ""
    words = "\n".join(filter(None, (check.reason, check.evidence, next_step)))
    if check.verdict is Verdict.FAIL:
        ET.SubElement(case, "failure", {"message": _text(check.reason)}).text = _text(words)
    elif check.verdict is Verdict.SKIP:
        ET.SubElement(case, "skipped", {"message": _text(check.reason)})
    elif words:
        head = "warning: " if check.verdict is Verdict.WARN else ""
        ET.SubElement(case, "system-out").text = _text(head + words)
    return case


def _unverified(problem: Problem, fleet: Fleet) -> ET.Element:
    """A node that could not be checked: an error, so that a pipeline does not take it for passed."""
    name = _text(problem.subject.removeprefix("node "))
    suite = ET.Element(
        "testsuite",
        {
            "name": name,
            "timestamp": _text(fleet.started.partition("+")[0]),
            "time": "0.000",
            "tests": "1",
            "failures": "0",
            "errors": "1",
            "skipped": "0",
        },
    )
    case = ET.SubElement(suite, "testcase", {"classname": name, "name": "The node can be checked"})
    words = "\n".join(filter(None, (problem.message, problem.evidence, problem.remedy and f"Next: {problem.remedy}")))
    ET.SubElement(case, "error", {"type": problem.code, "message": _text(problem.message)}).text = _text(words)
    return suite


def _text(text: str) -> str:
    """What XML can hold, and nobody is deceived by."""
    return NO_XML.sub("�", visible(text))
