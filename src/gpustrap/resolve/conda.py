"""Conda: which installer, proved by which checksum."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from gpustrap.catalog.schema import CondaInstaller
from gpustrap.errors import Problem
from gpustrap.model.lock import Choice
from gpustrap.model.urls import without_credentials
from gpustrap.resolve.parts import Inputs, Part

# Miniforge3-26.3.2-3-Linux-x86_64.sh, Miniconda3-py313_25.5.1-0-Linux-x86_64.sh
_VERSION_IN_NAME = re.compile(r"3-(?P<version>(?:py\d+_)?\d+(?:\.\d+)+-\d+)-Linux-")


def plan_conda(inputs: Inputs) -> Part:
    """Decide the variables of role conda."""
    request = inputs.request
    row = inputs.catalog.installer(request.conda_distribution, inputs.facts.os.architecture)
    problems = _terms(inputs)
    if request.conda_installer_url:
        version, url, checksum, missing = _custom(inputs, request.conda_installer_url)
    else:
        version, url, checksum, missing = _known(inputs, row)
    if problems or missing:
        return Part(problems=(*problems, *missing))
    own = bool(request.conda_installer_url)
    choice = Choice(
        item="conda",
        value=f"{request.conda_distribution} {version}",
        reason=_reason(inputs, row, version),
        source="request" if own or row is None else row.row,
        confidence="verified" if own or row is None else row.confidence,
        simulated=request.simulated,
    )
    variables = {
        "conda_distribution": request.conda_distribution,
        "conda_version": version,
        "conda_installer_url": url,
        "conda_installer_sha256": checksum,
        "conda_prefix": request.conda_prefix,
        "conda_channels": list(request.conda_channels),
        "conda_accept_anaconda_terms": request.conda_accept_anaconda_terms,
        "conda_proxy": inputs.proxy,
    }
    return Part((choice,), variables)


def _terms(inputs: Inputs) -> list[Problem]:
    request = inputs.request
    if request.conda_distribution != "miniconda" or request.conda_accept_anaconda_terms:
        return []
    message = "Miniconda and its channels need Anaconda's terms of service accepted, by you"
    remedy = "read anaconda.com/legal, then set gpustrap_conda_accept_anaconda_terms: true; miniforge has no such terms"
    return [inputs.problem("terms-not-accepted", message, remedy)]


Installer = tuple[str, str, str, list[Problem]]  # version, url, sha256, problems


def _custom(inputs: Inputs, url: str) -> Installer:
    """The user's own URL: its checksum must be given, its version at least be readable from the name."""
    request = inputs.request
    problems = []
    if urlsplit(url).scheme not in {"http", "https", "file"}:
        message = f"gpustrap_conda_installer_url is {without_credentials(url)!r}: that is no URL"
        problems.append(inputs.problem("bad-url", message, "write it as https://mirror/Miniforge3-….sh", usage=True))
    if not request.conda_installer_sha256:
        message = "gpustrap_conda_installer_url is set without its checksum"
        remedy = "set gpustrap_conda_installer_sha256, from a source you trust other than that URL"
        problems.append(inputs.problem("checksum-missing", message, remedy))
    in_name = _VERSION_IN_NAME.search(url)
    version = request.conda_version or (in_name["version"] if in_name else "")
    if not version:
        message = "the version of the installer cannot be read from gpustrap_conda_installer_url"
        problems.append(inputs.problem("version-missing", message, "set gpustrap_conda_version"))
    if in_name and version != in_name["version"]:
        message = f"gpustrap_conda_version is {version}, but gpustrap_conda_installer_url names {in_name['version']}"
        remedy = "leave gpustrap_conda_version out, or give the URL and the checksum of that version"
        problems.append(inputs.problem("version-mismatch", message, remedy))
    return version, url, request.conda_installer_sha256 or "", problems


def _known(inputs: Inputs, row: CondaInstaller | None) -> Installer:
    """The locked installer where it still fits the request, else the catalog's."""
    request = inputs.request
    if "conda" not in inputs.upgrade and inputs.same_request and inputs.kept("conda", "conda_version"):
        locked = (inputs.kept("conda", f"conda_{key}") for key in ("version", "installer_url", "installer_sha256"))
        version, url, checksum = map(str, locked)
        return version, url, checksum, []
    version, url = (row.version, row.url) if row else ("", "")
    if not url or (request.conda_version and request.conda_version != version):
        wanted = f"{request.conda_distribution} {request.conda_version or ''}".strip()
        message = f"the catalog has no installer of {wanted} for {inputs.facts.os.architecture}"
        remedy = "set gpustrap_conda_installer_url and gpustrap_conda_installer_sha256"
        evidence = f"it has {version}" if version else (row.source if row else "")
        return "", "", "", [inputs.problem("installer-unknown", message, remedy, evidence=evidence)]
    checksum = request.conda_installer_sha256 or (row.sha256 if row else "")
    if not checksum:
        message = f"the catalog has no checksum of {url}"
        remedy = "set gpustrap_conda_installer_sha256, from a source you trust"
        return "", "", "", [inputs.problem("checksum-unknown", message, remedy)]
    return version, url, checksum, []


def _reason(inputs: Inputs, row: CondaInstaller | None, version: str) -> str:
    if inputs.request.conda_installer_url:
        return "gpustrap_conda_installer_url and its checksum, from the inventory"
    if row and row.version != version:
        return f"locked; the catalog has {row.version}: gpustrap plan --upgrade takes it"
    return "the catalog's version, with its checksum"
