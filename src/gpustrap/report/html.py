"""Reports as one HTML file: no script, nothing fetched from anywhere."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from gpustrap.report.certificate_view import FleetView
from gpustrap.report.escape import visible
from gpustrap.report.view import VERDICT_TONES, RunView, counted, duration


def _finalize(value: Any) -> Any:  # noqa: ANN401 - whatever a template shows
    """Text is made visible; what a macro of ours made is markup already, and what it shows was made visible there."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


_ENVIRONMENT = Environment(
    loader=PackageLoader("gpustrap.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=_finalize,
)
_ENVIRONMENT.filters.update(duration=duration, counted=counted)
_ENVIRONMENT.globals["tones"] = VERDICT_TONES


def render(view: RunView) -> str:
    """The page of a run."""
    return _ENVIRONMENT.get_template("report.html.j2").render(view=view)


def render_certificates(view: FleetView) -> str:
    """The page of a verification."""
    return _ENVIRONMENT.get_template("certificate.html.j2").render(view=view)
