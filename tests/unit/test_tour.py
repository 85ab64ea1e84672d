"""What the tour must never do, whatever it is given."""

from __future__ import annotations

import subprocess
from pathlib import Path

TOUR = Path(__file__).parents[2] / "docs/tour.sh"


def test_a_directory_the_tour_did_not_make_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    done = subprocess.run(["sh", str(TOUR), str(tmp_path), "no-such-lab"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "left alone" in done.stderr
    assert (tmp_path / "thesis.tex").read_text() == "mine"
