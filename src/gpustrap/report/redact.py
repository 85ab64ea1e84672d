"""Takes what is secret out of texts and data before they leave the site.

Errs on the side of taking too much: a support archive is read by strangers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gpustrap.model.spellings import spellings

GONE = "[redacted]"

# A name that has one of these in it holds a secret.
_WORDS = (
    r"pass(?:word|wd|phrase)?|secret|token|(?:api|access|private)[_\-]?key|credential|authorization|cookie"
    r"|(?:session|machine|boot)[_\-]?id|serial[_\-]?number"
)
_NAMED = rf"(?=[\w.\-]*?(?:{_WORDS}))[\w.\-]++"  # looks ahead, then takes the whole word: never backtracks
_NAME = re.compile(rf"^(?:{_NAMED}|auth|pw|pwd)$", re.IGNORECASE)
# Names that say how a secret is used; their values are none.
_HARMLESS_NAME = re.compile(r"^(?:passwordless|password_?(?:authentication|fd)|nopasswd)$", re.IGNORECASE)

_START = r"(?<![\w.\-])"  # where a word with dots and dashes begins: once per word, or a long one costs its square
_IS = r"(\\?[\"']?\s*[:=]\s*)"  # between name and value; a quote before it may itself be escaped
_QUOTE = r"(\\?[\"'])"
_KEY = r"PRIVATE KEY(?: BLOCK)?-----"
_HEADER = r"\b((?:proxy-)?authorization|(?:set-)?cookie)"
_KNOWN_BEGINNINGS = r"gh[pousr]_|github_pat_|glpat-|hf_|nvapi-|xox[abprs]-|sk-|npm_|pypi-"

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), replacement)
    for pattern, replacement in (
        # A private key, also one that was cut off.
        (rf"-----BEGIN [A-Z ]*{_KEY}.*?(?:-----END [A-Z ]*{_KEY}|\Z)", GONE),
        # scheme://user:password@host; a password may hold an @ itself, the host cannot
        (r"(\b[a-z][a-z0-9+.\-]{0,20}://)[^\s/\"']+@", rf"\1{GONE}@"),
        # https://conda.anaconda.org/t/TOKEN/channel
        (r"(/t/)[^\s/\"']{6,}(?=/)", rf"\1{GONE}"),
        # Authorization: Bearer …, Cookie: …: to the end of the line or the quote
        (rf"{_HEADER}{_IS}{_QUOTE}?[^\r\n\"'\\]+", rf"\1\2\3{GONE}"),
        (r"\b(bearer|basic)\s+[\w.~+/=\-]{8,}", rf"\1 {GONE}"),
        # "password": "…": to the quote that began it
        (rf"{_START}({_NAMED}|auth|pwd){_IS}{_QUOTE}[^\r\n]{{0,4000}}?\3", rf"\1\2\3{GONE}\3"),
        # password=…: to a space or a separator
        (rf"{_START}({_NAMED}|pwd){_IS}(?!\\?[\"'\[{{])[^\s,;&\"'}})\]]+", rf"\1\2{GONE}"),
        # --password …, --token=…
        (rf"{_START}(--?{_NAMED}(?:\s+|=))(?!-)[^\s\"']+", rf"\1{GONE}"),
        # Hashes of passwords, as in /etc/shadow.
        (r"\$(?:1|2[abxy]?|5|6|7|y|gy|sha1|argon2\w*)\$[^\s:\"']+", GONE),
        # Tokens that tell themselves by their beginning: of forges and hubs, AWS key ids, JSON web tokens.
        (rf"\b(?:{_KNOWN_BEGINNINGS})[\w\-]{{8,}}", GONE),
        (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", GONE),
        (r"(?<![\w\-])eyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*", GONE),
        # machine-id, and whatever else has its shape; a sha256 is longer and stays.
        (r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", GONE),
    )
)


def redact(text: str, known: Iterable[str | None] = ()) -> str:
    """The text without secrets.

    Args:
        text: Anything: a log, a configuration file, JSON.
        known: Passwords of this run, taken out wherever they occur.
    """
    for spelling in spellings(known):
        text = text.replace(spelling, GONE)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def redact_data(data: Any, known: Iterable[str | None] = ()) -> Any:  # noqa: ANN401 - whatever JSON holds
    """The same for parsed JSON: every value under a secret's name goes, and every text is redacted."""
    known = tuple(known)
    if isinstance(data, Mapping):
        return {
            redact(str(key), known): GONE if _is_secret(str(key), value) else redact_data(value, known)
            for key, value in data.items()
        }
    if isinstance(data, list | tuple):
        return [redact_data(item, known) for item in data]
    return redact(data, known) if isinstance(data, str) else data


def _is_secret(key: str, value: Any) -> bool:  # noqa: ANN401 - whatever JSON holds
    empty = value is None or isinstance(value, bool) or value in ("", [], {})
    return not empty and bool(_NAME.match(key)) and not _HARMLESS_NAME.match(key)
