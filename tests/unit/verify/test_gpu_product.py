"""Freivalds in whole numbers, seeded matrices, sums in fp64, and a process for each job: all of it without a GPU."""

from __future__ import annotations

import array
import math
import os
import random
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpustrap.verify.gpustrap_verify.compute import cublas, judge, workers
from gpustrap.verify.gpustrap_verify.compute.matrices import INTEGERS, NORMAL, TYPES, codes, encode
from gpustrap.verify.gpustrap_verify.compute.product import Product
from gpustrap.verify.gpustrap_verify.compute.sample import LIMIT, Sample

N = 64
PRODUCT = Product(11, N)


def exact() -> array.array:
    """C, by the definition of a product."""
    a, b = ([int(INTEGERS[code]) for code in of] for of in (PRODUCT.a, PRODUCT.b))
    columns = [b[j::N] for j in range(N)]
    return array.array(
        "f",
        [
            sum(x * y for x, y in zip(a[i * N : (i + 1) * N], column, strict=True))
            for i in range(N)
            for column in columns
        ],
    )


C = exact().tobytes()


def flipped(place: int, bit: int) -> bytes:
    words = array.array("I", C)
    words[place] ^= 1 << bit
    return words.tobytes()


# --- is it the product? ---


def test_the_right_product_is_right() -> None:
    found = PRODUCT.verify(C)
    assert (found.columns, found.wrong, found.complete) == ([], [], True)


@settings(deadline=None, max_examples=150)
@given(place=st.integers(0, N * N - 1), bit=st.integers(0, 31))
def test_any_flipped_bit_is_found_and_placed(place: int, bit: int) -> None:
    (one,) = PRODUCT.verify(flipped(place, bit)).wrong
    assert (one.row, one.column) == divmod(place, N)
    assert one.got ^ one.want == 1 << bit


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30, 9 * N + 1, -9 * N - 1, 0.5])
def test_what_no_product_can_be_is_found(value: float) -> None:
    values = array.array("f", C)
    values[5 * N + 6] = value
    found = PRODUCT.verify(values.tobytes())
    assert 6 in found.by_bits
    assert [(one.row, one.column) for one in found.wrong] == [(5, 6)]


@pytest.mark.parametrize("bits", [0x80000000, 0x00000001])
def test_a_zero_that_became_minus_zero_or_a_denormal_is_found_by_its_bits_alone(bits: int) -> None:
    """In sums they are nothing: without the look at bits they would pass."""
    words = array.array("I", C)
    place = words.index(0)
    words[place] = bits
    found = PRODUCT.verify(words.tobytes())
    assert (found.by_sums, found.by_bits) == (set(), {place % N})


def test_rows_that_change_places_are_found_by_sums_alone() -> None:
    """Whole numbers in range, in the wrong place, as a wrong address makes them."""
    swapped = C[4 * N : 8 * N] + C[: 4 * N] + C[8 * N :]
    found = PRODUCT.verify(swapped)
    assert found.by_sums
    assert not found.by_bits


def test_a_product_that_was_not_made_is_wrong_all_over() -> None:
    found = PRODUCT.verify(b"\xff" * len(C))
    assert len(found.columns) == N
    assert not found.complete
    assert PRODUCT.verify(bytes(len(C))).columns


def test_wrong_elements_are_all_told_up_to_many_columns() -> None:
    words = array.array("I", C)
    for j in range(16):
        words[3 * N + j] ^= 1 << 20
        words[9 * N + j] ^= 1 << 19
    found = PRODUCT.verify(words.tobytes())
    assert found.complete
    assert len(found.wrong) == 32


def test_equal_seeds_are_equal_products_everywhere() -> None:
    """Two nodes are compared by the digests of their results: numbers of one Python, written down."""
    assert codes(22, 8).hex() == "bf354df508f848e8"
    assert Product(11, N).a == PRODUCT.a
    assert Product(12, N).a != PRODUCT.a


