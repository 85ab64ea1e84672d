"""The stand-in for libcuda.so.1 computes verify's kernels: exactly, with the faults put in, in the board's time."""

import random
import re
import signal
import struct
import subprocess
import time
from fractions import Fraction
from pathlib import Path

import pytest

from gpustrap import verify
from gpustrap.lab.gpus import machine as gpus
from gpustrap.lab.gpus import state
from gpustrap.lab.gpus.machine import Fault, inject

KERNELS = r"""
TYPES = {"l": c_ulonglong, "i": c_uint}
ENTRIES = {"gemm_f32": "llli", "gemm_f16": "llli", "fill": "lllii", "check": "llliil", "compare": "llll"}
def ptx(version="6.5", target="sm_75", entries=ENTRIES):
    words = [".version %s\n.target %s\n.address_size 64\n" % (version, target)]
    for name, letters in entries.items():
        bits = (64 if letter == "l" else 32 for letter in letters)
        each = (".param .u%d gpustrap_%s_param_%d" % (size, name, at) for at, size in enumerate(bits))
        words.append(".visible .entry gpustrap_%s(\n\t%s\n)\n{\n\tret;\n}\n" % (name, ",\n\t".join(each)))
    return c_char_p("".join(words).encode())
def loaded(name, **words):
    module = new(c_void_p, "cuModuleLoadData", ptx(**words))
    return new(c_void_p, "cuModuleGetFunction", module, c_char_p(b"gpustrap_" + name.encode()))
def launch(name, grid, *values, block=256):
    kinds = [TYPES[letter] for letter in ENTRIES[name]]
    held = [kind(getattr(value, "value", value)) for kind, value in zip(kinds, values)]
    pointers = (c_void_p * len(held))(*(ctypes.cast(byref(one), c_void_p) for one in held))
    return code("cuLaunchKernel", functions[name], grid, grid, 1, block, 1, 1, 0, None, pointers, None)
def ready(gpu=0, **words):
    global functions
    call("cuInit", 0)
    context(gpu)
    functions = {name: loaded(name, **words) for name in ENTRIES}
def matrix(values, kind="f"):
    data = __import__("struct").pack("<%d%s" % (len(values), kind), *values)
    where = memory(len(data))
    upload(where, data)
    return where
def floats(where, many):
    return list(__import__("struct").unpack("<%df" % many, download(where, 4 * many)))
def report(where):
    data = download(where, 1032)
    count, = __import__("struct").unpack_from("<Q", data)
    return count, [__import__("struct").unpack_from("<QII", data, 8 + 16 * at) for at in range(min(count, 64))]
def product(kind, a, b, n):
    c = memory(4 * n * n)
    found = launch("gemm_" + kind, n // 64, a, b, c, n) or code("cuCtxSynchronize")
    return found or floats(c, n * n)
"""
N = 64
SEED = random.Random(7)
A, B = ([SEED.randint(-3, 3) for _ in range(N * N)] for _ in range(2))
WANT = [sum(A[row * N + k] * B[k * N + column] for k in range(N)) for row in range(N) for column in range(N)]
GPUS = gpus.machine("4x-rtx3090", gpus.driver("580"))
T4 = gpus.machine("1x-t4", gpus.driver("580"))
PASCAL = gpus.machine("1x-gtx1080ti", gpus.driver("580", "proprietary"))
PRODUCTS = f"""
ready()
answer = []
for kind, format in (("f32", "f"), ("f16", "e")):
    answer.append(product(kind, matrix({A}, format), matrix({B}, format), {N}))
"""


@pytest.fixture(scope="module")
def ask(cuda):
    return lambda there, words, **environment: cuda(there, KERNELS + words, **environment)


def test_products_of_integers_are_exact(ask):
    assert ask(T4, PRODUCTS) == [WANT, WANT]


def test_a_product_of_fractions_is_rounded_as_a_kernel_rounds_it(ask):
    """FP32, fused, k ascending: against the same in exact arithmetic, rounded once a step."""
    numbers = random.Random(3)
    one = [struct.unpack("<f", struct.pack("<f", numbers.gauss(0, 1)))[0] for _ in range(N * N)]
    words = f"ready()\na = matrix({one})\nanswer = product('f32', a, a, {N})"
    found = ask(T4, words)
    for row, column in ((0, 0), (17, 40), (63, 63)):
        total = Rounded()
        for k in range(N):
            total.add(one[row * N + k], one[k * N + column])
        assert found[row * N + column] == total.value
    assert ask(T4, words) == found


