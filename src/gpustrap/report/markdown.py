"""Reports as Markdown, for an issue, a merge request or a wiki."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from gpustrap.report import escape
from gpustrap.report.certificate_view import FleetView
from gpustrap.report.view import RunView, counted, duration


class _Ready(str):
    """Markdown of our own making; everything else is escaped."""

    __slots__ = ()


def _finalize(value: Any) -> Any:  # noqa: ANN401 - whatever a template shows
    return escape.markdown(value) if isinstance(value, str) and not isinstance(value, _Ready) else value


_ENVIRONMENT = Environment(
    loader=PackageLoader("gpustrap.report"),
    autoescape=False,  # noqa: S701 - this is Markdown: `_finalize` escapes for it
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    finalize=_finalize,
)
_ENVIRONMENT.filters.update(
    duration=duration,
    counted=counted,
    code=lambda text: _Ready(escape.markdown_code(text)),
    block=lambda text: _Ready(escape.markdown_block(text)),
)


def render(view: RunView) -> str:
    """The document of a run."""
    return _ENVIRONMENT.get_template("report.md.j2").render(view=view)


def render_certificates(view: FleetView) -> str:
    """The document of a verification."""
    return _ENVIRONMENT.get_template("certificate.md.j2").render(view=view)