# --- types ---


@pytest.mark.parametrize("name", TYPES)
def test_small_integers_are_exact_in_every_type(name: str) -> None:
    for value in range(-3, 4):
        assert TYPES[name].rounded(float(value)) == value


def test_integers_are_all_about_as_frequent() -> None:
    assert sorted({INTEGERS.count(float(value)) for value in range(-3, 4)}) == [36, 37]
    assert set(INTEGERS) == set(map(float, range(-3, 4)))


@pytest.mark.parametrize(
    ("name", "value", "want"),
    [
        ("tf32", 1 + 2**-11, 1.0),  # halfway: to the even one
        ("tf32", 1 + 3 * 2**-11, 1 + 2**-9),
        ("tf32", 1 + 2**-11 + 2**-20, 1 + 2**-10),
        ("bf16", 1 + 2**-8, 1.0),
        ("bf16", -1 - 3 * 2**-8, -1 - 2**-6),
        ("fp16", 1 + 2**-11, 1.0),
        ("fp32", 1 + 2**-24, 1.0),
    ],
)
def test_rounding_is_to_the_nearest_even(name: str, value: float, want: float) -> None:
    assert TYPES[name].rounded(value) == want


def test_encoded_bytes_are_the_types_own() -> None:
    some = bytes([0, 100, 255])
    assert encode(some, INTEGERS, TYPES["fp16"]) == struct.pack("<3e", *(INTEGERS[code] for code in some))
    assert encode(some, NORMAL, TYPES["fp32"]) == struct.pack("<3f", *(NORMAL[code] for code in some))
    assert encode(some, INTEGERS, TYPES["bf16"]) == b"".join(struct.pack("<f", INTEGERS[code])[2:] for code in some)


# --- real-valued data ---


def test_elements_are_held_against_sums_in_fp64_of_the_same_rounded_inputs() -> None:
    kind = TYPES["bf16"]
    sample = Sample(3, N, kind)
    a, b = ([kind.rounded(NORMAL[code]) for code in of] for of in (sample.a, sample.b))
    rows = [a[i * N : (i + 1) * N] for i in range(N)]
    values = array.array("f", [math.fsum(map(float.__mul__, row, b[j::N])) for row in rows for j in range(N)])
    worst, off = sample.verify(values.tobytes())
    assert not off
    assert worst < LIMIT / 10
    for change in (1e-4, math.nan, math.inf):
        wrong = array.array("f", [value + change * N for value in values])
        assert len(sample.verify(wrong.tobytes())[1]) == 16 * N


# --- equal GPUs ---


def outcome(digest: str) -> dict:
    one = {"data": "normal", "kind": "bf16", "n": N, "seed": 1, "digest": digest}
    return {"version": "13.0.2", "outcomes": [one]}


@pytest.mark.parametrize(
    ("digests", "told"),
    [("aaaa", ""), ("aaba", "3"), ("ab", "1, 2"), ("aabb", "3, 4, 1, 2"), ("a", "")],
)
def test_the_odd_one_out_is_told_where_most_agree(digests: str, told: str) -> None:
    gpus = [judge.Gpu(str(at), "X", str(at), "X") for at in range(1, len(digests) + 1)]
    found = judge.differing([(gpu, outcome(digest)) for gpu, digest in zip(gpus, digests, strict=True)])
    assert sorted(found.replace("GPU ", "").replace(" (X)", "").rpartition(": ")[2].split(", ")) == sorted(
        told.split(", ")
    )


def test_gpus_of_other_kinds_are_not_compared() -> None:
    one, other = judge.Gpu("1", "X", "1", "X"), judge.Gpu("2", "Y", "2", "Y")
    assert not judge.differing([(one, outcome("a")), (other, outcome("b"))])


# --- where cuBLAS lies ---


