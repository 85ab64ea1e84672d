"""Shell scripts run as root before there is a python on the node, and what enroll does with them."""

from __future__ import annotations

import re
import secrets as random
import shlex
from dataclasses import replace

from gpustrap.errors import GpustrapError
from gpustrap.model.node import Access, Escalation, Secrets
from gpustrap.ssh import sudo
from gpustrap.ssh.problems import NOT_ALLOWED, refuse, sudo_password_missing, sudo_password_wrong
from gpustrap.ssh.shell import Completed, Shell
from gpustrap.ssh.survey import Survey

PYTHON_MINUTES = 15

# apt's own lock wait covers dpkg's lock only, not that of the package lists: hence the loop.
_INSTALL_PYTHON = """
export LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l
wait_for_apt() {
  for try in $(seq 60); do
    out=$(apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" </dev/null 2>&1); rc=$?
    case "$out" in *"Could not get lock"*|*"Unable to lock"*) sleep 5;; *) break;; esac
  done
  [ $rc = 0 ] || printf "%s\\n" "$out" | tail -n 15 >&2
  return $rc
}
if command -v apt-get >/dev/null 2>&1; then
  wait_for_apt install --no-install-recommends python3 2>/dev/null && exit 0
  wait_for_apt update && wait_for_apt install --no-install-recommends python3
else
  for name in dnf yum; do command -v $name >/dev/null 2>&1 && exec $name -q -y install python3 </dev/null; done
  echo "no apt-get, dnf or yum" >&2; exit 1
fi
"""

# sudo takes the last rule and the last default that match, hence zz. The name has no dot, or sudo would skip it; the
# temporary one has, so that sudo never reads it half written.
_DROP_IN = """
set -eu
umask 077
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
file={file}
new="$file.new"
trap "rm -f $new" EXIT
printf "%s\\n" {lines} > "$new"
visudo -c -q -f "$new"
chmod 0440 "$new"
mv "$new" "$file"
if command -v restorecon >/dev/null 2>&1; then restorecon "$file" || :; fi
"""


def run_as_root(session: Shell, access: Access, secrets: Secrets, script: str, *, timeout: float = 60) -> Completed:
    """Run a POSIX shell script as root.

    Args:
        session: A connection to the node.
        access: How its login becomes root; its python is not needed.
        secrets: Has the sudo password, if one is needed.
        script: The script; no secrets in it, other users of the node can see it.
        timeout: Seconds.

    Raises:
        GpustrapError: sudo-*, and what `Shell.run` raises.
    """
    ready = random.token_hex(16)
    # In two halves: sudo may quote the command it refuses, and that must not look like the command's own word.
    argv = ["sh", "-c", f'echo {ready[:16]}""{ready[16:]}\n{script}']
    how = Access(access.escalation, access.become_exe)  # with requiretty it is the session that has the terminal
    if access.escalation is not Escalation.PASSWORD:
        done = session.run(sudo.command(argv, how), timeout=timeout, pty=access.requiretty)
    else:
        if secrets.become_password is None:
            raise sudo_password_missing(session.target.node)
        dialogue = sudo.Dialogue(secrets.become_password, ready.encode(), terminal=access.requiretty)
        line = sudo.command(argv, how, prompt=dialogue.prompt)
        line = f"stty -echo; {line}" if access.requiretty else line
        done = session.run(line, timeout=timeout, feed=dialogue, pty=access.requiretty)
        if dialogue.wrong:
            raise sudo_password_wrong(session.target.node)
    before, begun, out = done.stdout.partition(ready.encode())
    if not begun:
        words = (before + done.stderr).decode("utf-8", "replace")
        raise sudo.refused(session.target.node, session.target.user, words) or refuse(
            "sudo-failed",
            session.target.node,
            f"sudo ended with {done.rc} and did not run a shell",
            evidence=words,
            remedy=f"try it by hand: ssh -t {session.target.user}@{session.target.host} sudo id",
        )
    return Completed(done.rc, out.lstrip(b"\r\n"), done.stderr)


