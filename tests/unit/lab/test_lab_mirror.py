"""The lab's web server: paths as apt writes them, what is hidden, and a part of it that is out of order."""

from __future__ import annotations

import http.client
import importlib.util
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gpustrap.lab

PROGRAM = Path(gpustrap.lab.__file__).parent / "files" / "mirror.py"


@pytest.fixture
def status(tmp_path: Path) -> Iterator[Callable[[str], int]]:
    """The status of a path that is sent as it is written."""
    spec = importlib.util.spec_from_file_location("mirror", PROGRAM)
    assert spec
    assert spec.loader
    mirror = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mirror)
    mirror.Handler.log_message = lambda *_words: None
    for name in ("debian/a.deb", "debian/.sound/a.deb", "pypi/a.whl", "pypi/.gone"):
        path = tmp_path / "srv" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "secret").write_text("x")
    server = mirror.server(str(tmp_path / "srv"), "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def ask(path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        connection.request("GET", path)
        return connection.getresponse().status

    yield ask
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/debian/a.deb", 200),
        ("/debian/./a.deb", 200),  # as apt asks in a repository without suites
        ("/debian/b.deb", 404),
        ("/debian/.sound/a.deb", 404),
        ("/debian/%2e%2e/.sound/a.deb", 404),
        ("/../secret", 404),
        ("/debian/../../secret", 404),
        ("/pypi/a.whl", 503),
    ],
)
def test_paths(status: Callable[[str], int], path: str, wanted: int) -> None:
    assert status(path) == wanted
