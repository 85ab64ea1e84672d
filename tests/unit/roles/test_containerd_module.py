"""gpustrap_containerd: NVIDIA's runtime joins containerd's settings, or everything stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

MINE = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  sandbox_image = "mine"\n'


@pytest.fixture
def configure(run, tmp_path, monkeypatch):
    """``configure(ctk=…, dump=…)`` with programs that do what they are told."""
    from ansible.module_utils.basic import AnsibleModule

    config, drop_in = tmp_path / "config.toml", tmp_path / "conf.d/99-nvidia.toml"
    config.write_text(MINE)

    def call(check=False, ctk=0, reads=True, broken=False):
        def dump():
            if broken and drop_in.exists():
                return 1, "", "containerd: toml: line 3\n"
            return 0, config.read_text() + (drop_in.read_text() if reads and drop_in.exists() else ""), ""

        def run_command(_module, argv):
            call.called.append(argv)
            if argv[0] == "containerd":
                return dump()
            config.write_text(f'imports = ["{drop_in.parent}/*.toml"]\n{MINE}')
            drop_in.parent.mkdir(exist_ok=True)
            drop_in.write_text('BinaryName = "/usr/bin/nvidia-container-runtime"\n')
            return ctk, "", "nvidia-ctk: unrecognized runtime\n" if ctk else ""

        monkeypatch.setattr(AnsibleModule, "run_command", run_command)
        return run("gpustrap_containerd", check=check, config=str(config), drop_in=str(drop_in))

    call.called, call.config, call.drop_in = [], config, drop_in
    return call


def test_merged_once_with_a_copy_of_the_old(configure):
    assert configure(check=True)["changed"]
    assert configure.config.read_text() == MINE
    result = configure()
    assert result["changed"]
    assert Path(result["backup"]).read_text() == MINE
    assert MINE in configure.config.read_text()
    assert not configure()["changed"]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"ctk": 1}, "unrecognized runtime"),
        ({"broken": True}, "toml: line 3"),
        ({"reads": False}, "containerd does not read"),
    ],
)
def test_what_does_not_work_is_undone(configure, how, said):
    """NVIDIA/aicr#1237: containerd refused the file of toolkit 1.19.1."""
    result = configure(**how)
    assert result["failed"]
    assert said in result["msg"]
    assert configure.config.read_text() == MINE
    assert not configure.drop_in.exists()


def test_settings_that_cannot_be_read_are_left_alone(configure):
    configure.drop_in.parent.mkdir()
    configure.drop_in.write_text("broken")
    assert "were left alone" in configure(broken=True)["msg"]
    assert [argv[0] for argv in configure.called] == ["containerd"]
