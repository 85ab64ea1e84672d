"""What the scripts share: what is asked, which step it is at, exact arithmetic to compare with, the one answer."""

from __future__ import annotations

import importlib
import json
import math
import operator
import os
import random
import re
import sys
import traceback
from typing import Any, Callable, NamedTuple, NoReturn, Sequence

STEP = "gpustrap: "
FEATURES = 4
ROWS = 16
STEPS = 40
LEARNING_RATE = 0.1
BOUND = 3  # entries are whole numbers in -3..3: sums of up to 1.8 million products are exact in float32 and in TF32
HALF_INNER = 16  # sums of so many are exact in 16 bits, too: at most 144, and bfloat16 has all whole ones to 256
CUDA = "cudnn|cublas|cudart|cufft|curand|cusolver|cusparse|nccl|nvrtc|nvJitLink|cupti"

# Runs a script of this package: first its directory, then its name, then what is asked.
START = "import importlib,sys;sys.path.insert(0,sys.argv.pop(1));importlib.import_module(sys.argv.pop(1)).main()"
FLAGS = ("-s", "-B")  # no packages of the user's own, no files beside the environment's

Matrix = Sequence[Sequence[float]]


class Wanted(NamedTuple):
    """What is asked of a script; its one argument, as JSON.

    Attributes:
        device: ``gpu`` or ``cpu``.
        gpus: What to call each GPU that it must see, in the order in which it sees them; empty for ``cpu``.
        size: Rows and columns of the matrices.
        thorough: Train, on one device and on all of them together, too.
        seconds: How long the devices may take together.
        place: A directory that it may write to.
        modules: What must import, besides the framework.
        vllm: vLLM is in this environment of PyTorch, and must find the same.
    """

    device: str
    gpus: list[str]
    size: int
    thorough: bool
    seconds: float
    place: str
    modules: list[str]
    vllm: bool = False

    @property
    def on_gpus(self) -> bool:
        """Whether the work must happen on GPUs."""
        return self.device == "gpu"


class SmokeError(Exception):
    """It does not do what it should. The code is one of ours, for what no text of the framework says."""

    def __init__(self, code: str, said: str) -> None:
        super().__init__(said)
        self.code = code


class _Step:
    now = "start"


def step(text: str) -> None:
    """Say what comes next, before it is done."""
    _Step.now = text
    sys.stderr.write(STEP + text + "\n")
    sys.stderr.flush()


