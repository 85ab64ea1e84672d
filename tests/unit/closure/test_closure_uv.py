"""The real uv against an index on loopback: what is locked, where it comes from, and every failure in our words."""

from __future__ import annotations

import os
import ssl
import subprocess
from base64 import b64encode
from pathlib import Path

import pytest

from gpustrap.environments.closure import ClosureError, Compiled
from gpustrap.environments.text import packages
from gpustrap.environments.uv import compile_uv, environment, platform


def refused(closure, preferred: str = "") -> ClosureError:
    with pytest.raises(ClosureError) as caught:
        compile_uv(closure, preferred)
    return caught.value


def test_each_package_has_its_version_and_hash(closure):
    body = compile_uv(closure("filelock", "numpy<2.1"), "").body
    assert packages(body) == {"filelock": "3.1", "numpy": "2.0"}
    assert body.count("--hash=sha256:") == 2


def test_names_come_from_the_index_they_belong_to(index, closure):
    """No confusion: neither numpy 9.9 of PyTorch's index nor torch of the package index is even looked at."""
    body = compile_uv(closure("torch==2.9.1", "numpy", framework_index=index.pytorch), "").body
    assert packages(body) == {"torch": "2.9.1+cu130", "filelock": "3.1", "numpy": "2.1"}
    assert not [path for path in index.asked if path.startswith("/whl/cu130/") and "torch" not in path]
    assert not [path for path in index.asked if path.startswith("/simple/torch")]


def test_what_comes_with_another_package_is_pytorchs_own_too(index, closure):
    """timm asks for torchvision: of the package index it would be for another CUDA than torch."""
    body = compile_uv(closure("torch==2.9.1", "timm", framework_index=index.pytorch), "").body
    assert packages(body)["torchvision"] == "0.24.1+cu130"


def test_locked_versions_stay_where_they_fit(closure):
    locked = compile_uv(closure("numpy==2.0"), "").body
    assert packages(compile_uv(closure("numpy", "filelock"), locked).body) == {"numpy": "2.0", "filelock": "3.1"}
    assert packages(compile_uv(closure("numpy>2"), locked).body)["numpy"] == "2.1"
    assert packages(compile_uv(closure("numpy"), "").body)["numpy"] == "2.1"


def test_constraints_hold(closure):
    assert packages(compile_uv(closure("numpy", constraints=("numpy<2.1",)), "").body)["numpy"] == "2.0"


def test_the_same_inputs_are_the_same_text(closure):
    asked = closure("timm")
    assert compile_uv(asked, "").body == compile_uv(asked, "").body


def test_a_wheel_for_a_later_glibc_is_not_taken(index, closure):
    index.wheel("simple", "fast", "2.0", tag="cp312-cp312-manylinux_2_39_x86_64")
    index.wheel("simple", "fast", "1.0", tag="cp312-cp312-manylinux_2_28_x86_64")
    assert packages(compile_uv(closure("fast"), "").body)["fast"] == "1.0"
    assert packages(compile_uv(closure("fast", glibc="2.39"), "").body)["fast"] == "2.0"


@pytest.mark.parametrize(
    ("glibc", "called"), [("2.34", "2_34"), ("2.36", "2_36"), ("2.29", "2_28"), ("2.41", "2_40"), ("2.42", "2_40")]
)
def test_the_machine_as_uv_calls_it(closure, glibc, called):
    assert platform(closure(glibc=glibc)) == f"x86_64-manylinux_{called}"


def test_a_yanked_version_is_told(index, closure):
    index.wheel("simple", "taken", "1.0", yanked="it was broken")
    assert "taken==1.0" in compile_uv(closure("taken==1.0"), "").notes[0]


def test_files_that_the_index_has_no_hash_of_are_hashed(index, closure):
    index.wheel("simple", "bare", "1.0", hashed=False)
    assert "--hash=sha256:" in compile_uv(closure("bare"), "").body


def test_what_has_no_hash_is_refused(closure, monkeypatch):
    monkeypatch.setattr("gpustrap.environments.uv._compile", lambda *_: Compiled("bare==1.0\n"))
    error = refused(closure("bare"))
    assert (error.code, "no hash of bare" in error.message) == ("environment-hash-missing", True)


def test_no_such_package(closure):
    error = refused(closure("nosuch"))
    assert (error.code, "is not in its index" in error.message) == ("environment-conflict", True)
    assert "nosuch was not found" in error.evidence
    assert not error.unreachable


def test_versions_that_do_not_go_together(closure):
    error = refused(closure("timm", "torchvision<0.1"))
    assert (error.code, error.message) == ("environment-conflict", "no versions of its packages go together")
    assert "torchvision<0.1" in error.evidence


