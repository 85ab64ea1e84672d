"""Runs a module in this process, as Ansible runs it on a node."""

from __future__ import annotations

import importlib.util
import json
import os
import sys

import ansible.module_utils
import ansible.module_utils.common.warnings as ansible_warnings
import pytest
from ansible.module_utils.testing import patch_module_args

from gpustrap.content import PACKAGE

PLUGINS = PACKAGE / "ansible_plugins"


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """``run("gpustrap_x", check=False, **arguments)`` gives the module's result."""
    paths = [*ansible.module_utils.__path__, str(PLUGINS / "module_utils")]
    monkeypatch.setattr(ansible.module_utils, "__path__", paths)
    # Another test may have loaded Ansible's controller, to which warnings would go then.
    monkeypatch.setattr(ansible_warnings._internal, "is_controller", False)

    def call(name, /, *, check=False, patch=None, **arguments):
        spec = importlib.util.spec_from_file_location(name, PLUGINS / "modules" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for attribute, value in (patch or {}).items():
            monkeypatch.setattr(module, attribute, value)
        ansible_warnings._global_warnings.clear()  # on a node, every module is a process of its own
        with patch_module_args({**arguments, "_ansible_check_mode": check}), pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out)

    yield call
    for name in [name for name in sys.modules if name.startswith("ansible.module_utils.gpustrap")]:
        del sys.modules[name]


@pytest.fixture
def tools(monkeypatch, tmp_path):
    """Stand-in programs on PATH: ``tools(name="shell lines")``."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    monkeypatch.setenv("PATH", f"{bin_dir}:{os.environ['PATH']}")

    def make(**programs):
        for name, body in programs.items():
            (bin_dir / name).write_text(f"#!/bin/sh\n{body}\n")
            (bin_dir / name).chmod(0o755)

    return make
