"""What the catalog looks up by an index is what a scan of its rows finds."""

from __future__ import annotations

from gpustrap.catalog.loader import load_catalog
from gpustrap.catalog.schema import Catalog
from gpustrap.catalog.schema_gpu import Gpu

CATALOG = load_catalog()
NOWHERE = "0000"


def scanned(catalog: Catalog, device: str, subsystem: str) -> tuple[Gpu, ...]:
    found = tuple(g for g in catalog.gpus if device in g.ids)
    exact = tuple(g for g in found if g.subsystem == subsystem)
    return exact or tuple(g for g in found if not g.subsystem) or found


def test_boards_of_every_id_with_every_subsystem() -> None:
    devices = {number for gpu in CATALOG.gpus for number in gpu.ids} | {NOWHERE}
    subsystems = {gpu.subsystem for gpu in CATALOG.gpus} | {"", NOWHERE}
    assert len(devices) > len(CATALOG.gpus)
    for device in devices:
        for subsystem in subsystems:
            assert CATALOG.boards(device, subsystem) == scanned(CATALOG, device, subsystem)


def test_every_driver_branch() -> None:
    for branch in (*(row.branch for row in CATALOG.drivers), "999"):
        assert CATALOG.driver(branch) is next((row for row in CATALOG.drivers if row.branch == branch), None)
