"""A node's directories, and a small package index on loopback with wheels made here and the real uv.

The index can be slow, gone, or lie.
"""

from __future__ import annotations

import base64
import hashlib
import io
import subprocess
import tarfile
import tempfile
import threading
import time
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import uv

UV_VERSION = "0.0.1"
UV_FILE = f"uv-{UV_VERSION}-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
PYTHON = Path("/usr/bin/python3")
VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


class Index:
    """Serves a directory as PEP 503 has it.

    Attributes:
        url: Its address.
        asked: Paths that were asked for.
        slow: Part of a path -> seconds that an answer to it is held back.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.asked: list[str] = []
        self.slow: dict[str, float] = {}
        index = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                index.asked.append(self.path)
                time.sleep(sum(seconds for part, seconds in index.slow.items() if part in self.path))
                super().do_GET()

            def log_message(self, *_words: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(directory)))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"

    def close(self) -> None:
        """End it; nothing answers there any more."""
        self.server.shutdown()
        self.server.server_close()

    def wheel(self, name: str, version: str, code: str = "", requires: tuple[str, ...] = ()) -> str:
        """Put a wheel there; its line of a lock file."""
        info = f"{name}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += "".join(f"Requires-Dist: {one}\n" for one in requires)
        files = {
            f"{name}/__init__.py": f"version = {version!r}\n{code}",
            f"{info}/METADATA": metadata,
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        files[f"{info}/RECORD"] = "".join(record(path, text) for path, text in files.items()) + f"{info}/RECORD,,\n"
        path = self._place(name) / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for file, text in files.items():
                archive.writestr(file, text)
        return f"{name}=={version} --hash=sha256:{self._list(path)}"

    def source(self, name: str, version: str) -> str:
        """Put a package there that has no wheel, with a build backend of its own; its line of a lock file."""
        self.wheel(name, version)
        built = self._place(name) / f"{name}-{version}-py3-none-any.whl"
        content = base64.b64encode(built.read_bytes())
        files = {
            "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
            f'[project]\nname = "{name}"\nversion = "{version}"\n',
            "backend.py": "import base64\ndef build_wheel(directory, *_more):\n"
            f"    open(directory + '/{built.name}', 'wb').write(base64.b64decode({content!r}))\n"
            f"    return '{built.name}'\n",
            "PKG-INFO": f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n",
        }
        (built.parent / "index.html").unlink()
        path = built.with_name(f"{name}-{version}.tar.gz")
        with tarfile.open(path, "w:gz") as archive:
            for file, text in files.items():
                member = tarfile.TarInfo(f"{name}-{version}/{file}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
        return f"{name}=={version} --hash=sha256:{self._list(path)}"

    def uv(self) -> dict[str, str]:
        """Put uv there, the real one; what a lock has of it."""
        path = self._place("uv") / UV_FILE
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(uv.find_uv_bin(), f"uv-{UV_VERSION}.data/scripts/uv")
        return {"version": UV_VERSION, "file": UV_FILE, "sha256": self._list(path)}

    def _place(self, name: str) -> Path:
        place = self.directory / "simple" / name
        place.mkdir(parents=True, exist_ok=True)
        return place

    def _list(self, path: Path) -> str:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        page = path.parent / "index.html"
        rest = page.read_text() if page.exists() else "<!DOCTYPE html>\n"
        page.write_text(f'{rest}<a href="{path.name}#sha256={digest}">{path.name}</a>\n')
        return digest


def record(path: str, text: str) -> str:
    """A file's line of RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(text)}\n"


def put_uv(base: Path) -> None:
    """The real uv as an earlier run has fetched it."""
    place = base / "uv/0.0.1"
    place.mkdir(parents=True)
    (place / "uv").symlink_to(uv.find_uv_bin())


class Site:
    """A node's directories, a package index, and the role's arguments."""

    def __init__(self, run, root: Path, index: Index) -> None:
        self.run, self.root, self.index = run, root, index
        self.prefix = root / "opt/gpustrap/envs"
        self.kernels = root / "kernels"
        self.uv = {"version": "0.0.1", "file": "uv.whl", "sha256": "0" * 64}
        self.python = subprocess.run([PYTHON, "-c", VERSION], capture_output=True, text=True).stdout.strip()
        self.texts: dict[str, str] = {}

    def environment(self, name: str, *lines: str, **more) -> dict:
        """An environment of the lock, with its lock file."""
        text = "# Written by gpustrap plan\n" + "".join(f"{line}\n" for line in lines)
        digest = hashlib.sha256(text.encode()).hexdigest()
        self.texts[digest] = text
        found = {
            "name": name,
            "framework": "python",
            "version": "",
            "variant": "",
            "engine": "uv",
            "python": self.python,
            "interpreter": "distribution",
            "users": "all",
            "jupyter": False,
            "requirements": [],
            "constraints": [],
            "index": "",
            "channels": [],
            "cuda": "",
            "compute": [],
            "modules": [line.partition("=")[0] for line in lines if "://" not in line],
            "gpus": [],
            "size": 0,
            "lock": f"environments/{name}.txt",
            "digest": digest,
        }
        return {**found, **more}

    def arguments(self, *environments: dict, locks: bool = True, **more) -> dict:
        return {
            "environments": list(environments),
            "prefix": str(self.prefix),
            "uv": self.uv,
            "index": self.index.url,
            "base": str(self.root / "opt/gpustrap"),
            "cache": str(self.root / "cache"),
            "kernels": str(self.kernels),
            "conda": str(self.root / "conda"),
            "locks": {e["name"]: self.texts[e["digest"]] for e in environments} if locks else {},
            "wait": 5,
            **more,
        }

    def apply(self, *environments: dict, check: bool = False, **more) -> dict:
        return self.run("gpustrap_environments", check=check, **self.arguments(*environments, **more))

    def says(self, name: str, code: str) -> str:
        """What the current Python of an environment prints."""
        python = self.prefix / name / "current/bin/python"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, env={}, cwd="/")
        return (done.stdout or done.stderr).strip()

    def version(self, module: str = "tiny", name: str = "torch") -> str:
        return self.says(name, f"import {module}; print({module}.version)")

    def links(self, name: str = "torch") -> dict[str, str]:
        return {p.name: str(p.readlink()) for p in sorted((self.prefix / name).iterdir()) if p.is_symlink()}

    def directories(self, name: str = "torch") -> list[str]:
        return sorted(p.name for p in (self.prefix / name).iterdir() if not p.is_symlink())


@pytest.fixture
def site(run, tmp_path):
    if not PYTHON.exists():
        pytest.skip("the distribution's Python is not here")
    # Not below tmp_path: pytest keeps that from other users, and an environment is for them.
    with tempfile.TemporaryDirectory(prefix="gpustrap-test-") as root:
        Path(root).chmod(0o755)
        index = Index(tmp_path)
        put_uv(Path(root) / "opt/gpustrap")
        yield Site(run, Path(root), index)
        index.close()
