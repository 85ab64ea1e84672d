"""What the stand-ins of the container toolkit and the fabric manager hold: programs, their units, their settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from gpustrap.lab.standins.deb import File
from gpustrap.lab.standins.nvidia_data import Package, upstream
from gpustrap.lab.standins.parts import FILES, fill

HERE = Path(__file__).parent
PYTHON = "#!/usr/bin/python3\n"
SCRIPTS = {"toolkit_postinst": "toolkit/base-postinst.sh", "toolkit_prerm": "toolkit/base-prerm.sh"}
SCRIPTS |= {"fabric_prerm": "fabric/prerm.sh"}


def script(kind: str, package: Package) -> str:
    """A maintainer script."""
    return _filled(package, FILES / SCRIPTS[kind])


def _filled(package: Package, path: Path) -> str:
    return fill(path.read_text(encoding="utf-8"), {"version": upstream(package.version)})


def _text(package: Package, *, name: str) -> File:
    return File(_filled(package, FILES / name).encode(), 0o755 if name.endswith(".sh") else 0o644)


def _program(package: Package, *, name: str) -> File:
    return File((PYTHON + _filled(package, HERE / f"{name}.py")).encode(), 0o755)


KINDS: dict[str, Callable[[Package], File]] = {
    "ctk": partial(_program, name="nvidia_ctk_program"),
    "container_runtime": partial(_program, name="nvidia_runtime_program"),
    "container_cli": partial(_program, name="nvidia_cli_program"),
    "container_hook": partial(_text, name="toolkit/hook.sh"),
    "cdi_hook": partial(_text, name="toolkit/cdi-hook.sh"),
    "cdi_refresh_service": partial(_text, name="toolkit/nvidia-cdi-refresh.service"),
    "cdi_refresh_path": partial(_text, name="toolkit/nvidia-cdi-refresh.path"),
    "fabric_manager": partial(_text, name="fabric/nv-fabricmanager.sh"),
    "fabric_start": partial(_text, name="fabric/start.sh"),
    "fabric_config": partial(_text, name="fabric/fabricmanager.cfg"),
    "fabric_unit": partial(_text, name="fabric/nvidia-fabricmanager.service"),
    "imex": partial(_text, name="fabric/nvidia-imex.sh"),
    "imex_unit": partial(_text, name="fabric/imex.service"),
    "nvlsm": partial(_text, name="fabric/nvlsm.sh"),
}
