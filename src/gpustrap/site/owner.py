"""A site stays its user's, also where gpustrap was run as root: with sudo, or by the boot."""

from __future__ import annotations

import os
from contextlib import suppress

from gpustrap.model.site import Site


def give_back(site: Site) -> None:
    """Give what root made in a site to whom the site belongs; does nothing as any other user."""
    if os.geteuid() != 0:
        return
    with suppress(OSError):
        owner = site.root.stat()
        made = [site.lock, site.state, *site.state.rglob("*")] if owner.st_uid else []
        for path in made:
            with suppress(OSError):
                if path.lstat().st_uid == 0:
                    os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
