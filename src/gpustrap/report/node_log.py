"""The part of Ansible's log that is about one node."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

_HEADING = re.compile(r"(?:PLAY|TASK|RUNNING HANDLER|NO MORE HOSTS)\b")
# ok: [n1], changed: [n1 -> n2] => (item=x), FAILED - RETRYING: [n1]: Ensure x (3 retries left).
_RESULT = re.compile(r"[A-Za-z][\w .!-]*: \[(?P<node>[^\]\s]+)(?: -> [^\]]*)?\]")
_RECAP = re.compile(r"(?P<node>\S+)\s+: ok=\d")
_DIFF = re.compile(r"(?:---|\+\+\+)(?: |$)")
_WORD = r"(?<![\w.\-]){}(?![\w\-]|\.\w)"


def lines_about(node: str, others: Collection[str], log: str) -> Iterator[str]:
    """The headings, what Ansible said of the node, and what it said of none.

    A line without a node's name belongs to the last that was named. A difference in a file is printed before its
    node is named, so with more than one node in the run nobody can tell whose it is: it is left out.

    Args:
        node: Inventory name.
        others: The other nodes of the run.
        log: Of ``ansible.log``.
    """
    if not others:
        yield from log.split("\n")
        return
    named = re.compile(_WORD.format(f"(?:{'|'.join(map(re.escape, others))})"))
    ours = True
    for line in log.split("\n"):  # and at nothing else: a node may have said any other end of a line
        if _HEADING.match(line):
            ours = True
            yield line
            continue
        result = _RESULT.match(line) or _RECAP.match(line)
        if result:
            ours = result["node"] == node
        elif _DIFF.match(line):
            ours = False
        if ours and (result or not named.search(line)):
            yield line
