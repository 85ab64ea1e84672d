"""Files of requirements, the header of a lock file, and the difference of two."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpustrap.environments.closure import Closure, ClosureError
from gpustrap.environments.frameworks import two_frameworks
from gpustrap.environments.lock import closure_of
from gpustrap.environments.requirements import read_requirements, read_specs
from gpustrap.environments.text import difference, packages, without_hash
from gpustrap.model.environment import Environment

CLOSURE = Closure("torch", "uv", "3.12", "x86_64", "2.36", ("torch==2.9.1",), index="https://index.example/simple")
UV = "numpy==2.1 \\\n    --hash=sha256:" + "0" * 64 + "\n    # from http://index/simple\n"


def test_a_file_has_its_lines_and_those_of_files_it_includes(tmp_path):
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements/a.txt").write_text(
        "numpy  # for all\n\n# nothing\n-r b.txt\n-c c.txt\nscipy>=1.10 ; \\\n  python_version > '3'\n"
    )
    (tmp_path / "requirements/b.txt").write_text("pandas[extra]==2.*\n")
    (tmp_path / "requirements/c.txt").write_text("urllib3<3\n")
    wanted, kept_to = read_requirements(tmp_path, "requirements/a.txt")
    assert wanted == ("numpy", "pandas[extra]==2.*", "scipy>=1.10 ;    python_version > '3'")
    assert kept_to == ("urllib3<3",)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--extra-index-url http://elsewhere/simple", "has an option: --extra-index-url"),
        ("-e .", "has an option: -e"),
        ("--pre", "has an option: --pre"),
        ("tool @ git+https://example.org/tool", "names an address or a file"),
        ("./wheels/tool-1.0-py3-none-any.whl", "names an address or a file"),
        ("-r ../outside.txt", "is outside of the site"),
        ("-r nosuch.txt", "requirements file nosuch.txt is not there"),
        ("-r a.txt", "includes itself"),
    ],
)
def test_what_cannot_be_locked_is_refused(tmp_path, line, words):
    (tmp_path / "a.txt").write_text(f"numpy\n{line}\n")
    with pytest.raises(ClosureError, match=words) as caught:
        read_requirements(tmp_path, "a.txt")
    assert caught.value.code == "environment-requirements"


def test_an_environment_file_of_conda(tmp_path):
    (tmp_path / "e.yml").write_text("name: x\nchannels: [conda-forge]\ndependencies: [numpy=2, scipy]\n")
    assert read_specs(tmp_path, "e.yml", ("conda-forge",)) == ("numpy=2", "scipy")
    (tmp_path / "e.txt").write_text("numpy=2 # two\n")
    assert read_specs(tmp_path, "e.txt", ("conda-forge",)) == ("numpy=2",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dependencies: [numpy, {pip: [x]}]", "for pip"),
        ("channels: [other]\ndependencies: [numpy]", "channel other"),
        ("variables: {A: b}\ndependencies: [numpy]", "has variables"),
        ("- numpy", "no list of dependencies"),
        ("{", "is no YAML"),
    ],
)
def test_an_environment_file_that_cannot_be_locked(tmp_path, text, words):
    (tmp_path / "e.yml").write_text(text)
    with pytest.raises(ClosureError, match=words):
        read_specs(tmp_path, "e.yml", ("conda-forge",))


def test_the_header_says_who_writes_it_and_from_what():
    header = CLOSURE.header
    assert "Written by `gpustrap plan`" in header
    assert "do not edit it" in header
    assert "# requirement: torch==2.9.1\n# index: https://index.example/simple\n" in header
    assert "imulated" not in header
    assert "# Simulated: " in replace(CLOSURE, simulated=True).header


@pytest.mark.parametrize(
    "change",
    [
        {"engine": "conda"}, {"python": "3.11"}, {"machine": "aarch64"}, {"glibc": "2.39"},
        {"requirements": ("torch",)},
        {"constraints": ("numpy<2",)}, {"index": "http://mirror/simple"}, {"framework_index": "http://mirror/whl/cpu"},
        {"channels": ("conda-forge",)}, {"cuda": "13.0"}, {"simulated": True}, {"name": "other"},
    ],
)  # fmt: skip
def test_other_inputs_are_another_file(change):
    other = replace(CLOSURE, **change)
    assert other.file != CLOSURE.file
    assert other.header != CLOSURE.header


def test_a_driver_does_not_move_packages_of_uv(tmp_path):
    """Which CUDA they are for is in the requirement; an update of the driver is no reason to build anew."""
    variables = {"ml_environments_index": "http://index/simple"}
    made = []
    for cuda in ("13.0", "13.1"):
        wanted = Environment(name="torch", framework="pytorch", python="3.12", requirements=("torch==2",), cuda=cuda)
        made.append(closure_of(wanted, variables, machine="x86_64", glibc="2.36", simulated=False, root=tmp_path))
    assert made[0].file == made[1].file


def test_packages_of_both_engines():
    text = UV + "@EXPLICIT\nhttps://c/linux-64/ca-certificates-2026.1.1-hbd8a1cb_0.conda#" + "0" * 64 + "\n"
    assert packages(text) == {"numpy": "2.1", "ca-certificates": "2026.1.1 hbd8a1cb_0"}
    assert without_hash(text) == []
    assert without_hash("a==1\nnumpy==2 \\\n  --hash=sha256:" + "0" * 64) == ["a"]


def test_difference():
    assert difference("", UV) == "1 package locked"
    assert difference(UV, UV) == ""
    assert difference(UV, f"# other words\n{UV}") == ""
    assert difference(UV, UV.replace("000", "111")) == "the same packages, from other files"
    assert difference(UV + "old==1\n", UV.replace("2.1", "2.2") + "new==3\n") == "numpy 2.1 -> 2.2, + new 3, - old 1"
    many = "".join(f"p{n}==1\n" for n in range(30))
    assert difference(UV, UV + many).endswith(", and 20 more")


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("jax", "jaxlib", "torch", "torchvision"), "PyTorch and JAX"),  # extras: [torchvision] brings it
        (("torch", "tensorflow-cpu"), "PyTorch and TensorFlow"),
        (("torch", "torchvision", "vllm"), ""),
        (("jax", "jaxlib"), ""),
        (("numpy",), ""),
    ],
)
def test_two_frameworks_by_way_of_a_dependency(names, says):
    found = two_frameworks(CLOSURE, "".join(f"{name}==1.0 \\\n    --hash=x\n" for name in sorted(names)))
    if not says:
        assert found is None
        return
    assert found
    assert found.code == "frameworks-in-one-environment"
    assert set(says.split(" and ")) <= set(found.message.split())