class Rounded:
    """A sum in FP32: each product is added exactly, then rounded."""

    def __init__(self):
        self.value = 0.0

    def add(self, left, right):
        exact = Fraction(left) * Fraction(right) + Fraction(self.value)
        near = struct.unpack("<f", struct.pack("<f", float(exact)))[0]
        bits = struct.unpack("<i", struct.pack("<f", near))[0]
        around = [struct.unpack("<f", struct.pack("<i", bits + step))[0] for step in (-1, 0, 1)]
        self.value = min(around, key=lambda one: abs(Fraction(one) - exact))


# --- faults of products ---


@pytest.mark.parametrize(
    ("value", "wrong"), [("2,5,40,20", [1]), ("0,63,0,31", [0, 1, 2]), ("4,0,0,0", []), ("1,64,0,3", [])]
)
def test_a_wrong_bit_is_where_it_was_put(ask, value, wrong):
    words = f"ready()\na, b = matrix({A}), matrix({B})\nanswer = [product('f32', a, b, {N}) for _ in range(3)]"
    _, row, column, bit = map(int, value.split(","))
    found = ask(inject(T4, Fault("wrong-bit", 0, value)), words)
    for number, result in enumerate(found):
        places = [at for at in range(N * N) if result[at] != WANT[at]]
        assert places == ([row * N + column] if number in wrong else [])
        if places:
            bits = [struct.unpack("<I", struct.pack("<f", one[places[0]]))[0] for one in (result, WANT)]
            assert bits[0] ^ bits[1] == 1 << bit


def test_a_fault_of_one_gpu_is_of_that_gpu(ask):
    there = inject(GPUS, Fault("wrong-bit", 1))
    assert ask(there, PRODUCTS) == [WANT, WANT]
    assert ask(there, PRODUCTS, CUDA_VISIBLE_DEVICES=GPUS.gpus[1].uuid)[0] != WANT


FAILING = f"""
ready()
a = matrix({A})
c = memory(4 * {N * N})
answer["launch"] = launch("gemm_f32", 1, a, a, c, {N})
answer["after"] = [code("cuCtxSynchronize"), code("cuMemAlloc_v2", byref(c_ulonglong()), c_size_t(8))]
answer["after"].append(code("cuStreamQuery", None))
call("cuDevicePrimaryCtxReset_v2", 0)
answer["reset"] = code("cuCtxSynchronize")
"""


@pytest.mark.parametrize(
    ("code", "launch", "after"), [(700, 0, 700), (719, 0, 719), (716, 0, 716), (701, 701, 0), (999, 999, 0)]
)
def test_a_kernel_that_fails(ask, code, launch, after):
    found = ask(inject(T4, Fault("kernel-error", 0, str(code))), FAILING)
    assert found == {"launch": launch, "after": [after] * 3, "reset": 0}


def test_addresses_and_launches_that_are_wrong(ask):
    words = f"""
ready()
a = matrix({A})
answer = [launch("gemm_f32", 2, a, a, a, {N}), launch("gemm_f32", 1, a, a, a, {N}, block=2048)]
answer += [code("cuCtxSynchronize")]
answer += [launch("gemm_f32", 1, a, at(a, 4), memory(4 * {N * N}), {N}), code("cuCtxSynchronize")]
"""
    assert ask(T4, words) == [801, 1, 0, 0, 700]


HANGING = f"""
ready()
a = matrix({A})
launch("gemm_f32", 1, a, a, memory(4 * {N * N}), {N})
print(code("cuStreamQuery", None), flush=True)
call("cuCtxSynchronize")
answer = "done"
"""


def test_a_kernel_that_hangs_until_the_fault_goes(cuda):
    hung = cuda.start(inject(T4, Fault("kernel-hung", 0)), KERNELS + HANGING)
    assert hung.stdout.readline() == "600\n"
    with pytest.raises(subprocess.TimeoutExpired):
        hung.wait(timeout=1)
    state.write(cuda.state, T4)
    assert hung.communicate(timeout=60)[0] == '"done"\n'


def test_a_hung_gpu_hangs_at_its_context_and_holds_nobody_else_up(cuda, ask):
    there = inject(GPUS, Fault("hung", 1))
    script = "call('cuInit', 0)\nprint('up', flush=True)\ncontext(1)"
    hung = cuda.start(there, script)
    assert hung.stdout.readline() == "up\n"
    assert ask(there, PRODUCTS) == [WANT, WANT]
    assert hung.poll() is None
    hung.send_signal(signal.SIGTERM)
    hung.communicate(timeout=60)
    assert hung.returncode == -signal.SIGTERM

    stuck = cuda.start(inject(GPUS, Fault("stuck", 1)), script)
    assert stuck.stdout.readline() == "up\n"
    time.sleep(0.5)
    stuck.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        stuck.wait(timeout=1)
    stuck.kill()
    stuck.communicate(timeout=60)


