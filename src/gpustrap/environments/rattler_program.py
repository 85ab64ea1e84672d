"""A program: reads what is to be solved from its standard input, and writes what rattler found to its output."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any


def main() -> None:
    """Solve; every failure is an answer, too."""
    asked = json.load(sys.stdin)
    if os.environ.get("UV_OFFLINE", "") not in {"", "0", "false"}:
        answer: dict[str, Any] = {"error": "offline", "words": ""}
    else:
        answer = _solved(asked)
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # rattler's threads may still run, and Python would abort: docs/decisions/0070


def _solved(asked: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"packages": asyncio.run(_solve(asked))}
    except ImportError as error:
        return {"error": "missing", "words": str(error)}
    except Exception as error:  # noqa: BLE001 - rattler's kinds of failure have no common base
        return {"error": type(error).__name__, "words": str(error)}


async def _solve(asked: dict[str, Any]) -> list[dict[str, str]]:
    import rattler  # noqa: PLC0415 - told where it is missing

    gateway, files = rattler.Gateway(), set(asked["preferred"])
    locked = []
    if files:
        names = sorted({file.rsplit("-", 2)[0] for file in files})
        known = await gateway.query(asked["channels"], asked["subdirs"], names, recursive=False)
        locked = [record for part in known for record in part if record.file_name in files]
    records = await rattler.solve(
        asked["channels"],
        asked["specs"],
        gateway=gateway,
        platforms=asked["subdirs"],
        locked_packages=locked,
        virtual_packages=[
            rattler.GenericVirtualPackage(
                rattler.PackageName(name), rattler.Version(version), rattler.BuildString(build)
            )
            for name, version, build in asked["virtual"]
        ],
        constraints=asked["constraints"],
    )
    return [_record(record) for record in records]


def _record(record: Any) -> dict[str, str]:  # noqa: ANN401 - rattler has no types
    digest = record.sha256.hex() if record.sha256 else ""
    return {"name": record.name.normalized, "url": str(record.url), "sha256": digest}


if __name__ == "__main__":
    main()
