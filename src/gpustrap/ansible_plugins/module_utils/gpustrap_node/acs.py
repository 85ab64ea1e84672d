"""Access Control Services of a bridge: whether it sends traffic between the devices below it up to the root."""

from __future__ import annotations

from typing import Callable

EXTENDED = 0x100  # where the extended capabilities begin; only root may read them
ACS = 0x000D
CONTROL = 6
# Source Validation, P2P Request Redirect, P2P Completion Redirect; the first is what NVIDIA's check for it looks at.
REDIRECTS = 0x01 | 0x04 | 0x08
MOST = 480  # capabilities that fit


def parse_redirect(read: Callable[[int, int], bytes]) -> bool | None:
    """Whether ACS is switched on in a bridge; None where its configuration cannot be read that far.

    Args:
        read: Gives as many bytes (second) of the configuration space from an offset (first) on as there are.
    """
    offset = EXTENDED
    for _ in range(MOST):
        header = read(offset, 4)
        if len(header) < 4 or header == b"\xff" * 4:  # not root, no such space, or the device is asleep or gone
            return None
        word = int.from_bytes(header, "little")
        if word & 0xFFFF == ACS:
            control = read(offset + CONTROL, 2)
            return bool(int.from_bytes(control, "little") & REDIRECTS) if len(control) == 2 else None
        offset = word >> 20
        if offset < EXTENDED:
            return False
    return None
