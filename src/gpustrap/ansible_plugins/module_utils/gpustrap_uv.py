"""The uv of the lock, taken as its wheel from the package index. Standard library and Ansible's own client only."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import urllib.parse
import zipfile
from html.parser import HTMLParser
from typing import Any

from ansible.module_utils.common.text.converters import to_native
from ansible.module_utils.gpustrap_environment_place import BuildError
from ansible.module_utils.urls import open_url

ACCEPT = "application/vnd.pypi.simple.v1+html, text/html;q=0.9"
PAGE_LIMIT = 64 << 20


class Links(HTMLParser):
    """The addresses of a page of an index."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[Any]) -> None:
        """One element."""
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def ensure(directory: str, wanted: dict[str, Any], index: str, ca_bundle: str) -> str:
    """The path of the uv that the lock names; fetched where it is not there.

    Args:
        directory: Where versions of uv are kept.
        wanted: ``version``, ``file`` and ``sha256`` of its wheel.
        index: The package index.
        ca_bundle: CA certificates; empty for the system's.

    Raises:
        BuildError: It cannot be had, or is not what the lock says.
    """
    path = os.path.join(directory, wanted["version"], "uv")
    if os.access(path, os.X_OK):
        return path
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix=".new-", dir=directory)
    try:
        wheel = os.path.join(scratch, wanted["file"])
        _download(locate(index, wanted["file"], ca_bundle), wheel, wanted["sha256"], ca_bundle)
        program = os.path.join(scratch, "uv")
        _unpack(wheel, program)
        os.replace(program, path)
    except OSError as error:
        raise BuildError("{0}: uv cannot be put there: {1}".format(directory, error.strerror)) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return path


def locate(index: str, file: str, ca_bundle: str) -> str:
    """The address of uv's wheel, as the index has it.

    Raises:
        BuildError: The index cannot be read, or has no such file.
    """
    page = index.rstrip("/") + "/uv/" + ("index.html" if index.startswith("file:") else "")
    with _open(page, ca_bundle) as answer:
        links = Links()
        links.feed(answer.read(PAGE_LIMIT).decode("utf-8", "replace"))
        base = answer.geturl()
    for link in links.found:
        plain = urllib.parse.urldefrag(link)[0]
        if urllib.parse.unquote(plain).rpartition("/")[2].partition("?")[0] == file:
            return str(urllib.parse.urljoin(base, plain))
    raise BuildError(
        "the package index {0} has no {1}; where it is a mirror of your own, mirror that file of uv".format(index, file)
    )


def _open(url: str, ca_bundle: str) -> Any:  # noqa: ANN401 - urllib's answer
    try:
        return open_url(url, headers={"Accept": ACCEPT}, timeout=60, http_agent="gpustrap", ca_path=ca_bundle or None)
    except Exception as error:
        raise BuildError("{0} cannot be had: {1}".format(url, to_native(error))) from error


def _download(url: str, path: str, sha256: str, ca_bundle: str) -> None:
    digest = hashlib.sha256()
    with _open(url, ca_bundle) as answer, open(path, "wb") as file:
        try:
            for block in iter(lambda: answer.read(1 << 20), b""):
                digest.update(block)
                file.write(block)
        except (OSError, ValueError) as error:
            raise BuildError("{0} cannot be had: {1}".format(url, to_native(error))) from error
    if digest.hexdigest() != sha256:
        raise BuildError(
            "{0} has SHA-256 {1}, the lock says {2}; it was not run".format(url, digest.hexdigest(), sha256)
        )


def _unpack(wheel: str, program: str) -> None:
    """The program out of its wheel, whole and on the disk."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".data/scripts/uv"))
            with archive.open(name) as source, open(program, "wb") as target:
                shutil.copyfileobj(source, target)
                target.flush()
                os.fsync(target.fileno())
    except (zipfile.BadZipFile, StopIteration) as error:
        raise BuildError("{0} holds no uv".format(os.path.basename(wheel))) from error
    os.chmod(program, 0o755)  # noqa: S103 - a program for everybody
