"""What enroll asks a node first, with nothing but a shell: who we are, which sudo and python there are."""

from __future__ import annotations

import re
import secrets as random
import shlex
import time
from dataclasses import dataclass

from gpustrap.ssh import sudo
from gpustrap.ssh.problems import refuse
from gpustrap.ssh.shell import Shell

# One line per answer, after a newline that ends what start-up files may have printed. sudo is tried without password
# and without remembered ones (-k), with its stdin closed.
_SCRIPT = r"""
LC_ALL=C; export LC_ALL
PATH="$PATH:/usr/sbin:/sbin"
say() {{ printf '%s %s=%s\n' {mark} "$1" "$2"; }}
echo
say uid "$(id -u)"
say user "$(id -un)"
python={python}
version='import sys; print("%d.%d.%d" % sys.version_info[:3])'
if [ -x "$python" ]; then say python "$("$python" -IS -c "$version" 2>&1)"; fi
for name in apt-get dnf yum zypper; do command -v $name >/dev/null 2>&1 && say installer $name && break; done
if command -v sudo >/dev/null 2>&1; then
  say sudo_version "$(sudo --version 2>&1 </dev/null | head -n 1)"
  command -v sudo.ws >/dev/null 2>&1 && say sudo_ws yes
  begun=$(date +%s)
  words=$(sudo -k -n true 2>&1 </dev/null); rc=$?
  say sudo_seconds "$(($(date +%s) - begun))"
  say sudo_rc "$rc"
  say sudo_words "$(printf %s "$words" | tr '\n' ' ')"
fi
"""
SLOW_SECONDS = 5
OLDEST_PYTHON = (3, 8)


@dataclass(frozen=True, slots=True)
class Survey:
    """A node before anything was done to it.

    Attributes:
        root: The login is root.
        user: The login's name on the node.
        python: Version of its python3, or empty.
        installer: Its package manager's command, or empty.
        sudo_version: What ``sudo --version`` says first, or empty if there is none.
        become_exe: The sudo to call.
        sudo_free: sudo asked for no password.
        sudo_refusal: Why it refused, if it did.
        sudo_words: In its own words.
        sudo_seconds: How long it took to say so.
        noise: What the login's start-up files print, shortened.
        shell_seconds: How long the rest took, the start of the shell above all.
    """

    root: bool
    user: str
    python: str
    installer: str
    sudo_version: str
    become_exe: str
    sudo_free: bool
    sudo_refusal: sudo.Refusal | None
    sudo_words: str
    sudo_seconds: int
    noise: str
    shell_seconds: float

    @property
    def python_usable(self) -> bool:
        """It is there and not too old."""
        match = re.fullmatch(r"(\d+)\.(\d+)\.\d+", self.python)
        return match is not None and (int(match[1]), int(match[2])) >= OLDEST_PYTHON


def survey(session: Shell, python: str) -> Survey:
    """Ask the node.

    Args:
        session: A connection to it.
        python: Path of the interpreter that is to be used there.

    Raises:
        GpustrapError: no-posix-shell, and what `Shell.run` raises.
    """
    mark = random.token_hex(8)
    script = _SCRIPT.format(mark=mark, python=shlex.quote(python))
    begun = time.monotonic()
    done = session.run("sh -s", stdin=script.encode(), timeout=90)
    seconds = time.monotonic() - begun
    text = done.stdout.decode("utf-8", "replace")
    said = dict(re.findall(rf"^{mark} (\w+)=(.*)$", text, re.MULTILINE))
    if "uid" not in said:
        raise refuse(
            "no-posix-shell",
            session.target.node,
            f"the login {session.target.user} cannot run sh",
            evidence=done.words[:500],
            remedy="give it an ordinary login shell on the node (chsh), or set ansible_user to another login",
        )
    words = said.get("sudo_words", "").strip()
    free = said.get("sudo_rc") == "0"
    return Survey(
        root=said["uid"] == "0",
        user=said.get("user", session.target.user),
        python=said.get("python", ""),
        installer=said.get("installer", ""),
        sudo_version=said.get("sudo_version", ""),
        # Ansible does not know sudo-rs' prompt (ansible/ansible#86441); where the classic one is there too, take it.
        become_exe="sudo.ws" if said.get("sudo_ws") and "sudo-rs" in said.get("sudo_version", "") else "sudo",
        sudo_free=free,
        sudo_refusal=None if free else sudo.why(words),
        sudo_words=words,
        sudo_seconds=int(said.get("sudo_seconds") or 0),
        noise=text.partition(f"{mark} uid=")[0].strip()[:80],
        shell_seconds=seconds - int(said.get("sudo_seconds") or 0),
    )