def find_access(session: Shell, found: Survey, secrets: Secrets, python: str) -> Access:
    """How the login becomes root, proved by doing it once.

    Args:
        session: A connection to the node.
        found: What the survey said.
        secrets: Has the sudo password, if one was given.
        python: Path of the node's python3, for the result.

    Returns:
        Also for a login that cannot become root (`Escalation.NOT_ALLOWED`, `Escalation.MISSING`).

    Raises:
        GpustrapError: sudo-password-missing, sudo-password-wrong, sudo-failed.
    """
    if found.root:
        return Access(Escalation.ROOT, python=python)
    if not found.sudo_version:
        return Access(Escalation.MISSING, python=python)
    refusal, words = found.sudo_refusal, found.sudo_words
    requiretty = refusal is sudo.Refusal.REQUIRETTY
    free = found.sudo_free
    if requiretty:
        done = session.run(sudo.command(["true"], Access(Escalation.NOPASSWD, found.become_exe)), pty=True)
        free, words = done.rc == 0, done.words
        refusal = sudo.why(words)
    access = Access(Escalation.NOPASSWD if free else Escalation.PASSWORD, found.become_exe, requiretty, python)
    if free:
        return access
    if refusal is sudo.Refusal.NOT_ALLOWED:
        return replace(access, escalation=Escalation.NOT_ALLOWED)
    try:
        run_as_root(session, access, secrets, "true")
    except GpustrapError as error:  # sudo says who may not only after it has seen the password
        if error.problems[0].code == NOT_ALLOWED:
            return replace(access, escalation=Escalation.NOT_ALLOWED)
        raise
    return access


def install_python(session: Shell, access: Access, secrets: Secrets) -> None:
    """Install python3 with the node's package manager.

    Raises:
        GpustrapError: python-install-failed, with the package manager's last words.
    """
    done = run_as_root(session, access, secrets, _INSTALL_PYTHON, timeout=PYTHON_MINUTES * 60)
    if done.rc:
        raise refuse(
            "python-install-failed",
            session.target.node,
            "python3 is missing and could not be installed",
            evidence=done.words[-1500:],
            remedy=f"mend the node's package sources or network, then gpustrap enroll {session.target.node}",
        )


def allow_passwordless_sudo(session: Shell, access: Access, secrets: Secrets, user: str) -> None:
    """Write a sudoers drop-in for one user, checked by visudo before sudo can see it.

    Raises:
        GpustrapError: passwordless-sudo-failed; the node's sudo is then as it was.
    """
    node = session.target.node
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", user):
        raise refuse("passwordless-sudo-failed", node, f"the user name {user!r} cannot stand in sudoers as it is")
    file = f"/etc/sudoers.d/zz-gpustrap-{user.replace('.', '_')}"
    lines = [
        "# By gpustrap enroll --passwordless-sudo. To take it back, remove this file.",
        f"Defaults:{user} !requiretty",
        f"{user} ALL=(ALL:ALL) NOPASSWD: ALL",
    ]
    script = _DROP_IN.format(file=shlex.quote(file), lines=shlex.join(lines))
    done = run_as_root(session, access, secrets, script)
    evidence = done.words
    if done.rc == 0:
        tried = session.run(sudo.command(["true"], Access(Escalation.NOPASSWD, access.become_exe)))
        if tried.rc == 0:
            return
        evidence = tried.words
        run_as_root(session, access, secrets, f"rm -f {shlex.quote(file)}")
    raise refuse(
        "passwordless-sudo-failed",
        node,
        f"sudo of {user} still asks for a password; the file was taken back",
        evidence=evidence,
        remedy="see whether /etc/sudoers on the node ends with @includedir /etc/sudoers.d and no later rule for it, "
        "or enroll without --passwordless-sudo",
    )
