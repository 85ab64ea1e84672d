"""The base of a node: packages, name, time, upgrades, SSH."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from gpustrap.errors import Problem
from gpustrap.model.lock import Choice
from gpustrap.resolve.parts import Inputs, Part

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_TIMEZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")


def plan_server(inputs: Inputs) -> Part:
    """Decide the variables of role ubuntu_server."""
    request = inputs.request
    service, reason, source = _time_sync(inputs)
    packages = [*inputs.catalog.server.base_packages.packages]
    if request.time_sync:
        packages.append(service)
    if request.unattended_upgrades == "security":
        packages.append("unattended-upgrades")
    if request.timezone:
        packages.append("tzdata")  # minimal installations have no zones
    packages += request.packages
    problems = (*_bad_names(inputs), *_bad_proxy(inputs), *_unknown_packages(inputs))
    choice = Choice(item="time-sync", value=service if request.time_sync else "none", reason=reason, source=source)
    variables = {
        "ubuntu_server_packages": list(dict.fromkeys(packages)),
        "ubuntu_server_hostname": request.hostname or "",
        "ubuntu_server_timezone": request.timezone or "",
        "ubuntu_server_time_sync": request.time_sync,
        "ubuntu_server_time_sync_service": service,
        "ubuntu_server_unattended_upgrades": request.unattended_upgrades,
        "ubuntu_server_ssh_hardening": request.ssh_hardening,
        "ubuntu_server_proxy": inputs.proxy,
    }
    return Part((choice,), variables, problems)


def _time_sync(inputs: Inputs) -> tuple[str, str, str]:
    """Service, reason, source."""
    installed = inputs.facts.package_manager.packages
    server = inputs.catalog.server.time_sync
    service = next((name for name in server.packages if name in installed), inputs.distro.time_sync)
    if not inputs.request.time_sync:
        return service, "gpustrap_time_sync is false", "request"
    if service in installed:
        return service, f"{service} is installed and is kept", f"node: {service} {installed[service]}"
    return service, f"the default of {inputs.distro.name}", inputs.distro.row


def _bad_names(inputs: Inputs) -> list[Problem]:
    request = inputs.request
    found = []
    if request.hostname and not (_HOST_NAME.fullmatch(request.hostname) and len(request.hostname) <= 253):
        message = f"gpustrap_hostname is {request.hostname!r}: that is no host name"
        remedy = "use letters, digits, hyphens and dots in gpustrap_hostname"
        found.append(inputs.problem("bad-host-name", message, remedy, usage=True))
    if request.timezone and not _TIMEZONE.fullmatch(request.timezone):
        message = f"gpustrap_timezone is {request.timezone!r}: that is no time zone"
        found.append(inputs.problem("bad-time-zone", message, "timedatectl list-timezones shows them", usage=True))
    return found


def _bad_proxy(inputs: Inputs) -> list[Problem]:
    proxy = inputs.request.proxy
    found = []
    for key, url in (("http", proxy.http), ("https", proxy.https)):
        if url and urlsplit(url).scheme not in {"http", "https"}:
            message = f"gpustrap_proxy.{key} is no http or https URL"
            remedy = f"write gpustrap_proxy.{key} as http://host:port"
            found.append(inputs.problem("bad-proxy", message, remedy, usage=True))
    return found


def _unknown_packages(inputs: Inputs) -> list[Problem]:
    manager = inputs.facts.package_manager
    unknown = [p for p in inputs.request.packages if p not in manager.candidates and p not in manager.packages]
    if not unknown:
        return []
    message = f"gpustrap_packages names what apt on the node does not know: {', '.join(unknown)}"
    remedy = f"correct gpustrap_packages, or on the node: sudo apt-get update; then gpustrap plan {inputs.name}"
    return [inputs.problem("package-unavailable", message, remedy)]
