"""``nvidia-smi mig``: the instances that a GPU is cut into. A compute instance takes a whole GPU instance."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from . import store
from .state import WORDS, SmiError, chosen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .state import Machine

    Gpu = dict[str, str]

UUIDS = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")  # RFC 9562's name space for OIDs
SLICES = 8  # of memory
LONG = {
    "--id": "-i",
    "--gpu-instance-id": "-gi",
    "--list-gpu-instance-profiles": "-lgip",
    "--list-gpu-instance-possible-placements": "-lgipp",
    "--list-gpu-instances": "-lgi",
    "--list-compute-instances": "-lci",
    "--create-gpu-instance": "-cgi",
    "--create-compute-instance": "-cci",
    "--destroy-gpu-instance": "-dgi",
    "--destroy-compute-instance": "-dci",
    "--default-compute-instance": "-C",
}
VALUED = ("-i", "-gi", "-cgi")
COMMANDS = ("-lgip", "-lgipp", "-lgi", "-lci", "-cgi", "-cci", "-dgi", "-dci")


class Profile:
    """A row of what the board can be cut into; memory in MiB."""

    def __init__(self, number: str, row: str) -> None:
        self.id = int(number)
        _, self.name, *numbers, starts = row.split()
        found = list(map(int, numbers))
        self.slices, self.count, self.sm, self.ce, self.dec, self.enc, self.jpg, self.ofa = found[:8]
        self.memory, self.bar1, self.size = found[8:]
        self.starts = tuple(map(int, starts.split(",")))

    @property
    def compute(self) -> int:
        """Id of the profile of the compute instance that takes all of it."""
        return 4 if self.slices == 7 else self.slices - 1

    def instance(self, start: int) -> int:
        """Id of the GPU instance that lies there: the whole is 0, halves are 1 and 2, then quarters, then eighths."""
        return SLICES // self.size - 1 + start // self.size


class Instance:
    """A GPU instance: its profile, where it lies, and whether a compute instance makes a device of it."""

    def __init__(self, gpu: Gpu, key: str) -> None:
        number, start, size, compute, self.uuid = gpu[key].split()
        self.id, self.start, self.size, self.compute = int(key[3:]), int(start), int(size), compute == "1"
        self.profile = Profile(number, gpu["mig_profile_" + number])

    @property
    def taken(self) -> range:
        """The slices of memory that it takes."""
        return range(self.start, self.start + self.size)


def profiles(gpu: Gpu) -> list[Profile]:
    """What a board can be cut into, in the order of the driver."""
    return [Profile(key[12:], row) for key, row in gpu.items() if key.startswith("mig_profile_")]


def instances(gpu: Gpu) -> list[Instance]:
    """The GPU instances that are there, by id; none while MIG is off."""
    found = [Instance(gpu, key) for key in gpu if key.startswith("gi_") and gpu.get("mig") == "1"]
    return sorted(found, key=lambda one: one.id)


def devices(gpu: Gpu) -> list[Instance]:
    """The MIG devices of a GPU in their order."""
    return [one for one in instances(gpu) if one.compute]


def free(there: list[Instance], profile: Profile) -> list[int]:
    """Where an instance of a profile can start."""
    used = {number for one in there for number in one.taken}
    return [start for start in profile.starts if not used & set(range(start, start + profile.size))]


def run(machine: Machine, words: list[str]) -> str:
    """The answer to ``nvidia-smi mig …``.

    Raises:
        SmiError: It cannot be done, or there is nothing to tell.
    """
    options = _parse(words)
    command = next((word for word in COMMANDS if word in options), "")
    if not command:
        raise SmiError(0, "\n    mig -- Multi Instance GPU management.\n\n    Usage: nvidia-smi mig [options]\n")
    gpus = [gpu for gpu in chosen(machine, options.get("-i", "")) if "mig" in gpu]
    if not gpus:
        raise SmiError(6, "No MIG-supported devices found.")
    if command in ("-lgip", "-lgipp"):
        return _profiles(gpus, machine.branch) if command == "-lgip" else _placements(gpus)
    gpus = [gpu for gpu in gpus if gpu["mig"] == "1"]
    if not gpus:
        raise SmiError(0, "No MIG-enabled devices found.")
    if command in ("-lgi", "-lci"):
        return (_listed_gpu if command == "-lgi" else _listed_compute)(gpus, machine.branch)
    if command == "-cgi":
        return "\n".join(line for gpu in gpus for line in _create(gpu, options["-cgi"], whole="-C" in options))
    only = {int(number) for number in options.get("-gi", "").split(",") if number}
    work = {"-cci": _create_compute, "-dci": _destroy_compute, "-dgi": _destroy}[command]
    lines = [line for gpu in gpus for line in work(gpu, only)]
    if not lines:
        some = any(instances(gpu) for gpu in gpus)
        what = "compute" if command == "-dci" and some and not only else "GPU"
        raise SmiError(6, f"No {what} instances found: {WORDS[6]}")
    return "\n".join(lines)


def _parse(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word, _, value = rest.pop(0).partition("=")
        word = LONG.get(word, word)
        if word in VALUED:
            value = value or (rest.pop(0) if rest else "")
            if not value:
                raise SmiError(
                    255, f"ERROR: Option {word} is missing its value. Please run 'nvidia-smi mig -h' for help.\n"
                )
        elif word not in (*COMMANDS, "-C"):
            raise SmiError(255, f"ERROR: Option {word} is not recognized. Please run 'nvidia-smi mig -h' for help.\n")
        found[word] = value
    return found


def _profiles(gpus: list[Gpu], branch: int) -> str:
    wide = 2 if branch >= 570 else 0
    rule, gap = "+" + "-" * (77 + wide) + "+", " " * wide
    lines = [
        rule,
        "|" + " GPU instance profiles:".ljust(77 + wide) + "|",
        f"| GPU   Name             {gap}ID    Instances   Memory     P2P    SM    DEC   ENC  |",
        f"|                        {gap}      Free/Total   GiB              CE    JPEG  OFA  |",
        "|" + "=" * (77 + wide) + "|",
    ]
    for gpu in gpus:
        there, on = instances(gpu), gpu["mig"] == "1"
        for one in profiles(gpu):
            left = min(one.count, len(free(there, one))) if on else 0
            name = f"MIG {one.name}".ljust(18 + wide)
            row = (
                f"|{gpu['index']:>4}  {name}{one.id:>2}     {left}/{one.count}        {one.memory / 1024:<11.2f}No     "
            )
            lines += [
                f"{row}{one.sm:<7}{one.dec:<6}{one.enc:<4}|",
                f"|{'':{61 + wide}}{one.ce:<6}{one.jpg:<6}{one.ofa:<4}|",
                rule,
            ]
    return "\n".join(lines)


def _placements(gpus: list[Gpu]) -> str:
    lines = []
    for gpu in gpus:
        for one in profiles(gpu):
            starts, many = ",".join(map(str, one.starts)), "Placements" if len(one.starts) > 1 else "Placement "
            lines.append(f"GPU {gpu['index']:>2} Profile ID {one.id:>2} {many}: {{{starts}}}:{one.size}")
    return "\n".join(lines)


def _listed_gpu(gpus: list[Gpu], branch: int) -> str:
    wide = 2 if branch >= 570 else 0
    rule, gap = "+" + "-" * (55 + wide) + "+", " " * wide
    lines = [
        rule,
        "|" + " GPU instances:".ljust(55 + wide) + "|",
        f"| GPU   Name             {gap}Profile  Instance   Placement  |",
        f"|                        {gap}  ID       ID       Start:Size |",
        "|" + "=" * (55 + wide) + "|",
    ]
    found = [(gpu, one) for gpu in gpus for one in _by_profile(gpu)]
    if not found:
        raise SmiError(6, f"No GPU instances found: {WORDS[6]}")
    for gpu, one in found:
        name = f"MIG {one.profile.name}".ljust(17 + wide)
        row = f"|{gpu['index']:>4}  {name}{one.profile.id:>5}{one.id:>9}{one.start:>11}:{one.size}     |"
        lines += [row, rule]
    return "\n".join(lines)


def _listed_compute(gpus: list[Gpu], _: int) -> str:
    rule = "+" + "-" * 68 + "+"
    lines = [
        rule,
        "|" + " Compute instances:".ljust(68) + "|",
        "| GPU     GPU       Name             Profile   Instance   Placement  |",
        "|       Instance                       ID        ID       Start:Size |",
        "|         ID                                                         |",
        "|" + "=" * 68 + "|",
    ]
    found = [(gpu, one) for gpu in gpus for one in _by_profile(gpu) if one.compute]
    if not found:
        what = "compute" if any(instances(gpu) for gpu in gpus) else "GPU"
        raise SmiError(6, f"No {what} instances found: {WORDS[6]}")
    for gpu, one in found:
        name = f"MIG {one.profile.name}".ljust(18)
        row = f"|{gpu['index']:>4}{one.id:>7}       {name}{one.profile.compute:>4}{0:>10}{0:>11}:{one.size}     |"
        lines += [row, rule]
    return "\n".join(lines)


def _by_profile(gpu: Gpu) -> list[Instance]:
    """In the order of the lists: the smallest profiles first."""
    order = [one.id for one in profiles(gpu)]
    return sorted(instances(gpu), key=lambda one: (order.index(one.profile.id), one.id))


def _create(gpu: Gpu, tuples: str, *, whole: bool) -> Iterator[str]:
    """Make instances one after the other; those before one that does not fit stay, as on a machine."""
    done: list[str] = []
    for wanted in tuples.split(","):
        name, _, start = wanted.partition(":")
        profile = next((one for one in profiles(gpu) if name in (str(one.id), one.name, "MIG " + one.name)), None)
        room = free(instances(gpu), profile) if profile else []
        code = 4 if not store.may() else 2 if profile is None else 24 if not room else 0
        if not code and start and (not start.isdecimal() or int(start) not in room):
            code = 24
        if code or profile is None:
            words = WORDS[code]
            done += [f"Unable to create a GPU instance on GPU {gpu['index']:>2} using profile {name}: {words}"]
            raise SmiError(code, "\n".join([*done, f"Failed to create GPU instances: {words}"]))
        at = int(start) if start else _best(gpu, profile, room)
        number = profile.instance(at)
        name = f"MIG-{uuid.uuid5(UUIDS, '{}/{}/{}'.format(gpu['uuid'], number, profile.id))}"
        gpu[f"gi_{number}"] = f"{profile.id} {at} {profile.size} {int(whole)} {name}"
        store.put(int(gpu["index"]), {f"gi_{number}": gpu[f"gi_{number}"]})
        where = f"GPU instance ID {number:>2} on GPU {gpu['index']:>2}"
        done.append(f"Successfully created {where} using profile MIG {profile.name} (ID {profile.id:>2})")
        if whole:
            done.append(_created_compute(gpu, number, profile))
    yield from done


def _best(gpu: Gpu, profile: Profile, room: list[int]) -> int:
    """Where the driver puts it: where most is left for others, else the lowest start."""
    there, every = instances(gpu), profiles(gpu)

    def left(start: int) -> int:
        put = dict(gpu, gi_99=f"{profile.id} {start} {profile.size} 0 -")
        return sum(len(free([*there, Instance(put, "gi_99")], one)) for one in every)

    return max(room, key=lambda start: (left(start), -start))


def _created_compute(gpu: Gpu, number: int, profile: Profile) -> str:
    return (
        f"Successfully created compute instance ID  0 on GPU {gpu['index']:>2} GPU instance ID {number:>2} "
        f"using profile MIG {profile.name} (ID {profile.compute:>2})"
    )


def _create_compute(gpu: Gpu, only: set[int]) -> Iterator[str]:
    for one in instances(gpu):
        if not only or one.id in only:
            if one.compute:
                _refuse(gpu, one, "create", "compute", 24)
            _mark(gpu, one, compute=True)
            yield _created_compute(gpu, one.id, one.profile)


def _destroy_compute(gpu: Gpu, only: set[int]) -> Iterator[str]:
    for one in devices(gpu):
        if not only or one.id in only:
            _mark(gpu, one, compute=False)
            yield (
                f"Successfully destroyed compute instance ID  0 from GPU {gpu['index']:>2} GPU instance ID {one.id:>2}"
            )


def _destroy(gpu: Gpu, only: set[int]) -> Iterator[str]:
    for one in instances(gpu):
        if not only or one.id in only:
            if one.compute or not store.may():
                _refuse(gpu, one, "destroy", "GPU", 19 if store.may() else 4)
            store.put(int(gpu["index"]), {f"gi_{one.id}": None})
            yield f"Successfully destroyed GPU instance ID {one.id:>2} from GPU {gpu['index']:>2}"


def _mark(gpu: Gpu, one: Instance, *, compute: bool) -> None:
    if not store.may():
        _refuse(gpu, one, "create" if compute else "destroy", "compute", 4)
    value = f"{one.profile.id} {one.start} {one.size} {int(compute)} {one.uuid}"
    store.put(int(gpu["index"]), {f"gi_{one.id}": value})


def _refuse(gpu: Gpu, one: Instance, verb: str, what: str, code: int) -> None:
    number = f"instance ID {one.id:>2}" if what == "GPU" else "instance"
    words = f"Unable to {verb} {what} {number} from GPU {gpu['index']:>2}: {WORDS[code]}"
    raise SmiError(code, f"{words}\nFailed to {verb} {what} instances: {WORDS[code]}")
