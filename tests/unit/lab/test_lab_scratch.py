"""Scratch directories of the lab: gone with what made them, and swept where that was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpustrap.lab import state

HOLD = """
import sys, time
from gpustrap.lab import state
with state.scratch() as place:
    (place / "half").write_text("made")
    print(place, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _own_place(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_gone_at_its_end(tmp_path):
    with state.scratch() as place:
        assert place.is_dir()
        assert place.stat().st_mode & 0o777 == 0o700
        state.sweep()
        assert place.is_dir()  # in use: not swept
    assert list(tmp_path.iterdir()) == []


def test_of_a_killed_process_it_is_swept(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) as process:
        place = Path(process.stdout.readline().strip())
        state.sweep()
        assert (place / "half").exists()
        process.send_signal(signal.SIGKILL)
    assert (place / "half").exists()
    state.sweep()
    assert list(tmp_path.iterdir()) == []
