"""Builds one environment from its lock file, beside what is there, and tries it. Stdlib and our own modules only.

A build goes to a directory of its own and counts when its marker is there; whatever fails takes the directory with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import grp
import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from typing import Any, NamedTuple

from ansible.module_utils.common.text.converters import to_native
from ansible.module_utils.gpustrap_conda_prefix import executable, room
from ansible.module_utils.gpustrap_environment_place import BuildError, complete, remove
from ansible.module_utils.gpustrap_node.environments import ID_LENGTH

ALL = "all"
CONDA_LINE = re.compile(r"@EXPLICIT|(https?|file)://")
MEAN_FILE = 57_000  # bytes: torch's wheel has 12,248 files of 699,298,109 bytes, and CUDA's are larger
MIB = 1 << 20
FLOOR = 64 * MIB  # for what the lock has no size of
ELSEWHERE = "; make room, or set gpustrap_environments_prefix to a larger file system"
ARCHIVES = 1.4  # conda keeps the archives beside what it unpacked of them
PROXIES = ("http_proxy", "https_proxy", "no_proxy")
CHECK_SECONDS = 600  # to read a framework from a slow disk for the first time
IMPORT = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
PR_SET_PDEATHSIG = 1
# What runs by way of the link stays in this build when another is switched to, and so do the processes that it starts:
# Python would look for what it imports later, and for its own program, behind the link of then.
SETTLE = (
    "import os, sys; "
    "sys.path[:] = dict.fromkeys(map(lambda p, a=sys.prefix, b=os.path.realpath(sys.prefix): "
    "b + p[len(a):] if p.startswith(a + os.sep) else p, sys.path)); "
    "sys.executable = sys.executable.replace(sys.prefix, os.path.realpath(sys.prefix), 1); "
    "sys.exec_prefix = sys.prefix = os.path.realpath(sys.prefix)\n"
)
OF_FRAMEWORK = re.compile(r"(torch|torchaudio|torchvision)==")  # as the closure takes them from PyTorch's index
UNSOLVABLE = "No solution found"  # uv's words where the index has no such version


class Settings(NamedTuple):
    """Where things are, for every environment of a node.

    Attributes:
        uv: Path of the uv program; empty where no environment needs one.
        cache: On the file system of the environments, so that what several have in common lies there once.
        scratch: Beside the build, for temporary files and as home directory; made and removed with it.
        lock: Descriptor of the lock, which what is started inherits.
    """

    prefix: str
    uv: str
    pythons: str
    package_index: str
    python_mirror: str
    ca_bundle: str
    conda: str
    cache: str
    scratch: str
    lock: int
    timeout: int


def group_of(users: str) -> int:
    """The id of the group that may use an environment; -1 for everybody.

    Raises:
        BuildError: There is no such group.
    """
    if users == ALL:
        return -1
    try:
        return grp.getgrnam(users).gr_gid
    except KeyError:
        raise BuildError("group {0} is not on this node: sudo groupadd {0}, or set users: all".format(users)) from None


def check_room(prefix: str, wanted: dict[str, Any]) -> None:
    """Bytes, inodes, and that programs may run there.

    Raises:
        BuildError: One of them is missing.
    """
    if not executable(prefix):
        raise BuildError("{0}: the file system is mounted noexec or read-only".format(prefix))
    needed = max(int(wanted["size"] * (ARCHIVES if wanted["engine"] == "conda" else 1)), FLOOR)
    free, inodes = room(prefix)
    if free < needed // MIB:
        raise BuildError("{0}: {1} MiB free, {2} needed{3}".format(prefix, free, needed // MIB, ELSEWHERE))
    if inodes is not None and inodes < needed // MEAN_FILE:
        raise BuildError(
            "{0}: {1} inodes free, about {2} needed{3}".format(prefix, inodes, needed // MEAN_FILE, ELSEWHERE)
        )


def build(settings: Settings, wanted: dict[str, Any], text: str, path: str) -> None:
    """Make one environment, complete and tried.

    Args:
        settings: Where things are.
        wanted: The environment, as the lock has it.
        text: Its lock file.
        path: Where it goes; there is nothing, and its parent is there.

    Raises:
        BuildError: It cannot be built, in the words of what failed; then nothing of it is left.
    """
    try:
        os.mkdir(settings.scratch, 0o755)
        _install(settings, wanted, text, path)
        _settle(path, wanted["python"])
        _try(settings, wanted, path)
        complete(path, _marker(wanted))
    except BaseException as error:
        if os.path.isdir(path):
            remove(path)
        if isinstance(error, OSError):
            raise BuildError(str(error)) from error
        raise
    finally:
        shutil.rmtree(settings.scratch, ignore_errors=True)


def _marker(wanted: dict[str, Any]) -> dict[str, Any]:
    kept = ("name", "digest", "framework", "version", "variant", "engine", "python", "interpreter", "modules")
    built = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return dict({key: wanted[key] for key in kept}, lock=wanted["digest"][:ID_LENGTH], built=built)


def _install(settings: Settings, wanted: dict[str, Any], text: str, path: str) -> None:
    """The parts of the lock file, each by the program that it is for."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    of_conda = [line for line in lines if CONDA_LINE.match(line)]
    of_uv = [line for line in lines if not CONDA_LINE.match(line)]
    if wanted["engine"] == "conda":
        _conda(settings, wanted, of_conda, path)
        return
    if wanted["interpreter"] == "conda":
        _conda(settings, wanted, of_conda, os.path.join(path, "python"))
    python = _interpreter(settings, wanted, path)
    uv = _Uv(settings)
    # Never conda's own prefix: outside a venv, packages of a user's home directory would win over these. It lies in the
    # venv's directory, which so is there already.
    uv.run(["venv", "--no-project", "--allow-existing", "--python", python, "--prompt", wanted["name"], path])
    if of_uv:
        uv.install(wanted, of_uv, path)
    uv.run(["pip", "check", "--python", os.path.join(path, "bin", "python")])
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(path, ".lock"))  # uv's, which everybody may write


