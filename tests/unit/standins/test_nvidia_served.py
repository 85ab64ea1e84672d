"""Served over HTTP, as a lab does it: the request variables lead to what is there, and apt fetches it."""

from __future__ import annotations

import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node.apt import parse_policy
from gpustrap.ansible_plugins.module_utils.gpustrap_openpgp import primary_keys
from gpustrap.catalog.loader import load_catalog
from gpustrap.lab import standins
from gpustrap.lab.standins import deb, nvidia, nvidia_data
from gpustrap.model.request import Request
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
        assert primary_keys((base / row.key).read_bytes()) == given["gpustrap_nvidia_key_fingerprints"][name]
        assert (base / row.key).read_text().startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----")
    toolkit = repositories / str(given["gpustrap_container_toolkit_repository"]).removeprefix(
        f"{repositories.as_uri()}/"
    )
    row = load_catalog().repository("container-toolkit", "x86_64")
    assert (toolkit / row.path.strip("/") / "InRelease").is_file()
    assert primary_keys((toolkit / row.key).read_bytes()) == given["gpustrap_container_toolkit_key_fingerprints"]
    assert Request.model_validate({name.removeprefix("gpustrap_"): value for name, value in given.items()})


def test_repositories_have_keys_of_their_own_and_share_them_as_nvidias_do(repositories):
    keys = nvidia.variables(repositories, "http://x")["gpustrap_nvidia_key_fingerprints"]
    assert keys["ubuntu2204"] == keys["ubuntu2404"] == keys["debian12"]
    assert len({*keys["debian12"], *keys["debian13"], *keys["ubuntu2604"]}) == 3


def test_private_keys_are_not_served(tmp_path, repositories, monkeypatch):
    """They are kept to sign faults with, for the user alone."""
    monkeypatch.setenv("GPUSTRAP_LAB_DIR", str(tmp_path / "labs"))
    monkeypatch.setattr(
        standins, "PIECES", {"nvidia": lambda place, _say: shutil.copytree(repositories, place, dirs_exist_ok=True)}
    )
    for name in ("docker", "conda"):
        monkeypatch.setattr(getattr(standins, name), "variables", lambda _place, _url: {})
    served = tmp_path / "labs/x/standins"
    standins.build(served, base_url="http://x")
    assert not [path for path in served.rglob("*") if path.suffix == ".secret" or path.name.startswith(".")]
    kept = sorted((standins.sound(served) / nvidia.KEYS).glob("*.secret"))
    assert len(kept) == 4
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}


def test_a_lab_is_given_it():
    """Every file that a piece is made of is part of its recipe, so that an old cache is not served."""
    assert standins.PIECES["nvidia"] is nvidia.build
    before = standins._recipe("nvidia")
    assert before == standins._recipe("nvidia")
    assert before != standins._recipe("docker")


def test_packages_are_the_same_bytes_each_time():
    files = {"etc/a": deb.File(b"1"), "usr/bin/b": deb.File(b"2", 0o755)}
    assert deb.pack("Package: a\n", files) == deb.pack("Package: a\n", dict(reversed(files.items())))
