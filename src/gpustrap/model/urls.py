"""Addresses that hold a user name, a password or a token: they are refused, and shown without."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_USER_INFO = re.compile(r"(://|['\"]|^)[^\s'\"]*@")
CONDA_TOKEN = re.compile(r"/t/[^/\s'\"]+")  # https://conda.anaconda.org/t/TOKEN/channel


def holds_credentials(text: str) -> bool:
    """Whether a URL holds a user name or password. A text without ``://`` is no URL."""
    if "://" not in text:
        return False
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:  # a password with a raw slash looks like a port that is no number
        return "@" in text
    return "@" in parts.netloc


def without_credentials(text: str) -> str:
    """The text as it may be shown: what stands before an ``@``, and conda's tokens, are left out."""
    return CONDA_TOKEN.sub("/t/…", _USER_INFO.sub(r"\1…@", text))
