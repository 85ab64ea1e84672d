"""A node whose Python is too new for the ansible-core of this machine."""

from __future__ import annotations

import pytest

from gpustrap.catalog.schema_stack import ControllerPython
from gpustrap.commands import controller
from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import Facts, KernelFacts, OsFacts
from gpustrap.resolve.controller import controller_too_old


def row(release: str, newest: str, own: str) -> ControllerPython:
    return ControllerPython(
        ansible_core=release,
        node_python_max=newest,
        controller_python=own,
        source="a source of this test",
        checked="2026-11-30",
        confidence="verified",
    )


ROWS = (row("2.19", "3.13", "3.11"), row("2.20", "3.14", "3.12"), row("2.21", "3.15", "3.12"))


@pytest.mark.parametrize(
    ("node", "here", "refused"),
    [
        ("3.14.3", "2.19.14", True),
        ("3.14", "2.19", True),
        ("3.13.9", "2.19.14", False),
        ("3.8.10", "2.19.14", False),
        ("3.14.3", "2.20.1", False),
        ("3.15.0", "2.20.1", True),
        ("3.16", "2.30.0", True),  # a release we know nothing of is as good as the newest we know
        ("3.14", "2.18.1", False),  # nothing is known of that one
        ("", "2.19.14", False),
        ("so new", "2.19.14", False),
    ],
)
def test_the_release_decides(node: str, here: str, refused: bool) -> None:
    assert (controller_too_old("n1", node, here, ROWS) is not None) is refused


def test_the_refusal_names_both_versions_and_the_way_out() -> None:
    problem = controller_too_old("n1", "3.14.3", "2.19.14", ROWS)
    assert problem is not None
    assert (problem.code, problem.exit_code, problem.subject) == ("controller-too-old", ExitCode.REFUSED, "node n1")
    assert problem.message == "its Python is 3.14, too new for the ansible-core 2.19.14 of this machine"
    assert problem.evidence == "ansible-core 2.19 works with nodes up to Python 3.13"
    assert "ansible-core 2.20 or newer, which needs Python 3.12 or newer here" in problem.remedy
    beyond = controller_too_old("n1", "3.20", "2.19.14", ROWS)
    assert beyond is not None
    assert beyond.remedy == "update gpustrap, for an ansible-core that can"
    assert controller_too_old("n1", "3.14.3", "2.19.14", ()) is None


def test_a_probe_that_did_not_say_its_python_ran_under_the_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(node_python: str, os_id: str) -> str:
        facts = Facts(
            os=OsFacts(id=os_id, version_id="13", architecture="x86_64", python=node_python),
            kernel=KernelFacts(running="6"),
        )
        controller.controller_problem("n1", facts)
        return asked[-1]

    asked: list[str] = []
    monkeypatch.setattr(controller, "controller_too_old", lambda _name, python, *_rest: asked.append(python))
    assert [ask("3.14.1", "debian"), ask("", "debian"), ask("", "plan9")] == ["3.14.1", "3.13", ""]


def test_the_installed_release_is_read() -> None:
    assert controller.ansible_core().startswith("2.")