def _settle(path: str, version: str) -> None:
    packages = os.path.join(path, "lib", "python" + version, "site-packages")
    if os.path.isdir(packages):
        with open(os.path.join(packages, "gpustrap.pth"), "w", encoding="utf-8") as file:
            file.write(SETTLE)


def _interpreter(settings: Settings, wanted: dict[str, Any], path: str) -> str:
    """The Python that the environment is made with."""
    version = wanted["python"]
    if wanted["interpreter"] == "uv":
        uv = _Uv(settings)
        uv.run(["python", "install", "--no-bin", "--mirror", settings.python_mirror, version])
        return uv.run(["python", "find", "--no-project", "--managed-python", version]).strip()
    place = os.path.join(path, "python", "bin") if wanted["interpreter"] == "conda" else "/usr/bin"
    python = os.path.join(place, "python" + version)
    if not os.access(python, os.X_OK):
        raise BuildError("{0} is not there, and the lock was made for it: gpustrap plan".format(python))
    return python


class _Uv:
    """Runs uv with nothing of anybody's settings but the proxy and the node's own netrc."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.environment = dict(
            _environment(settings),
            UV_COMPILE_BYTECODE_TIMEOUT="600",
            UV_CACHE_DIR=os.path.join(settings.cache, "uv"),
            UV_HTTP_TIMEOUT="120",
            UV_LINK_MODE="hardlink",
            UV_NO_CONFIG="1",
            UV_NO_PROGRESS="1",
            UV_PYTHON_DOWNLOADS="manual",
            UV_PYTHON_INSTALL_DIR=settings.pythons,
            UV_SYSTEM_CERTS="1",
        )

    def run(self, words: list[str]) -> str:
        """What it says on success."""
        return run([self.settings.uv, *words], self.environment, self.settings)

    def install(self, wanted: dict[str, Any], lines: list[str], path: str) -> None:
        """Exactly what the lock file has: nothing is resolved, every file's hash is checked.

        What has no wheel is built from its source, as deepspeed, which is only published so.
        """
        entries = [entry for entry in re.split(r"\n(?=\S)", "\n".join(lines)) if entry]
        own = [entry for entry in entries if wanted["index"] and OF_FRAMEWORK.match(entry)]
        others = [entry for entry in entries if entry not in own]
        # Each name from the index that it belongs to: PyTorch's own answers "forbidden" for what it does not have.
        for number, (index, part) in enumerate([(wanted["index"], own), (self.settings.package_index, others)]):
            if part:
                file = os.path.join(self.settings.scratch, "{0}-{1}.txt".format(wanted["name"], number))
                with open(file, "w", encoding="utf-8") as stream:
                    stream.write("\n".join(part) + "\n")
                self._from(index, file, path)

    def _from(self, index: str, file: str, path: str) -> None:
        words = ["pip", "install", "--python", os.path.join(path, "bin", "python"), "--requirements", file]
        words += ["--no-deps", "--require-hashes", "--compile-bytecode", "--default-index", index]
        try:
            self.run(words)
        except BuildError as error:
            if UNSOLVABLE not in str(error):
                raise
            self.run([*words, "--refresh"])  # the pages of an index are kept for minutes, and the lock may be newer


def _conda(settings: Settings, wanted: dict[str, Any], lines: list[str], path: str) -> None:
    """An explicit list: conda solves nothing, and checks every package's hash."""
    if not os.access(settings.conda, os.X_OK):
        raise BuildError("{0} is not there: the role conda makes it (gpustrap_conda: true)".format(settings.conda))
    file = os.path.join(settings.scratch, wanted["name"] + "-explicit.txt")
    with open(file, "w", encoding="utf-8") as stream:
        stream.write("\n".join(lines) + "\n")
    environment = dict(_environment(settings), CONDA_PKGS_DIRS=os.path.join(settings.cache, "conda"))
    if wanted["cuda"]:
        environment["CONDA_OVERRIDE_CUDA"] = wanted["cuda"]
    if settings.ca_bundle:
        environment["CONDA_SSL_VERIFY"] = settings.ca_bundle
    run([settings.conda, "create", "--yes", "--quiet", "--prefix", path, "--file", file], environment, settings)


