"""What modprobe is told: our own file, and what other files or the kernel's command line say against it."""

from __future__ import annotations

import re
from typing import Iterable, NamedTuple

from .gpustrap_node.host import Host

# In this order; a file of the same name in an earlier one hides the others (modprobe.d(5)).
DIRECTORIES = tuple(d + "/modprobe.d" for d in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"))
HEADER = "# Managed by gpustrap (role nvidia_driver); the next apply undoes local changes.\n"
UNIT_DIRECTORIES = tuple(d + "/systemd/system" for d in ("/etc", "/usr/local/lib", "/usr/lib", "/lib"))
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
NOTHING = re.compile(r"(/usr)?/bin/(true|false)\b")


class Line(NamedTuple):
    """A line of modprobe's configuration."""

    path: str
    number: int
    words: tuple[str, ...]

    @property
    def where(self) -> str:
        """``/etc/modprobe.d/x.conf:3: options nouveau modeset=1``."""
        return "%s:%d: %s" % (self.path, self.number, " ".join(self.words))


class Options(NamedTuple):
    """Options of a module, set only where all of these units are there."""

    module: str
    values: dict[str, str]
    units: tuple[str, ...] = ()


def plain(name: str) -> str:
    """A module's name as the kernel has it; modprobe takes both spellings."""
    return name.replace("-", "_")


def lines(host: Host, ours: str) -> list[Line]:
    """Every line in force but those of our file."""
    found: list[Line] = []
    seen = set()
    real = {host.real(directory): directory for directory in reversed(DIRECTORIES)}  # /lib is /usr/lib on most
    for directory in (d for d in DIRECTORIES if d in real.values()):
        for path in host.match(directory, "*.conf"):
            name = path.rpartition("/")[2]
            if name not in seen and path != ours:
                found.extend(parse(path, host.read(path) or ""))
            seen.add(name)
    return found


def parse(path: str, text: str) -> list[Line]:
    """The lines of a file that say something; a backslash at the end joins the next one."""
    found, start, words = [], 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        start = start or number
        words += line[:-1] + " " if line.endswith("\\") else line
        if line.endswith("\\"):
            continue
        said = tuple(words.split())
        if said and not said[0].startswith("#"):
            found.append(Line(path, start, said))
        start, words = 0, ""
    return found


def renamed(found: Iterable[Line]) -> list[str]:
    """Further names of module nvidia: Debian builds it as nvidia-current, and loads that by an ``install`` line.

    Options of ``nvidia`` do not reach it there.
    """
    names = []
    for line in found:
        words = line.words
        if words[:3] == ("install", "nvidia", "modprobe") and "-i" in words[:-1]:
            names.append(words[words.index("-i") + 1])
    return sorted(set(names))


def wanted(host: Host, options: Iterable[Options], found: Iterable[Line]) -> list[Options]:
    """The options to set here: those whose units are there, of every name their module has."""
    others = renamed(found)
    result = []
    for one in options:
        if all(any(host.exists(d + "/" + unit) for d in UNIT_DIRECTORIES) for unit in one.units):
            result.append(one)
            result.extend(one._replace(module=name) for name in (others if one.module == "nvidia" else ()))
    return result


def render(blacklist: Iterable[str], options: Iterable[Options]) -> str:
    """Our file in modprobe.d."""
    text = HEADER + "".join("blacklist %s\n" % name for name in blacklist)
    for one in options:
        values = " ".join("%s=%s" % pair for pair in one.values.items())
        text += "options %s %s\n" % (one.module, values)
    return text


def contradictions(found: Iterable[Line], cmdline: str, options: Iterable[Options], load: Iterable[str]) -> list[str]:
    """What keeps our modules from loading or gives our options another value, each as a sentence."""
    modules = {plain(name) for name in load}
    values: dict[str, dict[str, str]] = {}
    for one in options:
        values.setdefault(plain(one.module), {}).update(one.values)
    said = []
    for line in found:
        verb, name, rest = line.words[0], plain((*line.words, "")[1]), line.words[2:]
        off = (verb == "alias" and rest[:1] == ("off",)) or (verb == "install" and NOTHING.match(" ".join(rest)))
        if name in modules and (verb == "blacklist" or off):
            said.append("%s keeps %s from being loaded" % (line.where, name))
        if verb == "options":
            said.extend("%s; gpustrap sets %s" % (line.where, why) for why in _against(rest, values.get(name, {})))
    return said + _cmdline(cmdline, modules, values)


def _cmdline(cmdline: str, modules: set[str], values: dict[str, dict[str, str]]) -> list[str]:
    said = []
    for word in cmdline.split():
        key, _, value = word.partition("=")
        module, _, option = key.partition(".")
        if key in ("modprobe.blacklist", "module_blacklist", "rd.driver.blacklist"):
            kept = sorted(modules & {plain(name) for name in value.split(",")})
            said += ["the kernel's command line, %s, keeps %s from being loaded" % (word, name) for name in kept]
        elif option:
            why = _against([option + "=" + value], values.get(plain(module), {}))
            said += ["the kernel's command line has %s; gpustrap sets %s" % (word, w) for w in why]
    return said


def screen(host: Host) -> str:
    """The NVIDIA GPU on which a desktop starts that these packages cannot draw, as they are for computing only."""
    if not host.exists("/etc/systemd/system/display-manager.service") or any(
        host.match(directory, "libGLX_nvidia.so.0") for directory in LIBRARIES
    ):
        return ""
    devices = "/sys/bus/pci/devices/"
    ours = (a for a in host.names(devices) if host.line(devices + a + "/vendor") == "0x10de")
    return next((address for address in ours if host.line(devices + address + "/boot_vga") == "1"), "")


def _against(words: Iterable[str], ours: dict[str, str]) -> list[str]:
    pairs = [word.partition("=") for word in words]
    return ["%s=%s" % (key, ours[key]) for key, _, value in pairs if key in ours and value != ours[key]]
