"""A package index and PyTorch's own on loopback, for the real uv; nothing is asked of any other machine."""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpustrap.environments.closure import Closure


class Index:
    """Two directories of empty wheels, served; ``status`` is what every page answers, ``login`` what it wants."""

    def __init__(self, root: Path) -> None:
        self.root, self.status, self.login, self.asked = root, 0, "", list[str]()
        self.url = self.server = None

    @property
    def simple(self) -> str:
        return f"{self.url}/simple"

    @property
    def pytorch(self) -> str:
        return f"{self.url}/whl/cu130"

    def wheel(
        self,
        where: str,
        name: str,
        version: str,
        *requires: str,
        tag: str = "py3-none-any",
        hashed: bool = True,
        yanked: str = "",
        python: str = "",
    ) -> None:
        """Publish one release."""
        info = f"{name}-{version}.dist-info"
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Python: {python}"] if python else []
        lines += [f"Requires-Dist: {text}" for text in requires]
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
            archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
            archive.writestr(f"{info}/RECORD", "")
        file = f"{name}-{version}-{tag}.whl"
        place = self.root / where / name
        place.mkdir(parents=True, exist_ok=True)
        (place / file).write_bytes(buffer.getvalue())
        digest = f"#sha256={hashlib.sha256(buffer.getvalue()).hexdigest()}" if hashed else ""
        more = f' data-yanked="{yanked}"' if yanked else ""
        more += f' data-requires-python="{python.replace(">", "&gt;").replace("<", "&lt;")}"' if python else ""
        with (place / "index.html").open("a") as page:
            page.write(f'<a href="{file.replace("+", "%2B")}{digest}"{more}>{file}</a>\n')


class Handler(SimpleHTTPRequestHandler):
    """Serves the wheels."""

    def __init__(self, *args: Any, index: Index, **more: Any) -> None:
        self.index = index
        super().__init__(*args, directory=str(index.root), **more)

    def do_GET(self) -> None:
        self.index.asked.append(self.path)
        login = self.index.login
        status = self.index.status or (401 if login and self.headers["Authorization"] != login else 0)
        if status:
            self.send_response(status)
            self.send_header("WWW-Authenticate", "Basic")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        super().do_GET()

    def log_message(self, *_args: Any) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """Torch for CUDA 13 and, in the package index, for another; an old numpy beside torch, as PyTorch's index has."""
    monkeypatch.delenv("UV_OFFLINE", raising=False)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    made = Index(tmp_path / "www")
    made.wheel("whl/cu130", "torch", "2.9.1+cu130", "filelock", "numpy")
    made.wheel("whl/cu130", "torchvision", "0.24.1+cu130", "torch==2.9.1", "numpy")
    made.wheel("whl/cu130", "numpy", "9.9")
    made.wheel("simple", "torch", "2.9.1", "filelock")
    made.wheel("simple", "torchvision", "0.24.1", "torch==2.9.1")
    made.wheel("simple", "filelock", "3.1")
    made.wheel("simple", "numpy", "2.0")
    made.wheel("simple", "numpy", "2.1")
    made.wheel("simple", "timm", "1.0", "torchvision", "torch")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, index=made)) as server:
        made.server = server
        made.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield made
        server.shutdown()


@pytest.fixture
def closure(index: Index) -> Any:
    """Makes closures of that index."""

    def make(*requirements: str, **more: Any) -> Closure:
        values = {"name": "torch", "engine": "uv", "python": "3.12", "machine": "x86_64", "glibc": "2.36"}
        return Closure(**{**values, "requirements": requirements, "index": index.simple, **more})

    return make
