"""The same thing on many nodes at a time; what one node does to its thread never stops the others."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from gpustrap.errors import GpustrapError
from gpustrap.model.node import Node
from gpustrap.model.progress import SEE_BELOW, Progress, Step, silent

T = TypeVar("T")


def for_each(
    nodes: Iterable[Node], function: Callable[[Node], T], *, forks: int = 20, progress: Progress = silent
) -> dict[str, T | GpustrapError]:
    """Call `function` for every node, at most `forks` at a time.

    A node that ends in a `GpustrapError` has it as its result, and its progress line says that it failed. Any
    other exception is a fault of ours: the first one is raised after all nodes are done. Ctrl-C ends at once: no
    further node is begun, and the threads, being daemons, do not hold up the program's end.

    Returns:
        Node name to result, in the order of `nodes`.
    """
    todo: queue.SimpleQueue[Node] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[str, T | BaseException]] = queue.SimpleQueue()
    names = []
    for node in nodes:
        names.append(node.name)
        todo.put(node)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            try:
                node = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((node.name, function(node)))
            except BaseException as error:  # noqa: BLE001 - handed to the main thread
                done.put((node.name, error))

    for _ in range(min(forks, len(names))):
        threading.Thread(target=work, daemon=True).start()
    results: dict[str, T | BaseException] = {}
    try:
        while len(results) < len(names):
            try:
                name, result = done.get(timeout=0.5)  # a signal that another thread receives does not wake this one
            except queue.Empty:
                continue
            results[name] = result
            if isinstance(result, GpustrapError):
                progress(Step(name, SEE_BELOW, done=True, ok=False))
    finally:
        stop.set()
    return {name: _raise_faults(results[name]) for name in names}


def _raise_faults(result: T | BaseException) -> T | GpustrapError:
    if isinstance(result, BaseException) and not isinstance(result, GpustrapError):
        raise result
    return result
