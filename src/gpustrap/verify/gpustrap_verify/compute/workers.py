"""One process for each GPU: one that hangs, or takes its process down, costs only itself.

They are forks of this process, so that they need no file on the node; CUDA must not have been started before.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[[str], None]
    Job = Callable[[Step], dict[str, Any]]

PATIENCE = 5  # seconds for a killed process to end: one that does not is stuck in the kernel
MOST_BYTES = 1 << 20
# As nvidia-smi numbers them; and compiled kernels are not kept in anybody's home
ENVIRONMENT = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_CACHE_DISABLE": "1"}


class Told(TypedDict):
    """What went wrong in a job."""

    code: int
    words: str


@dataclass(frozen=True)
class User:
    """Who does the work; the numbers of its user, its group and its further groups."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


@dataclass
class Answer:
    """How a job ended.

    Attributes:
        data: What it answered; empty where it did not.
        problem: Why it did not, in words; empty where it did.
        code: The CUDA error, where one was the reason.
        last: The last step that it told.
        hung: It was stopped for time.
        stuck: It could not even be killed.
    """

    data: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    code: int = 0
    last: str = ""
    hung: bool = False
    stuck: bool = False


@dataclass
class _Worker:
    pid: int
    pipe: int
    said: bytearray = field(default_factory=bytearray)


def run(
    jobs: Mapping[str, tuple[Mapping[str, str], Job]], seconds: float, user: User | None = None
) -> dict[str, Answer]:
    """Do all jobs at once.

    Args:
        jobs: By name: environment variables, and what to do with them set; it is given a way to tell its steps.
        seconds: For all of them.
        user: Who does it; none for who we are.
    """
    workers = {name: _start(environment, job, user) for name, (environment, job) in jobs.items()}
    end = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for worker in workers.values():
            selector.register(worker.pipe, selectors.EVENT_READ, worker)
        while selector.get_map() and time.monotonic() < end:
            for key, _ in selector.select(end - time.monotonic()):
                data = os.read(key.fd, 65536)
                key.data.said += data
                if not data or len(key.data.said) > MOST_BYTES:
                    selector.unregister(key.fd)
        late = {key.data.pid for key in selector.get_map().values()}
    for worker in workers.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
    return {name: _answer(worker, seconds, late=worker.pid in late) for name, worker in workers.items()}


def _start(environment: Mapping[str, str], job: Job, user: User | None) -> _Worker:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return _Worker(pid, reading)
    try:  # from here on in the child, which never returns
        _close_all_but(writing)
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # of whoever called us
        os.environ.update({**ENVIRONMENT, **environment})
        if user:
            os.setgroups(user.groups)
            os.setgid(user.gid)
            os.setuid(user.uid)
        _work(job, writing)
    finally:
        os._exit(0)


def _close_all_but(pipe: int) -> None:
    """One that is stuck in the kernel must hold nothing of its parent: no lock, and no pipe that somebody reads."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number > 2 and number != pipe:
            with contextlib.suppress(OSError):  # the one that listed them is gone
                os.close(number)


def _work(job: Job, pipe: int) -> None:
    def send(kind: str, value: object) -> None:
        os.write(pipe, json.dumps({kind: value}).encode() + b"\n")

    try:
        send("data", job(lambda step: send("step", step)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this job's answer
        told: Told = {"code": getattr(error, "code", 0), "words": str(error) or type(error).__name__}
        send("error", told)


def _answer(worker: _Worker, seconds: float, *, late: bool) -> Answer:
    status = _wait(worker.pid)
    os.close(worker.pipe)
    answer = Answer()
    for line in worker.said.splitlines():
        with contextlib.suppress(ValueError):  # cut off
            told = json.loads(line)
            answer.last = told.get("step", answer.last)
            answer.data = told.get("data", answer.data)
            if "error" in told:
                answer.code, answer.problem = told["error"]["code"], told["error"]["words"]
    if answer.data or answer.problem:
        return answer
    if late:
        answer.problem = f"stopped after {seconds:.0f} s"
        answer.hung, answer.stuck = True, status is None
    elif status is not None and os.WIFSIGNALED(status):
        answer.problem = f"the process was ended by signal {os.WTERMSIG(status)}"
    else:
        answer.problem = "the process ended without an answer"
    return answer


def _wait(pid: int) -> int | None:
    """The status of a process that was killed; none where it does not end."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.02)
    return None
