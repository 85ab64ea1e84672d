"""A machine that gpustrap manages from itself: the unit that goes on with an apply after a reboot, and its note.

The unit runs once. It removes itself before it starts gpustrap, so that whatever goes wrong then, no boot tries again.
What people read at their logins is there before the reboot, so that it is there as well where nothing else works.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress

from .host import Host, NodeError
from .ledger import DIRECTORY, store, writable_directory
from .reboots import begin

NAME = "gpustrap-resume.service"
UNIT = "/etc/systemd/system/" + NAME
WANTED = "/etc/systemd/system/multi-user.target.wants/" + NAME
ENVIRONMENT = DIRECTORY + "/resume.env"
LOG = "/var/log/gpustrap/resume.log"
NOTE = "/etc/motd.d/gpustrap"

IN_MEMORY = ("tmpfs", "ramfs")
ENCRYPTED = ("ecryptfs", "fuse.gocryptfs", "fuse.encfs", "fuse.cryfs")
BY_ZFS = "zfs"  # mounted at boot by its own services, which systemd has no unit for
FS_IOC_GET_ENCRYPTION_POLICY_EX = 0xC0096616  # _IOWR('f', 22, __u8[9]), include/uapi/linux/fscrypt.h

# Type exec and not oneshot: else the boot would count as going on, and apply would wait for its end.
TEXT = """\
# Written by gpustrap apply --local before a reboot, to go on with it once. It removes itself; so may you.
[Unit]
Description=gpustrap: go on with the apply that needed this reboot
Wants=network-online.target
After=network-online.target multi-user.target
RequiresMountsFor={mounts}

[Service]
Type=exec
WorkingDirectory={directory}
EnvironmentFile=-{environment}
ExecStartPre=/bin/rm -f {unit} {wanted}
ExecStart={command}
StandardOutput=append:{log}
StandardError=inherit

[Install]
WantedBy=multi-user.target
"""


def reboot(host: Host, args: dict[str, object]) -> dict[str, object]:
    """Arrange that a command is run once after the next boot, and begin that boot.

    Args:
        host: The machine.
        args: ``command`` (words), ``directory`` it is run in, ``environment``, ``needs`` (paths it cannot do without),
            ``note`` for people who log in meanwhile; ``stage``, ``target`` and ``why`` of the reboot.

    Raises:
        NodeError: Something that it needs is not there at boot, or the machine has booted for this once already.
    """
    command, needs = _texts(args.get("command")), _texts(args.get("needs"))
    directory, note = str(args.get("directory") or ""), str(args.get("note") or "")
    environment = args.get("environment")
    if not command or not directory or not isinstance(environment, dict):
        raise NodeError("bad-request", "command and needs are lists of text, environment an object")
    for path in needs:
        why = closed_at_boot(host, path)
        if why:
            raise NodeError("resume-impossible", "%s %s" % (path, why))
    text = TEXT.format(
        mounts=" ".join(_word(path, "%") for path in needs),
        directory=directory.replace("%", "%%"),
        environment=ENVIRONMENT,
        unit=UNIT,
        wanted=WANTED,
        command=" ".join(_word(word, "%$") for word in command),
        log=LOG,
    )
    writable_directory(host)
    store(host.path(ENVIRONMENT), "".join("%s=%s\n" % (k, _quoted(str(v))) for k, v in sorted(environment.items())))
    _put(host, LOG, "", 0o600, 0o700)
    _put(host, UNIT, text, 0o644)
    os.makedirs(os.path.dirname(host.path(WANTED)), exist_ok=True)
    _remove(host, WANTED)
    os.symlink(UNIT, host.path(WANTED, follow=False))
    _put(host, NOTE, note, 0o644)
    try:
        begin(host, str(args.get("stage")), str(args.get("target") or ""), str(args.get("why")))
    except NodeError:
        for path in (WANTED, UNIT, ENVIRONMENT, NOTE):
            _remove(host, path)
        raise
    return {"log": LOG}


def leave_note(host: Host, args: dict[str, object]) -> dict[str, object]:
    """Leave another note at the logins, or none; a unit that was to go on is of no use any more."""
    note = str(args.get("note") or "")
    for path in (WANTED, UNIT, ENVIRONMENT):
        _remove(host, path)
    if note:
        _put(host, NOTE, note, 0o644)
    else:
        _remove(host, NOTE)
    return {"note": NOTE}


VERBS = {"reboot-here": reboot, "leave-note": leave_note}


def closed_at_boot(host: Host, path: str) -> str:
    """Why root may not find something at this path when the machine has booted and nobody has logged in; else empty."""
    where, kind = mount_of(host, host.real(path))
    why = ""
    if not os.access(host.path(path), os.R_OK):
        why = "cannot be read by root"
    elif kind in IN_MEMORY:
        why = "lies in memory (%s on %s), and is gone after the reboot" % (kind, where)
    elif kind in ENCRYPTED:
        why = "is encrypted (%s on %s), and closed until its user logs in" % (kind, where)
    elif _fscrypt(host, path):
        why = "is encrypted (fscrypt), and closed until its user logs in"
    elif where != "/" and kind != BY_ZFS and not _mounted_by_boot(host, where):
        why = "is on %s, which is not mounted by the boot but later, as by a login" % where
    return why


def _mounted_by_boot(host: Host, where: str) -> bool:
    """Whether systemd has a unit for a mount, of /etc/fstab or its own, and has not just come upon it."""
    unit = host.run(["systemd-escape", "--path", "--suffix=mount", where])
    shown = host.run(["systemctl", "show", "--property=FragmentPath", unit.stdout.strip()]) if unit else None
    return shown is None or shown.rc != 0 or shown.stdout.strip() != "FragmentPath="


def mount_of(host: Host, path: str) -> tuple[str, str]:
    """The mount point a path lies on and its kind of filesystem; the last mount over a place is the one that counts."""
    best = ("/", "")
    for line in (host.read("/proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()[:1]
        if len(fields) < 5 or not kind:
            continue
        where = fields[4].replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
        inside = where in ("/", path) or path.startswith(where + "/")
        if inside and len(where) >= len(best[0]):
            best = (where, kind[0])
    return best


def _fscrypt(host: Host, path: str) -> bool:
    """Whether a directory, or the one a file is in, has an encryption policy of ext4, f2fs or btrfs."""
    if not host.live:
        return False
    import fcntl  # noqa: PLC0415 - only here

    directory = path if os.path.isdir(path) else os.path.dirname(path)
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.ioctl(descriptor, FS_IOC_GET_ENCRYPTION_POLICY_EX, bytearray(struct.pack("<Q", 24) + bytes(24)))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) and all(isinstance(o, str) for o in value) else []


def _quoted(text: str) -> str:
    if any(ord(letter) < 32 for letter in text):
        raise NodeError("bad-request", "a path or word with control characters cannot stand in a unit")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _word(text: str, doubled: str) -> str:
    """A word as systemd.syntax(7) and systemd.service(5) want it."""
    text = _quoted(text)
    for letter in doubled:
        text = text.replace(letter, letter * 2)
    return text


def _put(host: Host, path: str, text: str, mode: int, directory_mode: int = 0o755) -> None:
    where = host.path(path)
    if not os.path.isdir(os.path.dirname(where)):
        os.makedirs(os.path.dirname(where), exist_ok=True)
        os.chmod(os.path.dirname(where), directory_mode)
    store(where, text)
    os.chmod(where, mode)


def _remove(host: Host, path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(host.path(path, follow=False))
