"""Today's package lists without touching the node's own: fetched into a private directory, gone afterwards.

A fresh machine has no lists, and old ones name versions that the archive dropped. ``apt-get update`` would change the
node; planning must not.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from typing import Iterator

from .host import Host

LISTS = "/var/lib/apt/lists"
DAY = 24 * 3600
# The hooks of update (command-not-found, update-notifier, …) change the machine; #clear only works in a file.
CONFIG = """#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Sandbox::User "root";
Dir::State::Lists "{0}/lists";
Dir::Cache "{0}/cache";
Acquire::Languages "none";
Acquire::Retries "1";
"""


def outdated(host: Host) -> bool:
    """Whether the node's own lists are missing or older than a day."""
    found = host.match(LISTS, "*_InRelease") + host.match(LISTS, "*_Release")
    times = [s.st_mtime for s in map(host.stat, found) if s]
    # A list has its archive's time, the directory the time of the last update.
    directory = host.stat(LISTS)
    return not times or directory is None or time.time() - max(*times, directory.st_mtime) > DAY


@contextmanager
def fresh(host: Host) -> Iterator[list[str]]:
    """Give the options that make apt read today's lists; none where the node's own will do or nothing can be had."""
    if not (host.live and host.is_root and outdated(host)):
        yield []
        return
    scratch = tempfile.mkdtemp(prefix="gpustrap-lists-")
    try:
        for name in ("lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(scratch, name))
        config = os.path.join(scratch, "apt.conf")
        with open(config, "w", encoding="utf-8") as stream:
            stream.write(CONFIG.format(scratch))
        answer = host.run(["apt-get", "-q", "-c", config, "update"], timeout=60)
        if answer is None or answer.rc != 0:
            why = answer.stderr.strip()[-500:] if answer else "too slow"
            host.note("today's package lists cannot be had: %s" % why)
            yield []
        else:
            yield ["-c", config]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