def _try(settings: Settings, wanted: dict[str, Any], path: str) -> None:
    """Import what it is for, as a user who is nobody, or as one of its group."""
    home = os.path.join(settings.scratch, "home")
    os.makedirs(home, exist_ok=True)
    group = group_of(wanted["users"])
    become = None
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        gid = nobody.pw_gid if group == -1 else group
        os.chown(home, nobody.pw_uid, gid)
        become = (nobody.pw_uid, gid)
    environment = dict(_environment(settings), HOME=home, TMPDIR=home)
    modules = list(wanted["modules"]) + (["ipykernel"] if wanted["jupyter"] else [])
    argv = [os.path.join(path, "bin", "python"), "-I", "-c", IMPORT, *modules]
    run(argv, environment, settings._replace(timeout=CHECK_SECONDS), become)


def _environment(settings: Settings) -> dict[str, str]:
    """What every program gets: neither LD_LIBRARY_PATH nor PYTHONPATH, nor anybody's settings of pip, uv or conda."""
    made = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": settings.scratch}
    made["TMPDIR"] = settings.scratch  # /tmp may be small, or mounted noexec
    made.update({name: os.environ[name] for name in PROXIES if os.environ.get(name)})
    netrc = os.environ.get("NETRC") or os.path.join(pwd.getpwuid(os.geteuid()).pw_dir, ".netrc")
    if os.path.exists(netrc):
        made["NETRC"] = netrc
    if settings.ca_bundle:
        made.update(SSL_CERT_FILE=settings.ca_bundle, REQUESTS_CA_BUNDLE=settings.ca_bundle)
    return made


def run(argv: list[str], environment: dict[str, str], settings: Settings, become: tuple[int, int] | None = None) -> str:
    """What a program says. It ends with its time, and with this process, and holds the lock as long as it lives.

    Raises:
        BuildError: It failed, in its own last words.
    """

    def prepare() -> None:
        if become:
            os.setgroups([])
            os.setgid(become[1])
            os.setuid(become[0])
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # last: another user id takes it back

    libc, name = ctypes.CDLL(None), " ".join([os.path.basename(argv[0]), *argv[1:3]])
    with subprocess.Popen(
        argv,
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        pass_fds=(settings.lock,),
        preexec_fn=prepare,  # noqa: PLW1509 - this process has one thread
    ) as process:
        try:
            out, said = process.communicate(timeout=settings.timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise BuildError("{0}: no end after {1} s".format(name, settings.timeout)) from None
    if process.returncode:
        words = to_native(said + out, errors="surrogate_or_replace").strip()[-1500:]
        raise BuildError("{0}: {1}".format(name, words or "exit status {0}".format(process.returncode)))
    return str(to_native(out, errors="surrogate_or_replace"))
