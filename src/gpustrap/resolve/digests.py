"""Digests that say whether a plan still fits: canonical JSON, SHA-256."""

from __future__ import annotations

import hashlib
import json

from gpustrap.model.facts import Facts
from gpustrap.model.lock import NodeLock
from gpustrap.model.request import Request

OF_APPLY = ("reboot", "reboot_minutes")  # how an apply may go about it; no plan rests on them


def request_digest(request: Request) -> str:
    """Of everything the user wants of a node.

    Of what differs from the defaults only: a gpustrap that learns a variable must not make every lock stale.
    """
    return _digest(request.model_dump(mode="json", exclude_defaults=True, exclude=set(OF_APPLY)))


def system_digest(facts: Facts) -> str:
    """Of what a plan rests on and an ordinary day does not change: distribution, architecture and PCI devices."""
    system = facts.os
    devices = [[p.address, p.vendor, p.device, p.subsystem_vendor, p.subsystem_device] for p in facts.pci]
    return _digest([system.id, system.version_id, system.codename, system.architecture, sorted(devices)])


def entry_digest(node: NodeLock) -> str:
    """Of a node's whole entry in the lock; the node's ledger keeps it."""
    return _digest(node.model_dump(mode="json"))


def _digest(data: object) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
