"""Environments made by conda, or with its Python: an explicit list, a cache of ours, and the driver's CUDA said."""

from __future__ import annotations

import hashlib
import json

import pytest

# Takes what the real one is called with, checks the hashes of what it is asked for, and makes a prefix of links.
CONDA = """#!/usr/bin/python3
import hashlib, json, os, pathlib, sys
words = sys.argv[1:]
assert words[:3] == ["create", "--yes", "--quiet"], words
prefix, file = (pathlib.Path(words[words.index(name) + 1]) for name in ("--prefix", "--file"))
lines = file.read_text().split()
assert lines[0] == "@EXPLICIT", lines
keep = ("CONDA_OVERRIDE_CUDA", "CONDA_PKGS_DIRS", "CONDA_SSL_VERIFY", "HOME", "TMPDIR", "http_proxy", "PYTHONPATH")
with open("{log}", "a") as log:
    log.write(json.dumps([words, {{k: os.environ[k] for k in keep if k in os.environ}}]) + "\\n")
for line in lines[1:]:
    url, _, digest = line.partition("#")
    content = pathlib.Path(url.removeprefix("file://")).read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        sys.exit("ChecksumMismatchError: Conda detected a mismatch between the expected content and downloaded content")
    name = pathlib.Path(url).name.removesuffix(".conda")
    (prefix / "conda-meta").mkdir(parents=True, exist_ok=True)
    (prefix / "conda-meta" / (name + ".json")).write_text(json.dumps({{"name": name}}))
(prefix / "bin").mkdir()
for name in ("python", "python{version}"):
    (prefix / "bin" / name).symlink_to("/usr/bin/python3")
"""


@pytest.fixture
def conda(site):
    """A stand-in for conda; gives the lines of an explicit list and what it was called with."""
    log, program = site.root / "conda.log", site.root / "conda/bin/conda"
    program.parent.mkdir(parents=True)
    program.write_text(CONDA.format(log=log, version=site.python))
    program.chmod(0o755)
    for name in ("python-3", "pytorch-2"):
        (site.root / f"{name}.conda").write_text(name)

    def line(name: str, digest: str = "") -> str:
        path = site.root / f"{name}.conda"
        return f"file://{path}#{digest or hashlib.sha256(path.read_bytes()).hexdigest()}"

    line.calls = lambda: [json.loads(text) for text in log.read_text().splitlines()]
    return line


def test_engine_conda(site, conda, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    lines = ("@EXPLICIT", conda("python-3"), conda("pytorch-2"))
    torch = site.environment("torch", *lines, engine="conda", interpreter="conda", cuda="12.8", modules=["json"])
    assert site.apply(torch, ca_bundle="/etc/ssl/certs/ca-certificates.crt")["changed"]
    [[words, environment]] = conda.calls()
    place = site.prefix / "torch" / torch["digest"][:16]
    assert words == ["create", "--yes", "--quiet", "--prefix", str(place), "--file", f"{place}.tmp/torch-explicit.txt"]
    assert environment == {
        "CONDA_OVERRIDE_CUDA": "12.8",
        "CONDA_PKGS_DIRS": f"{site.root}/cache/conda",
        "CONDA_SSL_VERIFY": "/etc/ssl/certs/ca-certificates.crt",
        "HOME": f"{place}.tmp",
        "TMPDIR": f"{place}.tmp",
        "http_proxy": "http://proxy:3128",
    }
    marker = json.loads((place / ".gpustrap.json").read_text())
    assert marker["parts"].keys() == {"(python)", "conda:python-3", "conda:pytorch-2"}
    assert not site.apply(torch, locks=False)["changed"]


def test_conda_wrong_hash_leaves_nothing(site, conda):
    lines = ("@EXPLICIT", conda("python-3"), conda("pytorch-2", "0" * 64))
    result = site.apply(site.environment("torch", *lines, engine="conda", interpreter="conda", modules=[]))
    assert "ChecksumMismatchError" in result["msg"]
    assert site.directories() == []


def test_condas_python_with_packages_by_uv_is_a_venv_over_a_prefix_of_its_own(site, conda):
    """So packages of a user's home directory never win over the environment's, as they would in conda's own prefix."""
    lines = ("@EXPLICIT", conda("python-3"), site.index.wheel("tiny", "1.0"))
    torch = site.environment("torch", *lines, interpreter="conda", modules=["tiny"])
    assert site.apply(torch)["changed"]
    place = site.prefix / "torch" / torch["digest"][:16]
    assert conda.calls()[0][0][4] == f"{place}/python"
    assert (place / "pyvenv.cfg").exists()
    marker = json.loads((place / ".gpustrap.json").read_text())
    assert marker["parts"].keys() == {"(python)", "(site-packages)", "conda:python-3", "tiny-1.0"}
    assert site.says("torch", "import site; print(site.ENABLE_USER_SITE)") == "False"


def test_conda_that_is_not_there_is_named(site):
    torch = site.environment("torch", "@EXPLICIT", engine="conda", interpreter="conda", modules=[])
    assert "conda/bin/conda is not there: the role conda makes it (gpustrap_conda: true)" in site.apply(torch)["msg"]
