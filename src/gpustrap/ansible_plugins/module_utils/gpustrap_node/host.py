"""The one way to the machine: files below a root, and commands under a time limit.

With a root other than ``/`` it is a recorded tree: links stay inside it and no command is run.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import time
from fnmatch import fnmatchcase
from typing import NamedTuple, Sequence

READ_LIMIT = 64 * 1024 * 1024
BUDGET = 90.0  # seconds for one request; the controller gives up at 120
MAX_LINKS = 40
CHUNK = 128 * 1024  # the kernel sets aside as much for a read of /proc/sys as was asked for


class NodeError(Exception):
    """Ends a request: a stable code and one sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Completed(NamedTuple):
    """What a command that ran left behind."""

    rc: int
    stdout: str
    stderr: str


class Space(NamedTuple):
    """Bytes and inodes of a filesystem."""

    size: int
    free: int
    inodes: int
    inodes_free: int


class Host:
    """Reads one machine, or a recorded tree of one.

    Attributes:
        root: ``/``, or the top of a recorded tree.
        live: Whether this is the machine itself.
        is_root: Whether everything may be read.
        notes: What could not be read, and why.
    """

    def __init__(self, root: str = "/", budget: float = BUDGET) -> None:
        self.root = os.path.realpath(root)
        self.live = self.root == "/"
        self.is_root = os.geteuid() == 0
        self.notes: list[str] = []
        self.deadline = time.monotonic() + budget

    def note(self, text: str) -> None:
        """Remember, once, that something could not be read."""
        if text not in self.notes:
            self.notes.append(text)

    def path(self, path: str, follow: bool = True) -> str:
        """Where a path of the machine lies; in a recorded tree, links are followed inside it.

        Args:
            path: Absolute path on the machine.
            follow: Also follow the last component.
        """
        if self.live:
            return path
        todo, done, links = [p for p in reversed(path.split("/")) if p], "", 0
        while todo:
            name = todo.pop()
            if name == "..":
                done = done.rpartition("/")[0]
                continue
            here = self.root + done + "/" + name
            if name == "." or not os.path.islink(here) or not (todo or follow):
                done = done if name == "." else done + "/" + name
                continue
            links += 1
            if links > MAX_LINKS:
                raise OSError(40, "Too many levels of symbolic links", path)
            target = os.readlink(here)
            if target.startswith("/"):
                done = ""
            todo.extend(p for p in reversed(target.split("/")) if p)
        return self.root + done

    def read_bytes(self, path: str, limit: int = READ_LIMIT) -> bytes | None:
        """A file's bytes; None if it is not there, or (with a note) cannot be read."""
        data = b""
        try:
            with open(self.path(path), "rb", buffering=0, opener=_without_waiting) as stream:
                while len(data) <= limit:
                    part = stream.read(CHUNK)
                    if not part:
                        break
                    data += part
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.note("%s: %s" % (path, error.strerror))
            return None
        if len(data) > limit:
            self.note("%s: larger than %d bytes" % (path, limit))
            return None
        return data

    def read_at(self, path: str, offset: int, size: int) -> bytes:
        """As many bytes of a file from an offset on as there are; no other is touched, as a device's may mind."""
        try:
            descriptor = os.open(self.path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.pread(descriptor, size, offset)
        except OSError:
            return b""
        finally:
            os.close(descriptor)

    def read(self, path: str) -> str | None:
        """A file's text, as `read_bytes`."""
        data = self.read_bytes(path)
        return None if data is None else data.decode("utf-8", "replace")

    def line(self, path: str) -> str:
        """A one-line file, stripped; empty if it cannot be read."""
        return (self.read(path) or "").strip()

    def names(self, path: str) -> list[str]:
        """The sorted names in a directory; empty if it is not there, or (with a note) cannot be read."""
        try:
            return sorted(os.listdir(self.path(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.note("%s: %s" % (path, error.strerror))
            return []

    def match(self, directory: str, pattern: str) -> list[str]:
        """The paths in one directory whose name matches a pattern."""
        return [directory + "/" + name for name in self.names(directory) if fnmatchcase(name, pattern)]

    def stat(self, path: str, follow: bool = True) -> os.stat_result | None:
        """The path's status; None if it is not there or out of reach."""
        try:
            return os.stat(self.path(path, follow), follow_symlinks=follow)
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Whether the path leads somewhere."""
        return self.stat(path) is not None

    def is_dir(self, path: str) -> bool:
        """Whether the path leads to a directory."""
        status = self.stat(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def readlink(self, path: str) -> str | None:
        """A link's target, None if the path is no link."""
        try:
            return os.readlink(self.path(path, follow=False))
        except OSError:
            return None

    def real(self, path: str) -> str:
        """The machine's own path behind all links."""
        if self.live:
            return os.path.realpath(path)
        try:
            return self.path(path)[len(self.root) :] or "/"
        except OSError:
            return path

    def space(self, path: str) -> Space | None:
        """Bytes and inodes of the filesystem at a mount point; None in a recorded tree or where it fails."""
        if not self.live:
            return None
        try:
            s = os.statvfs(path)
        except OSError as error:
            self.note("%s: %s" % (path, error.strerror))
            return None
        return Space(s.f_blocks * s.f_frsize, s.f_bavail * s.f_frsize, s.f_files, s.f_favail)

    def clock_error(self) -> int | None:
        """The kernel's bound on the clock's error in microseconds, from adjtimex(2); None where it does not say."""
        if not self.live:
            return None
        try:
            import ctypes  # noqa: PLC0415 - minimal Pythons are without it

            timex = (ctypes.c_long * 64)()  # modes 0: only read; more room than struct timex needs
            failed = ctypes.CDLL(None).adjtimex(ctypes.byref(timex)) < 0
        except (ImportError, OSError, AttributeError):
            return None
        return None if failed else int(timex[3])

    def run(self, argv: Sequence[str], timeout: float = 10.0) -> Completed | None:
        """Run a command that changes nothing; None if it is not there, is too slow, or in a recorded tree."""
        if not self.live:
            return None
        left = min(timeout, self.deadline - time.monotonic())
        if left <= 0:
            self.note("%s: not run, the time for this request was used up" % argv[0])
            return None
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C",
            "HOME": "/",
            "SYSTEMD_PAGER": "",
        }
        try:
            child = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            return None
        try:
            out, err = child.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            self.note("%s: no answer within %.0f s" % (" ".join(argv[:3]), left))
            _abandon(child)
            return None
        return Completed(child.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe that a user left in its place must not hang the probe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _abandon(child: subprocess.Popen[bytes]) -> None:
    """Kill a command's whole group; one that hangs in the kernel is left behind rather than waited for."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate(timeout=1)
    except (OSError, subprocess.TimeoutExpired):
        pass
