"""The report as one HTML file: no script, nothing fetched from anywhere."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from gpustrap.report.escape import visible
from gpustrap.report.view import VERDICT_TONES, RunView, counted, duration

_ENVIRONMENT = Environment(
    loader=PackageLoader("gpustrap.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=lambda value: visible(value) if isinstance(value, str) else value,
)
_ENVIRONMENT.filters.update(duration=duration, counted=counted)
_ENVIRONMENT.globals["tones"] = VERDICT_TONES


def render(view: RunView) -> str:
    """The page."""
    return _ENVIRONMENT.get_template("report.html.j2").render(view=view)
