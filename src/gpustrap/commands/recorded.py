"""Recorded facts, also those that a person wrote: what is plainly meant is read so, what is not known is named."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from gpustrap.catalog.schema import Catalog
from gpustrap.model.facts import Facts
from gpustrap.model.plan import Finding
from gpustrap.resolve.gpu.boards import unclassed
from gpustrap.resolve.plan import MANAGERS
from gpustrap.site.meant import closest
from gpustrap.site.values import in_words

SHOWN = 5
LOOKED_AT = 100  # keys that are not known; hostile facts may have millions
LONGEST = 60  # characters of one
NEAR = 0.7
MACHINES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}  # what uname -m says of what others call so
CLASSES = {"vga": "0300", "3d": "0302"}  # as lspci calls them
CALLED = {"gpu": "pci", "gpus": "pci"}
EXAMPLES: Mapping[str, object] = {
    "os": {"id": "ubuntu", "version_id": "24.04", "architecture": "x86_64"},
    "os.id": "ubuntu",
    "os.version_id": "24.04",
    "os.architecture": "x86_64",
    "kernel": {"running": "6.8.0-60-generic"},
    "kernel.running": "6.8.0-60-generic",
    "pci": [{"address": "0000:01:00.0", "vendor": "10de", "device": "2204", "pci_class": "0300"}],
    "pci.address": "0000:01:00.0",
    "pci.vendor": "10de",
    "pci.device": "2204",
    "pci.pci_class": "0300",
    "bridges.address": "0000:00:01.0",
    "secure_boot": {"enabled": True},
    "memory": {"total": 137438953472},
    "filesystems": [{"mount": "/", "size": 500000000000, "free": 400000000000}],
    "filesystems.mount": "/",
    "package_manager": {"kind": "apt"},
    "package_manager.sources.file": "/etc/apt/sources.list",
    "package_manager.sources.uri": "https://mirror.example/debian",
    "package_manager.sources.suite": "trixie",
    "package_manager.locks.path": "/var/lib/dpkg/lock",
    "package_manager.locks.pid": 1234,
    "installs.what": "docker",
    "boot.kernels.release": "6.8.0-60-generic",
    "boot.libraries.version": "580.95.05",
    "boot.libraries.path": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05",
}


@dataclass(frozen=True, slots=True)
class Recorded:
    """One node's facts, and what a person should know of how they were read."""

    facts: Facts
    findings: tuple[Finding, ...] = ()


class ShapeError(Exception):
    """Something has not the shape of facts; the evidence, and the remedy."""

    def __init__(self, evidence: str, remedy: str) -> None:
        super().__init__(evidence)
        self.evidence, self.remedy = evidence, remedy


@dataclass(frozen=True, slots=True)
class _Key:
    """A key that facts do not have, where it is, and what may have been meant."""

    path: str
    near: str

    def __str__(self) -> str:
        return f"{self.path} (did you mean {self.near}?)" if self.near else self.path


def read_recorded(data: object, catalog: Catalog) -> Recorded:
    """The facts in what a file holds of a node: hostile input.

    Args:
        data: What JSON or YAML made of it.
        catalog: Tells the package manager of a distribution where the facts do not, and boards without a PCI class.

    Raises:
        ShapeError: They are none.
    """
    try:
        facts = Facts.model_validate(_tidied(data, catalog))
    except ValidationError as error:
        raise _misshapen(error, data) from error
    unknown = tuple(dict.fromkeys(islice(_unknown(data, Facts), LOOKED_AT)))
    found = (*((_not_known(unknown),) if unknown else ()), *(_no_class(facts, catalog)))
    return Recorded(facts, found)


def _tidied(data: object, catalog: Catalog) -> object:
    """As the probe would have written it."""
    if not isinstance(data, dict):
        return data
    tidy = dict(data)
    system, devices = tidy.get("os"), tidy.get("pci")
    if isinstance(system, dict):
        machine = system.get("architecture")
        if isinstance(machine, str):
            system = tidy["os"] = system | {"architecture": MACHINES.get(machine.lower(), machine)}
        manager = tidy.get("package_manager", {})
        distro = catalog.distro(str(system.get("id")), str(system.get("version_id")))
        if distro and isinstance(manager, dict):
            tidy["package_manager"] = {"kind": MANAGERS[distro.family]} | manager
    if isinstance(devices, list):
        tidy["pci"] = [_device(device) if isinstance(device, dict) else device for device in devices]
    return tidy


def _device(given: dict[Any, Any]) -> dict[Any, Any]:
    """A PCI device with bare, lower-case numbers, however lspci or a person wrote them."""
    device = dict(given)
    for key in ("vendor", "device", "subsystem_vendor", "subsystem_device", "pci_class"):
        if isinstance(device.get(key), str):
            device[key] = device[key].strip().lower().removeprefix("0x")
    for vendor, key in (("vendor", "device"), ("subsystem_vendor", "subsystem_device")):
        if isinstance(device.get(key), str) and ":" in device[key]:
            of_vendor, _, device[key] = device[key].partition(":")
            device.setdefault(vendor, of_vendor)
    kind = device.get("pci_class")
    if isinstance(kind, str):
        named = next((number for name, number in CLASSES.items() if kind.startswith(name)), kind)
        device["pci_class"] = named[:4] if len(named) == 6 else named  # sysfs has the programming interface, too
    return device


