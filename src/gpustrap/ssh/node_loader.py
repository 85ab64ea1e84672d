"""Runs on the node (Python 3.8, standard library only): loads the code it is sent and calls its entry.

`payload.ask` sends this text after a sentinel; the one-liner that read it has left ``stream``, the node's stdin, in
its globals. Nothing is written to the node's disk.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import signal
import sys
import traceback
import types
import zlib
from typing import IO, Any


class Importer(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports modules from a dictionary: dotted name -> [is a package, source]."""

    def __init__(self, modules: dict[str, list[Any]]) -> None:
        self.modules = modules

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """Find a module that came with the bundle."""
        if fullname not in self.modules:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=self.is_package(fullname))

    def get_source(self, fullname: str) -> str:
        """The source text."""
        return str(self.modules[fullname][1])

    def get_code(self, fullname: str) -> types.CodeType:
        """Compiled under a name that says in a traceback where it came from."""
        return compile(self.get_source(fullname), f"<gpustrap {fullname}>", "exec", dont_inherit=True)

    def is_package(self, fullname: str) -> bool:
        """Whether it is a package."""
        return bool(self.modules[fullname][0])


def serve(stream: IO[bytes], out: IO[bytes]) -> None:
    """Read header, code and request; answer with the marker, the length and the JSON of the response."""
    header = json.loads(stream.readline().decode("utf-8"))
    modules = json.loads(zlib.decompress(stream.read(header["code"])).decode("utf-8"))
    request = json.loads(stream.read(header["request"]).decode("utf-8"))
    # The controller gives up at the same time; a program that hangs must not stay behind on the node.
    signal.alarm(header["seconds"])
    sys.meta_path.insert(0, Importer(modules))
    sys.stdout = sys.stderr  # a stray print must not end up in the answer
    try:
        response = importlib.import_module(header["entry"]).main(request)
        body = json.dumps(response).encode("utf-8")
    except Exception:  # noqa: BLE001 - whatever it is, the controller is told
        problem = {"code": "node-program-failed", "message": traceback.format_exc()[-4000:]}
        body = json.dumps({"ok": False, "error": problem}).encode("utf-8")
    out.write(f"\n{header['marker']} {len(body)}\n".encode("ascii") + body)
    out.flush()


if "stream" in globals():
    serve(globals()["stream"], sys.stdout.buffer)
