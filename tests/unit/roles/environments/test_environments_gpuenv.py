"""gpuenv: it activates in the shell it is called in, in any shell, and says what would win over the environment."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from jinja2 import Template

from gpustrap.content import content_root

TEMPLATE = content_root() / "roles/ml_environments/templates/gpuenv.sh.j2"
SHELLS = [name for name in ("dash", "bash", "zsh") if shutil.which(name)]
CONDA = """
conda() { [ "$1" = activate ] && export CONDA_PREFIX="$2" PATH="$2/bin:$PATH"; }
"""


@pytest.fixture
def shell(site):
    """``shell(commands, shell="bash", **environment)`` runs commands after the profile; gives what is said."""
    (site.root / "conda/etc/profile.d").mkdir(parents=True)
    (site.root / "conda/etc/profile.d/conda.sh").write_text(CONDA)
    values = {"ml_environments_prefix": site.prefix, "ml_environments_conda_prefix": site.root / "conda"}
    profile = site.root / "gpustrap-environments.sh"
    profile.write_text(Template(TEMPLATE.read_text()).render(values))

    def call(commands: str, shell: str = "bash", **environment: str) -> str:
        done = subprocess.run(
            [shutil.which(shell), "-c", f"set -u; . {profile}; {commands}"],
            env={"PATH": "/usr/bin:/bin", "HOME": str(site.root), **environment},
            capture_output=True,
            text=True,
            cwd="/",
        )
        return (done.stdout + done.stderr).strip()

    return call


@pytest.fixture
def torch(site):
    made = site.environment("torch", site.index.wheel("tiny", "1.0"))
    assert site.apply(made)["changed"]
    return site.prefix / "torch" / made["digest"][:16]


@pytest.mark.parametrize("name", SHELLS)
def test_activates_behind_the_link_and_only_in_this_shell(shell, torch, name):
    said = shell("gpuenv torch; echo $VIRTUAL_ENV; command -v python; deactivate; command -v python3", name)
    assert said.splitlines() == [str(torch), f"{torch}/bin/python", "/usr/bin/python3"]
    assert shell("(gpuenv torch); command -v python3", name) == "/usr/bin/python3"


@pytest.mark.parametrize("name", SHELLS)
def test_lists_and_names_them_where_there_is_none_of_that_name(shell, torch, name):
    assert shell("gpuenv", name) == "torch"
    said = shell("gpuenv nope || echo failed", name)
    assert said.splitlines()[-1] == "gpuenv: no environment nope that you may use; those that you may: torch"
    assert "failed" in said


def test_says_what_would_win_over_it(shell, torch):
    said = shell("gpuenv torch", LD_LIBRARY_PATH="/opt/cudnn", PYTHONPATH="/home/me")
    assert "LD_LIBRARY_PATH is set; its libraries win" in said
    assert "PYTHONPATH is set; its packages win" in said
    assert shell("gpuenv torch") == ""


def test_conda_activate_noninteractive(site, shell):
    """Failure mode: `conda activate` needs no `conda init`, no ~/.bashrc and no interactive shell."""
    place = site.prefix / "made/0123456789abcdef"
    (place / "bin").mkdir(parents=True)
    (place / "bin/python").symlink_to("/usr/bin/python3")
    (place.parent / "current").symlink_to(place.name)
    for name in SHELLS:
        said = shell("gpuenv made; echo $CONDA_PREFIX $PYTHONNOUSERSITE; command -v python", name)
        assert said.splitlines() == [f"{place} 1", f"{place}/bin/python"]
        assert shell(f"conda activate {place}; echo $CONDA_PREFIX", name) == str(place)


def test_sets_nothing_for_everybody(shell):
    assert shell("env | grep -c -E '^(LD_LIBRARY_PATH|PYTHON|VIRTUAL_ENV|CONDA_PREFIX)'") == "0"


def test_pep668(site, torch):
    """The system's Python has nothing of the environment, and its marker is as it was."""
    done = subprocess.run(["/usr/bin/python3", "-c", "import tiny"], capture_output=True, text=True, cwd="/")
    assert "No module named 'tiny'" in done.stderr