def _unknown(data: object, model: type[BaseModel], where: str = "") -> Iterator[_Key]:
    if not isinstance(data, dict):
        return
    for name, value in data.items():
        path = f"{where}{str(name)[:LONGEST]}"
        field = model.model_fields.get(name) if isinstance(name, str) else None
        if field is None:
            yield _Key(path, _near(str(name), model, where))
            continue
        inner = _model_in(field.annotation)
        if inner:
            many = isinstance(value, list)
            for entry in value if many else [value]:
                yield from _unknown(entry, inner, f"{path}[]." if many else f"{path}.")


def _model_in(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401 - any annotation
    inner = get_args(annotation)[0] if get_origin(annotation) is tuple else annotation
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None


def _near(name: str, model: type[BaseModel], where: str) -> str:
    """A key of the same mapping that is alike, else one of that very name elsewhere."""
    fields = list(model.model_fields)
    longer = [field for field in fields if len(name) > 2 and (field.startswith(name) or field.endswith(f"_{name}"))]
    here = closest(name, fields, cutoff=NEAR) or next(iter(longer), "")
    if here:
        return where + here
    if not where and name in CALLED:
        return CALLED[name]
    if where and (top := closest(name, Facts.model_fields, cutoff=NEAR)):
        return f"{top}, which is no part of {where.rstrip('.')}"
    others = {field: _model_in(info.annotation) for field, info in Facts.model_fields.items()}
    return next((f"{field}.{name}" for field, inner in others.items() if inner and name in inner.model_fields), "")


def _not_known(unknown: tuple[_Key, ...]) -> Finding:
    shown = ", ".join(map(str, unknown[:SHOWN])) + (f" and {len(unknown) - SHOWN} more" if len(unknown) > SHOWN else "")
    many = len(unknown) > 1
    guessed = any(key.near for key in unknown)
    return Finding(
        code="facts-not-known",
        severity="warning",
        subject="",
        message=f"its facts have {'keys that are' if many else 'a key that is'} not known and left out: {shown}",
        evidence="\n".join(map(str, unknown)),
        advice=f"correct {'them' if many else 'it'} in the file"
        if guessed
        else "leave it so if a newer gpustrap recorded the facts; else see docs/plan.md for what they can hold",
    )


def _no_class(facts: Facts, catalog: Catalog) -> Iterator[Finding]:
    for pci in unclassed(facts, catalog):
        yield Finding(
            code="pci-class-missing",
            severity="warning",
            subject=f"PCI device {pci.address}",
            message=f"{pci.vendor}:{pci.device} is no board that the catalog lists, and "
            + (f"its class {pci.pci_class} is none" if pci.pci_class else "has no class")
            + ", so it is not taken for a GPU",
            advice='give it its pci_class in the facts, as lspci -nn shows it: "0300" or "0302" are GPUs',
        )


def _misshapen(error: ValidationError, data: object) -> ShapeError:
    """What is wrong in words, and what to do about the first of it."""
    items: list[dict[str, Any]] = [dict(item) for item in error.errors(include_url=False)]
    unknown = {key.near: key.path for key in islice(_unknown(data, Facts), LOOKED_AT) if key.near}
    lines = []
    for item in items[:SHOWN]:
        instead = unknown.get(_kind(item["loc"]), "") if item["type"] == "missing" else ""
        meant = f"; {instead} may be meant for it" if instead else ""
        lines.append(f"{_path(item['loc']) or 'it'} {in_words(item)}{meant}")
    first = items[0]
    path, kind = _path(first["loc"]), _kind(first["loc"])
    example = json.dumps(EXAMPLES[kind]) if kind in EXAMPLES else ""
    if first["loc"] == ("schema_version",):
        remedy = "a newer gpustrap may have recorded it: plan it with that one"
    elif first["type"] == "missing" and kind in unknown:
        remedy = f"rename {unknown[kind]} to {kind}"
    elif first["type"] == "missing":
        any_will_do = "any " if kind.endswith("address") else ""
        remedy = f"add {path}, {any_will_do}like {example}" if example else f"add {path}"
    elif example:
        remedy = f"write {path} like {example}"
    else:
        remedy = f"correct {path}" if path else "see docs/plan.md for what facts hold"
    return ShapeError("\n".join(lines), remedy)


def _kind(loc: tuple[int | str, ...]) -> str:
    """``pci.address``, of whichever device."""
    return ".".join(part for part in loc if isinstance(part, str))


def _path(loc: tuple[int | str, ...]) -> str:
    """``pci[0].address``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")