# --- modules ---


@pytest.mark.parametrize(
    ("there", "words", "wanted"),
    [
        (T4, "", 0),
        (T4, 'target="sm_80"', 218),
        (T4, 'version="9.0"', 0),
        (T4, 'version="9.1"', 222),
        (gpus.machine("1x-t4", gpus.driver("570")), 'version="8.7"', 0),
        (gpus.machine("1x-t4", gpus.driver("570")), 'version="8.8"', 222),
        (PASCAL, "", 218),
        (PASCAL, 'version="6.0", target="sm_50"', 0),
        (gpus.machine("8x-h100-sxm", gpus.driver()), 'target="sm_90a", version="8.0"', 0),
        (gpus.machine("8x-b200", gpus.driver()), 'target="sm_90a", version="8.0"', 218),
        (inject(T4, Fault("load-error", 0)), "", 209),
        (inject(T4, Fault("load-error", 0, "222")), "", 222),
    ],
)
def test_modules_load_where_the_board_and_the_driver_can(ask, there, words, wanted):
    script = f"call('cuInit', 0); context(); answer = code('cuModuleLoadData', byref(c_void_p()), ptx({words}))"
    assert ask(there, script) == wanted


def test_machine_code_for_another_architecture_is_no_kernel_image(ask):
    script = """
call("cuInit", 0); context()
answer = []
for sm in (90, 75):
    image = bytearray(b"\\177ELF" + bytes(60)); image[0x30] = sm
    answer.append(code("cuModuleLoadData", byref(c_void_p()), c_char_p(bytes(image))))
"""
    assert ask(T4, script) == [209, 801]


def test_what_is_no_ptx_and_what_the_compiler_says(ask):
    script = """
call("cuInit", 0); context()
log = ctypes.create_string_buffer(200)
options, values = (c_int * 2)(5, 6), (c_void_p * 2)(ctypes.addressof(log), 200)
answer["other"] = code("cuModuleLoadData", byref(c_void_p()), c_char_p(b"int main;"))
answer["high"] = code("cuModuleLoadDataEx", byref(c_void_p()), ptx(target="sm_121"), 2, options, values)
answer["log"] = log.value.decode()
module = new(c_void_p, "cuModuleLoadData", ptx(entries={"gemm_f32": "lll", "other": "l"}))
answer["names"] = [
    code("cuModuleGetFunction", byref(c_void_p()), module, c_char_p(name))
    for name in (b"gpustrap_gemm_f32", b"gpustrap_other", b"gpustrap_fill")
]
"""
    found = ask(T4, script)
    assert (found["other"], found["high"]) == (218, 218)
    assert "SM version specified by .target is higher" in found["log"]
    assert found["names"] == [801, 801, 500], "other parameters, unknown to the lab, not in the module"


# --- memory tests ---

MEMORY = """
ready({gpu})
out, found = memory(1032), []
def check(where, first, seed, flip, words):
    call("cuMemsetD8_v2", out, 0, c_size_t(1032))
    assert launch("check", 5, where, words, first, seed, flip, out) == 0
    return report(out)
"""


