"""The stand-in package index as a node sees it, and what can be wrong with it, seen by plain urllib."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from types import ModuleType

import pytest

import gpustrap.lab
from gpustrap.errors import GpustrapError
from gpustrap.lab.standins import frameworks_faults
from gpustrap.lab.standins.frameworks_index import Package, put

JSON = "application/vnd.pypi.simple.v1+json"
PACKAGES = (
    Package("torch", "2.14.0+cu130", "cp312-cp312-manylinux_2_28_x86_64", ("filelock",), requires_python=">=3.10"),
    Package("torch", "2.15.0+cu130", "cp312-cp312-manylinux_2_28_x86_64"),
    Package("filelock", "4.3.1"),
)


def mirror() -> ModuleType:
    path = Path(gpustrap.lab.__file__).parent / "files" / "mirror.py"
    spec = importlib.util.spec_from_file_location("mirror", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.Handler.log_message = lambda *_words: None
    return module


class Served:
    """An index, and what it is made from."""

    def __init__(self, place: Path) -> None:
        self.sound, self.served = place / "sound", place / "srv" / "pypi"
        put(self.sound / "simple", PACKAGES)
        shutil.copytree(self.sound, self.served)
        self.server = mirror().server(str(place / "srv"), "127.0.0.1", 0)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def get(self, path: str, accept: str = "*/*") -> tuple[bytes, Message]:
        url = f"http://127.0.0.1:{self.server.server_port}/pypi/simple/{path}"
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=10) as answer:
            return answer.read(), answer.headers

    def files(self) -> dict[str, dict[str, object]]:
        return {one["filename"]: one for one in json.loads(self.get("torch/", JSON)[0])["files"]}

    def spoil(self, *texts: str) -> None:
        frameworks_faults.apply(self.sound, self.served, texts)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Served]:
    found = Served(tmp_path)
    yield found
    found.server.shutdown()
    found.server.server_close()


OLD = "torch-2.14.0+cu130-cp312-cp312-manylinux_2_28_x86_64.whl"
NEW = "torch-2.15.0+cu130-cp312-cp312-manylinux_2_28_x86_64.whl"


def test_pages_have_hashes_metadata_and_pythons(index: Served) -> None:
    page, headers = index.get("torch/")
    assert headers["Content-Type"].startswith("text/html")
    found, headers = index.get("torch/", JSON)
    assert headers["Content-Type"] == JSON
    row = index.files()[OLD]
    wheel, _headers = index.get(f"torch/{row['url']}")
    metadata, _headers = index.get(f"torch/{row['url']}.metadata")
    assert row["hashes"] == {"sha256": hashlib.sha256(wheel).hexdigest()}
    assert row["core-metadata"] == {"sha256": hashlib.sha256(metadata).hexdigest()}
    assert row["requires-python"] == ">=3.10"
    assert f"#sha256={hashlib.sha256(wheel).hexdigest()}".encode() in page
    assert b"Requires-Dist: filelock\n" in metadata
    assert json.loads(found)["versions"] == ["2.14.0+cu130", "2.15.0+cu130"]
    assert {one["name"] for one in json.loads(index.get("", JSON)[0])["projects"]} == {"filelock", "torch"}


def test_index_gone(index: Served) -> None:
    index.spoil("index=gone")
    with pytest.raises(urllib.error.HTTPError, match="503"):
        index.get("torch/")
    index.spoil()
    assert index.get("torch/")


def test_wrong_sum(index: Served) -> None:
    index.spoil("wrong-sum=torch=2.14.0+cu130")
    for name, row in index.files().items():
        wheel, _headers = index.get(f"torch/{row['url']}")
        right = row["hashes"] == {"sha256": hashlib.sha256(wheel).hexdigest()}
        assert right == (name == NEW)
    index.spoil()
    assert all(
        row["hashes"] == {"sha256": hashlib.sha256(index.get(f"torch/{row['url']}")[0]).hexdigest()}
        for row in index.files().values()
    )


def test_vanished(index: Served) -> None:
    index.spoil("vanished=torch=2.15.0+cu130")
    assert list(index.files()) == [OLD]
    index.spoil()
    assert list(index.files()) == [OLD, NEW]


@pytest.mark.parametrize("text", ["index=slow", "wrong-sum=", "gone", "vanished=torhc", "wrong-sum=torch=9"])
def test_what_is_no_fault_is_refused_and_nothing_changes(index: Served, text: str) -> None:
    with pytest.raises(GpustrapError) as refused:
        index.spoil(text)
    assert {problem.code for problem in refused.value.problems} == {"standins-no-such-fault"}
    assert list(index.files()) == [OLD, NEW]
    assert [path.name for path in index.served.parent.iterdir()] == ["pypi"]
