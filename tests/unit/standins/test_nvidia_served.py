"""Served over HTTP, as a lab does it: the request variables lead to what is there, and apt fetches it."""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node.apt import parse_policy
from gpustrap.catalog.loader import load_catalog
from gpustrap.lab import standins
from gpustrap.lab.standins import deb, nvidia, nvidia_data
from gpustrap.resolve.gpu.installed import is_nvidias


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_words: object) -> None:
        pass


@pytest.fixture
def url(repositories):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(repositories))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_apt_fetches_packages(make_apt, cuda, url, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    directory = cuda("ubuntu2404")
    apt = make_apt(directory, update=False)
    source = apt.root / "etc/apt/sources.list.d/cuda.sources"
    source.write_text(source.read_text().replace(f"file:{directory}", f"{url}/compute/cuda/repos/ubuntu2404/x86_64"))
    assert apt("apt-get", "update").rc == 0
    policy = parse_policy(apt("apt-cache", "policy", "nvidia-open").out)["nvidia-open"]
    assert policy.candidate == "615.71.09-2ubuntu1"
    assert is_nvidias(policy.origin, f"{url}/compute/cuda/repos")  # the probe and the resolver know whose it is
    words = ("-y", "-o", "Debug::NoLocking=1", "-o", f"Dir::Cache={apt.root}/cache", "--download-only", "install")
    done = apt("apt-get", *words, "libnccl2", "nvidia-driver-pinning-595")
    assert done.rc == 0, done.err
    names = {path.name for path in (apt.root / "cache/archives").glob("*.deb")}
    assert names == {"libnccl2_2.32.3-1+cuda13.4_amd64.deb", "nvidia-driver-pinning-595_595-1ubuntu1_all.deb"}


def test_the_request_variables_lead_there(repositories):
    given = nvidia.variables(repositories, repositories.as_uri())
    base = repositories / str(given["gpustrap_nvidia_repository"]).removeprefix(f"{repositories.as_uri()}/")
    for name in nvidia_data.repositories():
        row = load_catalog().repository(name, "x86_64")
        assert (base / row.path.strip("/") / "InRelease").is_file()
        assert (base / row.key).read_text().startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----")


def test_a_lab_is_given_it():
    """Every file that a piece is made of is part of its recipe, so that an old cache is not served."""
    assert standins.PIECES["nvidia"] is nvidia.build
    before = standins._recipe("nvidia")
    assert before == standins._recipe("nvidia")
    assert before != standins._recipe("docker")


def test_packages_are_the_same_bytes_each_time():
    files = {"etc/a": deb.File(b"1"), "usr/bin/b": deb.File(b"2", 0o755)}
    assert deb.pack("Package: a\n", files) == deb.pack("Package: a\n", dict(reversed(files.items())))