def pattern(place, seed):
    x = (place & 0xFFFFFFFF) ^ ((place >> 32) * 0x9E3779B1 & 0xFFFFFFFF) ^ seed
    x = (x ^ x >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    x = (x ^ x >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return x ^ x >> 16


def test_a_pattern_is_that_of_the_readme(ask):
    words = """
words = (5 << 20) // 4
where = memory(4 * words)
launch("fill", 5, at(where, 8), words - 3, 1 << 33, 77, 0xFFFF0000)
data = download(where, 4 * words)
places = (0, 1, 2, 3, 1000000, words - 2, words - 1)
answer["words"] = [int.from_bytes(data[4 * at:4 * at + 4], "little") for at in places]
answer["same"] = check(at(where, 8), 1 << 33, 77, 0xFFFF0000, words - 3)[0]
"""
    found = ask(T4, MEMORY.format(gpu=0) + words)
    last = (5 << 18) - 1
    wanted = [pattern((1 << 33) + at - 2, 77) ^ 0xFFFF0000 for at in (2, 3, 1000000, last - 1)]
    assert found["words"] == [0, 0, *wanted, 0]
    assert found["same"] == 0


def test_most_of_the_memory_is_tested_without_having_it(ask):
    words = """
words = (20 << 30) // 4
where = memory(4 * words)
for flip in (0, 0xFFFFFFFF):
    launch("fill", 5, where, words, 0, 1, flip)
    found.append(check(where, 0, 1, flip, words)[0])
upload(at(where, (10 << 30) + 12), b"\\1\\2\\3\\4")
count, (first, *rest) = check(where, 0, 1, 0xFFFFFFFF, words)
answer.update(clean=found, count=count, index=first[0], got=first[1], want=first[2])
answer["small"] = peak() < 200_000
"""
    index = (10 << 28) + 3
    assert ask(GPUS, MEMORY.format(gpu=0) + words) == {
        "clean": [0, 0],
        "count": 1,
        "index": index,
        "got": 0x04030201,
        "want": pattern(index, 1) ^ 0xFFFFFFFF,
        "small": True,
    }


@pytest.mark.parametrize(("gpu", "mib"), [(1, 4096), (0, 4096), (1, 2)])
def test_a_stuck_bit_is_found_by_a_test_of_its_memory(ask, gpu, mib):
    """In one of the two patterns, whether or not the memory was filled before the bit stuck."""
    words = """
words = (20 << 30) // 4
where = memory(4 * words)
for flip in (0, 0xFFFFFFFF):
    launch("fill", 5, where, words, 0, 1, flip)
    found.append(check(where, 0, 1, flip, words))
answer = [where.value % (1 << 40), found]
"""
    there = inject(GPUS, Fault("stuck-bit", 1, f"{mib},9"))
    begin, found = ask(there, MEMORY.format(gpu=gpu) + words)
    index = ((mib << 20) - begin) // 4
    is_hit = gpu == 1 and index >= 0
    assert [count for count, _ in found] == (
        [1 - (pattern(index, 1) >> 9 & 1), pattern(index, 1) >> 9 & 1] if is_hit else [0, 0]
    )
    for count, records in found:
        assert len(records) == count
        assert all((at, got ^ want) == (index, 1 << 9) for at, got, want in records)


def test_differences_are_counted_and_the_first_are_told(ask):
    words = """
one, two = memory(4000), memory(4000)
upload(two, b"\\1\\0\\0\\0" * 100 + bytes(3600))
call("cuMemsetD8_v2", one, 0, c_size_t(4000))
call("cuMemsetD8_v2", out, 0, c_size_t(1032))
launch("compare", 3, one, two, 1000, out)
answer = report(out)
launch("compare", 3, one, two, 50, out)
answer = [*answer, report(out)[0]]
"""
    count, records, after = ask(T4, MEMORY.format(gpu=0) + words)
    assert (count, len(records), after) == (100, 64, 150)
    assert records[63] == [63, 0, 1]


# --- time ---

RATE = """
ready()
n = 512
a, c = memory(4 * n * n), memory(4 * n * n)
for kind in ("f32", "f16"):
    answer[kind] = 2 * n ** 3 / timed(lambda: launch("gemm_" + kind, n // 64, a, a, c, n)) / 1e9
"""


def test_products_take_what_the_board_takes(ask):
    rate = ask(GPUS, RATE)
    peak = 82 * 128 * 2 * 2100e6 / 1e12
    assert rate["f32"] == pytest.approx(peak / 2, rel=0.001)
    assert rate["f16"] == pytest.approx(peak, rel=0.001)
    assert ask(inject(GPUS, Fault("slow", 0, "60")), RATE)["f32"] == pytest.approx(0.6 * rate["f32"], rel=0.001)
    assert ask(inject(GPUS, Fault("hot", 0)), RATE)["f32"] == pytest.approx(0.5 * rate["f32"], rel=0.001)
    assert ask(inject(GPUS, Fault("slow", 1)), RATE) == rate


@pytest.mark.parametrize(("there", "name"), [(T4, "sm_75"), (T4, "sm_50"), (PASCAL, "sm_50")])
def test_the_kernels_of_verify_load_and_are_all_known(ask, there, name):
    """Each entry that gpustrap ships, with the parameters that it has there."""
    ptx = Path(verify.__file__).parent / f"kernels/gpustrap.{name}.ptx"
    entries = re.findall(r"\.entry (\w+)\(", ptx.read_text(encoding="ascii"))
    assert {f"gpustrap_{name}" for name in ("gemm_f32", "gemm_f16", "fill", "check", "compare")} <= set(entries)
    words = f"""
call("cuInit", 0); context()
module = new(c_void_p, "cuModuleLoadData", c_char_p(open({str(ptx)!r}, "rb").read()))
answer = [code("cuModuleGetFunction", byref(c_void_p()), module, c_char_p(name.encode())) for name in {entries}]
"""
    assert ask(there, words) == [0] * len(entries)
