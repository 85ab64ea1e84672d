"""The real solver of conda's packages against a channel on this machine."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile

import pytest
from rattler import MatchSpec

from gpustrap.catalog.loader import load_catalog
from gpustrap.environments.closure import ClosureError
from gpustrap.environments.lock import compile_closure
from gpustrap.environments.text import packages

pytest.importorskip("rattler", reason="py-rattler solves environments of conda; pip install .")

PACKAGES = (
    ("python", "3.11.9", ()),
    ("python", "3.12.1", ()),
    ("numpy", "2.0", ("python",)),
    ("numpy", "2.1", ("python",)),
    ("pytorch", "2.13.0", ("__cuda >=12", "numpy", "python >=3.12,<3.13.0a0")),
    ("later", "1.0", ("__glibc >=2.39,<3.0.a0",)),
)


@pytest.fixture(scope="module")
def channel(tmp_path_factory):
    """A channel of packages without content."""
    from rattler.index import index_fs

    place = tmp_path_factory.mktemp("channel")
    for subdir in ("noarch", "linux-64"):
        (place / subdir).mkdir()
    for name, version, depends in PACKAGES:
        index = {"name": name, "version": version, "build": "0", "build_number": 0, "depends": depends}
        content = json.dumps(index | {"subdir": "noarch", "noarch": "generic"}).encode()
        with tarfile.open(place / "noarch" / f"{name}-{version}-0.tar.bz2", "w:bz2") as archive:
            member = tarfile.TarInfo("info/index.json")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    asyncio.run(index_fs(place))
    return f"file://{place}"


@pytest.fixture
def conda(closure, channel):
    """Makes closures of that channel."""

    def make(*requirements, **more):
        return closure(
            *requirements, **{"engine": "conda", "index": "", "channels": (channel,), "cuda": "13.0", **more}
        )

    return make


def refused(closure):
    with pytest.raises(ClosureError) as caught:
        compile_closure(closure, "")
    return caught.value


def test_an_explicit_list_with_hashes(conda):
    body = compile_closure(conda("pytorch=2.13.0"), "").body
    lines = body.splitlines()
    assert lines[0] == "@EXPLICIT"
    assert [len(line.partition("#")[2]) for line in lines[1:]] == [64] * 3
    found = {name: version.split()[0] for name, version in packages(body).items()}
    assert found == {"python": "3.12.1", "numpy": "2.1", "pytorch": "2.13.0"}


def test_conda_cpu_build(conda):
    """Without a driver's CUDA nothing is taken in silence: a build for GPUs is refused, in conda's own words."""
    error = refused(conda("pytorch=2.13.0", cuda=""))
    assert error.code == "environment-conflict"
    assert "__cuda" in error.evidence


def test_a_later_glibc_is_not_taken(conda):
    assert "__glibc" in refused(conda("later")).evidence
    assert "later" in packages(compile_closure(conda("later", glibc="2.39"), "").body)


def test_locked_packages_stay_where_they_fit(conda):
    locked = compile_closure(conda("numpy=2.0"), "").body
    assert packages(compile_closure(conda("pytorch"), locked).body)["numpy"].startswith("2.0 ")
    assert packages(compile_closure(conda("pytorch"), "").body)["numpy"].startswith("2.1 ")


def test_condas_python_for_packages_of_uv(closure, channel):
    """Both parts are in one file; nothing but Python and what it needs is conda's."""
    text = compile_closure(closure("filelock", channels=(channel,)), "").body
    of_uv, _, of_conda = text.partition("@EXPLICIT")
    assert packages(of_uv) == {"filelock": "3.1"}
    assert packages(of_conda).keys() == {"python"}


def test_what_has_no_hash_is_refused(conda, monkeypatch):
    package = {"name": "numpy", "url": "http://c/noarch/numpy-1-0.conda", "sha256": ""}
    monkeypatch.setattr("gpustrap.environments.conda._ask", lambda _: {"packages": [package]})
    assert refused(conda("numpy")).code == "environment-hash-missing"


def test_no_such_python(conda):
    assert "python 3.10" in refused(conda("numpy", python="3.10")).evidence


def test_a_channel_that_cannot_be_reached(conda):
    error = refused(conda("numpy", channels=("http://127.0.0.1:1/forge",)))
    assert (error.code, error.unreachable) == ("environment-not-locked", True)
    assert error.message == "http://127.0.0.1:1/forge cannot be reached from this machine"


def test_a_channel_that_is_none(conda, index):
    assert refused(conda("numpy", channels=(f"{index.url}/nosuch",))).code == "environment-not-locked"


def test_a_channel_that_wants_a_login(conda, index):
    index.status = 401
    assert refused(conda("numpy", channels=(f"{index.url}/forge",))).code == "environment-index-refused"


def test_words_that_are_no_package(conda):
    assert refused(conda("py torch = = 3")).code == "environment-requirements"


def test_offline(conda, monkeypatch):
    monkeypatch.setenv("UV_OFFLINE", "1")
    assert refused(conda("numpy")).remedy == "env -u UV_OFFLINE gpustrap plan"


@pytest.mark.parametrize("row", load_catalog().conda_builds, ids=lambda row: row.requirement)
def test_rattler_reads_what_the_catalog_asks_for(row):
    """As its solver does, which is strict: a build behind = is none to it."""
    spec = MatchSpec(row.requirement, strict=True)
    assert (spec.name.normalized, row.version in str(spec.version)) == ("pytorch", True)