def test_cublas_is_taken_from_environments_first_then_toolkits_then_ldconfig(tmp_path) -> None:
    def library(name: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return str(path)

    env, cuda = tmp_path / "env", tmp_path / "cuda"
    wanted = [
        library("env/lib/python3.12/site-packages/nvidia/cublas/lib/libcublas.so.12"),
        library("env/lib/python3.12/site-packages/nvidia/cu13/lib/libcublas.so.13"),
        library("cuda/targets/x86_64-linux/lib/libcublas.so.12"),
        library("usr/libcublas.so.11"),
    ]
    library("cuda/targets/x86_64-linux/lib/libcublas.so.12.9.1.4")  # the same by its whole name
    (cuda / "lib64").symlink_to("targets/x86_64-linux/lib")
    old = library("usr/libcublas.so.9")
    names = (wanted[3], old, wanted[0])
    cache = "".join(f"\t{name.rpartition('/')[2]} (libc6,x86-64) => {name}\n" for name in names)
    found = [str(path) for path in cublas.find([env, cuda], cache)]
    assert len(found) == len(set(found)) == 4
    assert [str(os.path.realpath(path)) for path in found] == wanted


@pytest.mark.parametrize(
    ("number", "text"), [(120901, "12.9.1"), (11200, "11.2.0"), (110902, "11.9.2"), (130000, "13.0.0")]
)
def test_versions_of_cublas(number: int, text: str) -> None:
    assert cublas._version(number) == text


# --- processes ---


def test_one_that_hangs_or_dies_costs_only_itself() -> None:
    def hang(step):
        step("the first")
        step("the second")
        time.sleep(60)

    jobs = {
        "good": ({"SAID": "yes"}, lambda step: {"said": os.environ["SAID"]}),
        "hangs": ({}, hang),
        "dies": ({}, lambda step: os.kill(os.getpid(), 15)),
        "fails": ({}, lambda step: 1 // 0),
    }
    start = time.monotonic()
    found = workers.run(jobs, 2)
    assert time.monotonic() - start < 10
    assert found["good"].data == {"said": "yes"}
    assert (found["hangs"].problem, found["hangs"].hung, found["hangs"].last) == (
        "stopped after 2 s",
        True,
        "the second",
    )
    assert found["dies"].problem == "the process was ended by signal 15"
    assert "division" in found["fails"].problem
    assert "SAID" not in os.environ


def test_a_process_leaves_nothing_behind() -> None:
    before = {path.name for path in Path("/proc/self/fd").iterdir()}
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    others = children.read_text()  # other tests of this process may have some
    workers.run({"a": ({}, lambda step: {"x": 1}), "b": ({}, lambda step: time.sleep(60))}, 1)
    assert {path.name for path in Path("/proc/self/fd").iterdir()} == before
    assert children.read_text() == others


def test_a_process_that_is_stuck_holds_nothing_of_its_parent() -> None:
    """Neither the lock of a verification nor the pipe that the controller reads to its end."""

    def held(step):
        names = [path.name for path in Path("/proc/self/fd").iterdir() if path.exists()]
        return {"held": sorted(str(Path(f"/proc/self/fd/{name}").readlink()).split(":")[0] for name in names)}

    ours, theirs = os.pipe()
    found = workers.run({"a": ({}, held)}, 10)["a"].data["held"]
    os.close(ours)
    os.close(theirs)
    assert [one for one in found if not one.startswith("/proc/")] == ["/dev/null"] * 3 + ["pipe"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_the_work_is_done_by_an_ordinary_user() -> None:
    def who(step):
        return {"who": [os.getuid(), os.getgid(), os.getgroups()]}

    found = workers.run({"a": ({}, who)}, 10, workers.User(65534, 65534, (44,)))
    assert found["a"].data == {"who": [65534, 65534, [44]]}


def test_random_bits_are_not_shared_state() -> None:
    """The generator is our own: a program that seeds Python's does not change what is tested."""
    random.seed(1)
    first = codes(5, 16)
    random.seed(2)
    assert codes(5, 16) == first
