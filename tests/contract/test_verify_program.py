"""What verify runs on a node asks nothing of it but Python 3.8, and loads through the loader as it is sent."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from gpustrap.commands.probe import NODE_PACKAGE
from gpustrap.ssh import node_loader, payload
from gpustrap.verify import protocol

FILES = sorted(protocol.NODE_PACKAGE.rglob("*.py"))
FRAMEWORKS = {"jax", "tensorflow", "torch", "vllm"}  # of an environment's own Python, in the smoke scripts alone
PYTHONS = sorted(Path.home().glob(".pyenv/versions/3.*.*/bin/python")) or [Path(sys.executable)]
SUPPORTED = [p for p in PYTHONS if int(p.parts[-3].split(".")[1]) >= 8] if len(PYTHONS) > 1 else PYTHONS


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(protocol.NODE_PACKAGE)))
def test_it_is_python_38_and_needs_the_standard_library_alone(file: Path) -> None:
    allowed = {*sys.stdlib_module_names, NODE_PACKAGE.name, *(FRAMEWORKS if file.parent.name == "smoke" else ())}
    assert imported(ast.parse(file.read_text(), feature_version=(3, 8))) <= allowed


@pytest.mark.parametrize("python", SUPPORTED, ids=lambda p: p.parts[-3])
def test_it_answers_as_it_is_sent(python: Path) -> None:
    """Through the loader, from memory: with the scripts of an environment's check, which are written out from there."""
    code = payload.bundle(protocol.NODE_PACKAGE, NODE_PACKAGE)
    args = {"prefix": "/nowhere", "name": "torch", "digest": "0" * 64, "compute": [], "gpus": [], "framework": "jax"}
    checks = {"environment-torch": args}
    request = json.dumps({"verb": "verify", "args": {"run_id": "r", "seconds": 60, "checks": checks}}).encode()
    header = {"code": len(code), "request": len(request), "entry": protocol.ENTRY, "marker": "MARK", "seconds": 60}
    loader = Path(str(node_loader.__file__)).read_text()
    program = f"import sys; stream = sys.stdin.buffer; exec({loader!r})"
    done = subprocess.run(
        [python, "-IS", "-c", program], input=json.dumps(header).encode() + b"\n" + code + request, capture_output=True
    )
    answer = json.loads(done.stdout.split(b"\n", 2)[2])
    if not answer["ok"]:  # another verification may run on this machine
        assert answer["error"]["code"] == "busy", answer
        return
    assert answer["data"]["checks"][0]["reason"] == "it is not there"


@pytest.mark.parametrize("python", SUPPORTED, ids=lambda p: p.parts[-3])
def test_smoke_scripts_are_written_from_memory(python: Path, tmp_path: Path) -> None:
    modules = zlib.decompress(payload.bundle(protocol.NODE_PACKAGE, NODE_PACKAGE)).decode()
    program = f"""
import json, pathlib, sys
exec({Path(str(node_loader.__file__)).read_text()!r})
sys.meta_path.insert(0, Importer(json.loads(sys.stdin.read())))
from gpustrap_verify import smoke_files
smoke_files.write(pathlib.Path(sys.argv[1]))
"""
    subprocess.run([python, "-IS", "-c", program, tmp_path], input=modules, text=True, check=True)
    here = {f.name: f.read_text() for f in (protocol.NODE_PACKAGE / "smoke").glob("*.py")}
    assert {f.name: f.read_text() for f in (tmp_path / "smoke").iterdir()} == here
