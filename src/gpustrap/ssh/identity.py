"""The site's own SSH key: made once, installed on nodes by appending one line."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gpustrap.model.site import Site
from gpustrap.ssh.problems import refuse
from gpustrap.ssh.session import Session

# Appends only. A file that does not end in a newline gets one first, or the new key would become part of its last
# line. cat says why it cannot write, which printf does not. Modes: sshd ignores the file if others may write to it or
# to its directory (StrictModes).
_INSTALL = r"""
set -eu
umask 077
key={key}
blob={blob}
cd "$HOME"
mkdir -p .ssh
file=.ssh/authorized_keys
[ -e "$file" ] || : > "$file"
if ! grep -v '^[[:space:]]*#' "$file" | grep -qF "$blob"; then
  if [ -s "$file" ] && [ -n "$(tail -c 1 "$file")" ]; then echo >> "$file"; fi
  printf '%s\n' "$key" | cat >> "$file"
fi
chmod go-w .ssh "$file"
if command -v restorecon >/dev/null 2>&1; then restorecon -R .ssh || :; fi
grep -qF "$blob" "$file"
"""


def ensure_key(site: Site) -> Path:
    """The site's private key (ed25519, 0600), made if it is not there; the public one is beside it."""
    private = site.ssh_key
    if not private.exists():
        private.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        descriptor, temporary = tempfile.mkstemp(dir=private.parent)  # 0600
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        try:
            os.link(temporary, private)  # never over a key that another enroll has just made
        except FileExistsError:
            pass
        finally:
            Path(temporary).unlink()
    public = private.with_name(f"{private.name}.pub")
    if not public.exists():
        public.write_text(f"{public_line(private, site.root.resolve().name)}\n", encoding="utf-8")
    return private


def public_line(private: Path, site_name: str) -> str:
    """The line for authorized_keys; its comment says whose key it is."""
    key = paramiko.PKey.from_path(private)
    return f"{key.get_name()} {key.get_base64()} gpustrap site {site_name}"


def install_key(session: Session, private: Path, site_name: str) -> None:
    """Let the site's key in on the node, for the login of this session. What else is in the file stays as it is.

    Raises:
        GpustrapError: key-install-failed, with the node's own words.
    """
    line = public_line(private, site_name)
    script = _INSTALL.format(key=shlex.quote(line), blob=shlex.quote(line.split()[1]))
    done = session.run("sh -s", stdin=script.encode())
    if done.rc:
        raise refuse(
            "key-install-failed",
            session.target.node,
            f"the site's key could not be added to ~/.ssh/authorized_keys of {session.target.user}",
            evidence=done.words,
            remedy=f"check space and ownership of that file on the node, then gpustrap enroll {session.target.node}",
        )
