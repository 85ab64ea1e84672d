"""Decides about a reboot from the node's facts, and sees it through. What runs on the node is gpustrap_boot."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

# Ansible loads this file once and forks a worker for every node: what is read here is read once.
try:
    from gpustrap.commands.inspect import validate
    from gpustrap.errors import GpustrapError
    from gpustrap.model.facts import Facts
    from gpustrap.model.reboot import Decision, Need, Wanted, after_reboot, decide_driver, decide_kernel, decide_removal
except ImportError as error:
    MISSING = str(error)
else:
    MISSING = ""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
DOWN = 300  # seconds for the units of a node to stop; systemd gives each 90
SETTLE = 300  # seconds for its units to start once it answers; whatever they say then is for verify
LOAD = 60  # seconds for a driver that udev may still be loading; eight GPUs take their time
PAUSE = 5  # seconds between two looks
MISSED = "that was asked for before, and the boot since then went by with nobody there"
STATES = {  # of what is returned, by what was decided
    "none": "fits",
    "reboot": "reboot-needed",
    "person": "person",
    "useless": "useless",
    "next-boot": "next-boot",
}


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible is untyped
    """See the documentation of the module gpustrap_reboot."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: object = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Decide, and reboot the node of this task where that helps and is allowed."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, given = self.validate_argument_spec(
            argument_spec={
                "stage": {"type": "str", "choices": ["kernel", "driver", "removal"], "required": True},
                "allowed": {"type": "bool", "default": False},
                "minutes": {"type": "int", "default": 30},
                "version": {"type": "str", "default": ""},
                "mok": {"type": "bool", "default": False},
                "staged": {"type": "bool", "default": False},
                "missed": {"type": "bool", "default": False},
            }
        )
        if MISSING:
            raise AnsibleActionFail(_not_installed())
        variables = task_vars or {}
        node = str(variables["inventory_hostname"])
        self._given, self._node, self._variables = given, node, variables
        facts, noted = self._look()
        decision = self._decide(facts)
        if decision.need is Need.REBOOT and not self._task.check_mode:
            here = self._is_controller(facts)
            if here or not given["allowed"]:
                return result | self._told(decision, "reboot-needed", controller=here)
            return result | self._rebooted(facts, decision)
        if decision.need is Need.NONE and given["stage"] in noted and not self._task.check_mode:
            self._on_node(action="forget", stage=given["stage"])
        return result | self._told(decision, STATES[decision.need.value])

    def _decide(self, facts: Facts) -> Decision:
        given = self._given
        if given["stage"] == "kernel":
            return decide_kernel(facts)
        if given["stage"] == "removal":
            return decide_removal(facts)
        return decide_driver(facts, Wanted(given["version"], mok=given["mok"]))

    def _told(
        self, decision: Decision, state: str, *, changed: bool = False, controller: bool = False
    ) -> dict[str, Any]:
        """The task's result: fails where what is installed is wrong, and where that is not only foreseen."""
        if controller:
            alone = "gpustrap apply --local --reboot" if self._connection.transport == "local" else ""
            again = alone or "sudo systemctl reboot, then gpustrap apply {node}"
            removed = self._given["stage"] == "removal"
            decision = replace(decision, remedy="sudo systemctl reboot" if removed else again)
        if state == "person" and self._given["missed"]:
            decision = replace(decision, reason=f"{decision.reason}; {MISSED}")
        boot = {
            "stage": self._given["stage"],
            "state": state,
            "code": decision.code,
            "reason": decision.reason,
            "evidence": decision.evidence,
            "remedy": decision.next_step(self._node),
            "target": decision.target,
            "staged": bool(self._given["staged"]) and state == "person",
        }
        told: dict[str, Any] = {"changed": changed, "boot": boot, "driver_loaded": decision.loaded}
        if self._task.check_mode and state in {"reboot-needed", "useless", "person"}:
            told["msg"] = f"would follow: {decision.reason}"
        elif state in {"reboot-needed", "person", "next-boot"}:  # gpustrap reports it; plain Ansible has only this
            self._display.warning(f"{self._node}: {decision.reason}. Next: {boot['remedy']}")
        elif state == "useless":
            told |= {"failed": True, "msg": "\n".join(p for p in (decision.reason, decision.evidence) if p)}
        return told

    def _rebooted(self, facts: Facts, decision: Decision) -> dict[str, Any]:
        """Reboot the node, wait until it is back, and look whether that helped."""
        begun = self._on_node(action="begin", stage=self._given["stage"], target=decision.target, why=decision.reason)
        if begun.get("failed"):
            return self._told(after_reboot(decision, str(begun.get("msg", ""))), "useless")
        start = time.monotonic()
        if gone := self._wait(facts.boot_id):
            return gone
        self._settle()
        again = self._decide(self._look()[0])
        loading = time.monotonic()
        while again.need is Need.REBOOT and time.monotonic() - loading < LOAD:
            time.sleep(PAUSE)
            again = self._decide(self._look()[0])
        if again.need is Need.REBOOT:
            return self._told(after_reboot(again, "it was rebooted, and that did not help"), "useless", changed=True)
        state = STATES[again.need.value] if again.need in {Need.PERSON, Need.USELESS} else "rebooted"
        if state == "rebooted":
            self._on_node(action="forget", stage=self._given["stage"])
        told = self._told(again, state, changed=True)
        if state == "rebooted":
            seconds = round(time.monotonic() - start)
            told["boot"] |= {"code": decision.code, "reason": decision.reason, "seconds": seconds}
        return told

    def _wait(self, before: str) -> dict[str, Any]:
        """Wait for another boot id; what to say where none comes, else nothing.

        An answer that is no boot id counts as none: the word of a shell that is shutting down was taken for a new boot
        (https://github.com/ansible/ansible/issues/78007).
        """
        start, words, seen_down = time.monotonic(), "", False
        while (waited := time.monotonic() - start) < self._given["minutes"] * 60:
            time.sleep(PAUSE)
            try:
                now = self._boot_id()
            except AnsibleError as error:
                words, seen_down = str(error), True
                continue
            if now and now != before:
                return {}
            if now == before and not seen_down and waited > DOWN:
                break
        minutes = self._given["minutes"]
        if not seen_down:
            return self._unreachable(
                f"it was told to reboot {waited / 60:.0f} min ago and is still up",
                "on the node: systemd-inhibit --list; systemctl list-jobs; then gpustrap apply --reboot {node}",
                unreachable=False,
            )
        return self._unreachable(
            f"it did not come back within {minutes} min of its reboot\n{_last(words)}",
            "look at the screen or BMC console of {node}. A server with many GPUs can need longer: "
            f"gpustrap_reboot_minutes is {minutes}. Once it is back: gpustrap apply {{node}}",
        )

    def _unreachable(self, message: str, remedy: str, *, unreachable: bool = True) -> dict[str, Any]:
        boot = {
            "stage": self._given["stage"],
            "state": "lost",
            "code": "reboot-lost",
            "reason": message.partition("\n")[0],
            "remedy": remedy.replace("{node}", self._node),
        }
        ended = {"unreachable": True} if unreachable else {"failed": True}
        return {"changed": True, "msg": message.strip(), "boot": boot, "driver_loaded": False, **ended}

    def _boot_id(self) -> str:
        """The node's boot id over a new connection; a kept one may end at a machine that is going down."""
        self._connection.reset()
        answer = self._low_level_execute_command(f"cat {BOOT_ID}", sudoable=False)
        found = ID.fullmatch(str(answer.get("stdout", "")).strip())
        return found.group(0) if found else ""

    def _settle(self) -> None:
        """Wait until systemd has started everything, drivers among it; a unit that fails is for verify to say."""
        try:
            self._low_level_execute_command(f"timeout {SETTLE} systemctl is-system-running --wait", sudoable=False)
        except AnsibleConnectionFailure:
            self._connection.reset()

    def _look(self) -> tuple[Facts, list[str]]:
        answer = self._on_node(action="read")
        if answer.get("failed"):
            raise AnsibleActionFail(str(answer.get("msg", "")), result=answer)
        facts = validate(self._node, answer["facts"])
        if isinstance(facts, GpustrapError):
            raise AnsibleActionFail(str(facts.problems[0].evidence or facts.problems[0].message))
        return facts, list(answer.get("noted") or [])

    def _on_node(self, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - a module's arguments
        answer: dict[str, Any] = self._execute_module("gpustrap_boot", module_args=arguments, task_vars=self._variables)
        return answer

    def _is_controller(self, facts: Facts) -> bool:
        """Whether the node is this machine, however it is reached: a reboot would end this very run."""
        try:
            ours = BOOT_ID.read_text(encoding="ascii").strip()
        except OSError:
            ours = ""
        return self._connection.transport == "local" or (bool(ours) and facts.boot_id == ours)


def _last(words: str) -> str:
    lines = words.strip().splitlines()
    return f"its last answer: {lines[-1][:300]}" if lines else ""


def _not_installed() -> str:
    checkout = Path(__file__).resolve().parents[4]
    what = checkout if (checkout / "pyproject.toml").is_file() else "gpustrap"
    return (
        f"gpustrap_reboot: gpustrap cannot be imported by the Python that runs Ansible, {sys.executable}: {MISSING}\n"
        f"Next: {sys.executable} -m pip install {what}"
    )