def run(check: Callable[[Wanted], dict[str, Any]]) -> NoReturn:
    """Run a script's check and print its answer; whatever else is printed goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        wanted = Wanted(**json.loads(sys.argv[1]))
        answer = {"ok": True, **check(wanted)}
        for module in wanted.modules:
            step("import " + module)
            own(importlib.import_module(module))
        answer["elsewhere"] = elsewhere()
    except SmokeError as error:
        answer = {"ok": False, "at": _Step.now, "code": error.code, "said": str(error)}
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
        words = f"{type(error).__name__}: {error}"
        traceback.print_exc()
        answer = {"ok": False, "at": _Step.now, "code": "", "said": words}
    out.write(json.dumps(answer) + "\n")
    out.flush()
    os._exit(0)  # a framework's threads must not hold it up


def matrix(rows: int, columns: int, seed: int) -> list[list[float]]:
    """Whole numbers in -3..3, the same for the same seed."""
    choose = random.Random(seed)  # noqa: S311 - the same ones every time
    entries = [float(entry) for entry in range(-BOUND, BOUND + 1)]
    return [choose.choices(entries, k=columns) for _ in range(rows)]


def compare_product(what: str, a: Matrix, b: Matrix, c: Matrix) -> None:
    """Compare a product of such matrices by Freivalds' check, exactly: two rounds with random signs.

    Raises:
        SmokeError: An entry is wrong; with the first row that is, its column, what it is and what it should be.
    """
    limit = BOUND * BOUND * len(b)
    if len(c) != len(a) or any(len(row) != len(b[0]) for row in c):
        raise SmokeError("wrong-result", f"{what}: the product has another shape")
    wrong = {n for n, row in enumerate(c) if any(not (abs(entry) <= limit and entry == int(entry)) for entry in row)}
    for seed in range(2):
        signs = random.Random(seed).choices((-1.0, 1.0), k=len(b[0]))  # noqa: S311 - the same ones every time
        expected = _times(a, _times(b, signs))
        wrong |= {n for n, value in enumerate(_times(c, signs)) if value != expected[n]}
    if wrong:
        row = min(wrong)
        right = _times(list(zip(*b)), a[row])
        column = next(n for n, value in enumerate(right) if c[row][n] != value)
        found = f"row {row}, column {column} is {c[row][column]!r} and should be {right[column]!r}"
        raise SmokeError("wrong-result", f"{what}: {len(wrong)} of {len(c)} rows are wrong; {found}")


def compare_convolution(what: str, image: Matrix, found: Matrix) -> None:
    """Compare sums over squares of 3 x 3; they are whole numbers, and an algorithm may round on the way.

    Raises:
        SmokeError: One is wrong.
    """
    places = range(len(image) - 2)
    for row, column in [(row, column) for row in places for column in places]:
        right = sum(sum(line[column : column + 3]) for line in image[row : row + 3])
        if not abs(found[row][column] - right) < 0.01:
            said = "%s: convolution: row %d, column %d is %r and should be %r"
            raise SmokeError("wrong-result", said % (what, row, column, found[row][column], right))


def _times(rows: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    return [math.fsum(map(operator.mul, row, vector)) for row in rows]


def samples(rows: int) -> tuple[list[list[float]], list[list[float]]]:
    """Inputs and outputs of a linear rule, for a model to learn."""
    inputs = [[value / BOUND for value in row] for row in matrix(rows, FEATURES, seed=7)]
    return inputs, [[math.fsum(value * (n + 1) for n, value in enumerate(row))] for row in inputs]


def compare_losses(what: str, losses: Sequence[float]) -> None:
    """Refuse a model that did not learn.

    Raises:
        SmokeError: The loss is no number, or did not fall to a tenth.
    """
    if not all(math.isfinite(loss) for loss in losses) or losses[-1] > losses[0] / 10:
        said = f"{what}: the loss went from {losses[0]!r} to {losses[-1]!r} in {len(losses)} steps"
        raise SmokeError("does-not-learn", said)


def count_gpus(wanted: Wanted, found: int, framework: str) -> None:
    """Refuse when a framework does not see every GPU.

    Raises:
        SmokeError: It sees fewer or more.
    """
    if found != len(wanted.gpus):
        said = "%s sees %d GPU%s, and there %s %d"
        many = len(wanted.gpus)
        values = (framework, found, "" if found == 1 else "s", "is" if many == 1 else "are", many)
        raise SmokeError("gpus-missing", said % values)


def covers(built_for: Sequence[str], capability: tuple[int, int]) -> bool:
    """Whether code built for these architectures runs on a device.

    ``sm_86`` runs on the same major with this minor or a newer one; ``sm_90a`` on that device alone; ``sm_100f`` on
    its family, which is newer minors of the major; ``compute_90`` is PTX, which any newer device compiles
    (docs.nvidia.com/cuda/cuda-compiler-driver-nvcc, GPU feature list).
    """
    for word in built_for:
        found = re.match(r"(sm|compute)_(\d+)(\d)([af]?)\Z", word)
        if not found:
            continue
        kind, suffix = found.group(1), found.group(4)
        code = (int(found.group(2)), int(found.group(3)))
        if suffix == "a":
            fits = code == capability
        elif kind == "compute" and not suffix:
            fits = code <= capability
        else:
            fits = code[0] == capability[0] and code[1] <= capability[1]
        if fits:
            return True
    return False


def need_code(what: str, built_for: Sequence[str], capability: tuple[int, int]) -> None:
    """Refuse a build that has no code for a device.

    Raises:
        SmokeError: It has none.
    """
    if built_for and not covers(built_for, capability):
        said = "it has no code for {} ({}.{}): {}".format(what, *capability, " ".join(built_for))
        raise SmokeError("no-kernel-image", said)


def own(module: Any) -> None:
    """Refuse a framework that is not the environment's own: PYTHONPATH or a directory of the user's won.

    Raises:
        SmokeError: It came from elsewhere.
    """
    place = module.__file__ or next(iter(module.__path__))
    if not os.path.realpath(place).startswith(os.path.realpath(sys.prefix) + "/"):
        said = f"{module.__name__} is taken from {place}, not from the environment"
        raise SmokeError("foreign-module", said)


def elsewhere() -> list[str]:
    """CUDA's libraries that this process took from outside the environment; the driver's own are no part of one."""
    here = os.path.realpath(sys.prefix) + "/"
    try:
        with open("/proc/self/maps") as maps:
            paths = {line.split(None, 5)[5].strip() for line in maps if line.count(" /")}
    except OSError:
        return []
    return sorted(
        path
        for path in paths
        if re.match("lib(" + CUDA + r")[\w.-]*\.so", os.path.basename(path)) and not path.startswith(here)
    )
