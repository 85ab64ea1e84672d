"""Conda's installer, where the catalog knows less than it should."""

from __future__ import annotations

from dataclasses import replace

from gpustrap.resolve.conda import plan_conda

PROOF = "1" * 64


def test_an_installer_without_a_checksum_is_refused_until_somebody_gives_one(node, catalog):
    unproved = replace(catalog, conda=tuple(row.model_copy(update={"sha256": ""}) for row in catalog.conda))
    (problem,) = plan_conda(node().stack(unproved).inputs).problems
    assert problem.code == "checksum-unknown"
    assert "Miniforge3" in problem.message
    assert "set gpustrap_conda_installer_sha256" in problem.remedy
    part = plan_conda(node().stack(unproved, conda_installer_sha256=PROOF).inputs)
    assert part.variables["conda_installer_sha256"] == PROOF
