"""Repositories whose driver packages get mixed with the planned ones."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpustrap.resolve.gpu.installed import whose
from gpustrap.resolve.preflight.view import Seen, View, warning

CUDA_REPOSITORY = re.compile(r"/compute/cuda/repos/([a-z]+\d+)/")


def look_at_repositories(view: View) -> Iterator[Seen]:
    """Third repositories with the same package names, and NVIDIA's for another distribution."""
    refresh = view.words("sudo apt-get update", "sudo dnf makecache")
    others: dict[tuple[str, str], list[str]] = {}
    for source in view.facts.package_manager.sources:
        owner = whose(view.inputs, source.uri)
        line = f"{source.file}: {source.uri} {source.suite}".rstrip()
        if not source.enabled:
            continue
        if owner not in {"nvidia", "distribution"}:
            others.setdefault((source.file, owner), []).append(line)
        named = CUDA_REPOSITORY.search(source.uri)
        if named and named[1] != view.inputs.distro.nvidia:
            yield warning(
                "nvidia-repository-mismatch",
                source.file,
                f"NVIDIA's repository for {named[1]} is among the sources of {view.inputs.distro.name}",
                evidence=line,
                advice=f"switch it off in {source.file}, then: {refresh}",
            )
    for (file, owner), lines in others.items():
        yield warning(
            "driver-repositories-mixed",
            file,
            f"{owner} is among the sources of packages: it has driver packages of the same names in other versions",
            evidence="\n".join(dict.fromkeys(lines)),
            advice=f"switch it off in {file}, then: {refresh}",
        )