def test_no_build_for_this_python(index, closure):
    index.wheel("simple", "late", "1.0", python=">=3.13")
    assert refused(closure("late")).message == "a package of it is not made for Python 3.12"
    index.wheel("simple", "binary", "1.0", tag="cp311-cp311-manylinux_2_28_x86_64")
    assert refused(closure("binary")).message == "a package of it is not made for Python 3.12"


def test_no_build_for_this_machine(index, closure):
    index.wheel("simple", "arm", "1.0", tag="cp312-cp312-manylinux_2_28_aarch64")
    assert refused(closure("arm")).message == "a package of it is not made for x86_64 with glibc 2.36"
    assert packages(compile_uv(closure("arm", machine="aarch64"), "").body) == {"arm": "1.0"}


@pytest.mark.parametrize("status", [401, 403])
def test_an_index_that_wants_a_login(index, closure, status):
    index.status = status
    error = refused(closure("numpy"))
    assert error.code == "environment-index-refused"
    assert "~/.netrc" in error.remedy


def test_a_login_comes_from_netrc_and_is_nowhere_in_the_lock(index, closure, tmp_path, monkeypatch):
    index.login = f"Basic {b64encode(b'me:hidden').decode()}"
    assert refused(closure("numpy")).code == "environment-index-refused"
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password hidden\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    body = compile_uv(closure("numpy"), "").body
    assert packages(body) == {"numpy": "2.1"}
    assert "hidden" not in body
    assert "me@" not in body


def test_an_index_that_is_broken(index, closure):
    index.status = 500
    error = refused(closure("numpy"))
    assert (error.code, error.unreachable) == ("environment-not-locked", True)


def test_an_index_that_is_not_there(closure):
    error = refused(closure("numpy", index="http://127.0.0.1:1/simple"))
    assert (error.code, error.unreachable) == ("environment-not-locked", True)
    assert error.message == "http://127.0.0.1:1/simple/numpy/ cannot be reached from this machine"


def test_an_index_behind_a_proxy_that_is_not_there(closure, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    error = refused(closure("numpy", index="http://index.invalid/simple"))
    assert (error.code, error.unreachable) == ("environment-not-locked", True)


def test_an_index_that_speaks_no_tls(index, closure):
    error = refused(closure("numpy", index=index.simple.replace("http:", "https:")))
    assert (error.code, "does not speak TLS" in error.message) == ("environment-index-refused", True)


def test_a_certificate_that_is_not_trusted_and_then_is(index, closure, tmp_path, monkeypatch):
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.pem"
    words = ["-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=here"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    argv = ["openssl", "req", "-x509", *words, "-keyout", key, "-out", certificate]
    subprocess.run(argv, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    index.server.socket = context.wrap_socket(index.server.socket, server_side=True)
    asked = closure("numpy", index=index.simple.replace("http:", "https:"))
    error = refused(asked)
    assert error.code == "environment-index-refused"
    assert "shows a certificate that this machine does not trust" in error.message
    assert "SSL_CERT_FILE=" in error.remedy
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert packages(compile_uv(asked, "").body) == {"numpy": "2.1"}


def test_offline(closure, monkeypatch):
    monkeypatch.setenv("UV_OFFLINE", "1")
    error = refused(closure("numpy"))
    assert (error.code, error.remedy) == ("environment-not-locked", "env -u UV_OFFLINE gpustrap plan")


def test_settings_of_a_person_do_not_count(index, closure, tmp_path, monkeypatch):
    monkeypatch.setenv("UV_INDEX", index.pytorch)
    monkeypatch.setenv("UV_CONSTRAINT", str(tmp_path / "nosuch"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    assert packages(compile_uv(closure("numpy"), "").body) == {"numpy": "2.1"}
    assert not {"UV_INDEX", "UV_CONSTRAINT", "PIP_INDEX_URL"} & environment().keys()


def _index_of_pip() -> str:
    """The first package index that pip of this machine is given; empty where it has none of its own."""
    for name in ("index-url", "extra-index-url"):
        argv = ["python3", "-m", "pip", "config", "get", f"global.{name}"]
        said = os.environ.get(f"PIP_{name.upper().replace('-', '_')}", "")
        said = said or subprocess.run(argv, capture_output=True, text=True).stdout
        if said.split():
            return said.split()[0]
    return ""


def test_the_index_of_this_machine(closure):
    """Real packages, one of them with files for each kind of machine."""
    url = _index_of_pip()
    if not url:
        pytest.skip("pip of this machine is given no package index")
    try:
        body = compile_uv(closure("jinja2", index=url, python="3.11"), "").body
    except ClosureError as error:
        pytest.skip(f"the package index of this machine: {error.message}")
    assert packages(body).keys() == {"jinja2", "markupsafe"}
    assert body.count("--hash=sha256:") >= 2


def test_nothing_is_left_in_the_temporary_directory(closure, tmp_path, monkeypatch):
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    compile_uv(closure("numpy"), "")
    assert list(Path(place).iterdir()) == []
