"""The command line of nvidia-smi, as far as the lab has it."""

from __future__ import annotations

import sys
from pathlib import Path

from . import change, csv, links, mig, query, table
from .state import Machine, SmiError, chosen, load

LONG = {
    "--list-gpus": "-L",
    "--query": "-q",
    "--xml-format": "-x",
    "--id": "-i",
    "--filename": "-f",
    "--help": "-h",
    "--persistence-mode": "-pm",
    "--power-limit": "-pl",
    "--multi-instance-gpu": "-mig",
    "--gpu-reset": "-r",
}
VALUED = ("-i", "-f", "-pm", "-pl", "-mig", "--query-gpu", "--format", "--query-compute-apps")
FLAGS = ("-L", "-q", "-x", "-h", "-r", "--version", "--help-query-gpu")
NO_VALUE = "ERROR: Option {} is missing its value. Please run 'nvidia-smi -h' for help.\n"
UNKNOWN = "ERROR: Option {} is not recognized. Please run 'nvidia-smi -h'.\n"
HELP = (
    "NVIDIA System Management Interface -- the lab's stand-in; its GPUs are simulated\n\n"
    "nvidia-smi [-L | -q [-x] | --query-gpu=FIELD,... --format=csv[,noheader][,nounits]] [-i ID] [-f FILE]\n"
    "nvidia-smi -pm 0|1 | -pl WATTS | -mig 0|1 | -r [-i ID]\n"
    "nvidia-smi mig -lgip | -lgipp | -lgi | -lci | -cgi PROFILE,... [-C] | -cci | -dci | -dgi [-i ID] [-gi ID]\n"
    "nvidia-smi nvlink -s [-i ID] | topo -m | topo -p2p r|w|n\n"
    "nvidia-smi --version | --help-query-gpu | -h"
)
COMMANDS = {"mig": mig.run, "nvlink": links.nvlink, "topo": links.topo}


def parse(words: list[str]) -> dict[str, str]:
    """Options and their values.

    Raises:
        SmiError: One is not known.
    """
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word, _, value = rest.pop(0).partition("=")
        word = LONG.get(word, word)
        if word in VALUED:
            if not value:
                if not rest:
                    raise SmiError(255, NO_VALUE.format(word))
                value = rest.pop(0)
        elif word not in FLAGS:
            raise SmiError(255, UNKNOWN.format(word))
        found[word] = value
    return found


def version(machine: Machine) -> str:
    """``--version``."""
    values = machine.values
    short = ".".join(values["library"].split(".")[:2])
    lines = ["NVIDIA-SMI version  : " + values["library"], "NVML version        : " + short]
    if machine.branch >= 610:
        lines += [
            'DRIVER version      : Deprecated, see "KMD version" instead',
            'CUDA version        : Deprecated, see "CUDA UMD version" instead',
            "KMD version         : " + values["module"],
            "CUDA UMD version    : " + values["cuda"],
        ]
    else:
        lines += ["DRIVER version      : " + values["module"], "CUDA Version        : " + values["cuda"]]
    return "\n".join(lines)


def answer(options: dict[str, str]) -> str:
    """What to print.

    Raises:
        SmiError: It cannot be had.
    """
    if "-h" in options:
        return HELP
    machine = load()
    if "--version" in options and machine.branch < 545:
        raise SmiError(255, UNKNOWN.format("--version"))
    if "--version" in options:
        return version(machine)
    if "--help-query-gpu" in options:
        rows = "\n".join(f'"{name}"\n' for name in csv.fields(machine.branch))
        return 'List of valid properties to query for the switch "--query-gpu":\n\n' + rows
    return of_gpus(machine, options)


def of_gpus(machine: Machine, options: dict[str, str]) -> str:
    """What to print about the GPUs.

    Raises:
        SmiError: One cannot be reached, or a field is not known.
    """
    if "-r" in options:
        return change.reset(machine, options.get("-i", ""))
    if any(option in options for option in change.CHANGES):
        return change.change(machine, options)
    gpus = chosen(machine, options.get("-i", ""))
    form = options.get("--format", "")
    if "--query-compute-apps" in options:
        said = "" if "noheader" in form else options["--query-compute-apps"].replace(",", ", ")
    elif "--query-gpu" in options:
        said = csv.query(machine, gpus, options["--query-gpu"], form)
    elif "-L" in options:
        said = table.listing(gpus)
    elif "-q" in options:
        said = (query.xml if "-x" in options else query.text)(machine, gpus)
    else:
        said = table.table(machine, gpus)
    return said


def main(words: list[str]) -> int:
    """Run it; its exit code is NVML's."""
    try:
        options = {} if words[:1] and words[0] in COMMANDS else parse(words)
        said = (answer(options) if options or not words else COMMANDS[words[0]](load(), words[1:])) + "\n"
        code = 0
    except SmiError as error:
        options, said, code = {}, f"{error}\n", error.code
    if "-f" in options:
        Path(options["-f"]).write_text(said, encoding="utf-8")
    else:
        sys.stdout.write(said)
    return code
