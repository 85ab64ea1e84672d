"""What the kernels' source computes, on the processor: the lab's libcuda.so.1 knows only their README."""

from __future__ import annotations

import array
import ctypes
import shutil
import subprocess
from ctypes import c_uint32, c_uint64
from pathlib import Path

import pytest

from gpustrap.verify.gpustrap_verify.compute.kernels import REPORT_BYTES, pattern
from gpustrap.verify.gpustrap_verify.compute.matrices import INTEGERS, TYPES, encode
from gpustrap.verify.gpustrap_verify.compute.product import Product
from gpustrap.verify.kernels import generate

HALF = 'asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(element));'


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed: the kernels' source cannot be compiled for the processor")
    place = tmp_path_factory.mktemp("kernels")
    source = generate.SOURCE.read_text(encoding="utf-8")
    assert source.count(HALF) == 1
    (place / "kernels.h").write_text(source.replace(HALF, "half_to_float(&wide, element);"), encoding="utf-8")
    library, host = place / "kernels.so", Path(__file__).with_name("kernels_on_host.cpp")
    options = ["-O1", "-std=c++17", "-shared", "-fPIC", "-pthread", f'-DKERNELS="{place / "kernels.h"}"']
    subprocess.run(["g++", *options, "-o", library, host], check=True)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize(("name", "kind"), [("host_gemm_f32", "fp32"), ("host_gemm_f16", "fp16")])
def test_products_are_products(kernels, name: str, kind: str) -> None:
    """Of four blocks: rows and columns of other tiles are taken from the right places."""
    n = 128
    product, c = Product(3, n), bytearray(b"\xff" * 4 * n * n)
    a, b = (bytes(encode(of, INTEGERS, TYPES[kind])) for of in (product.a, product.b))
    getattr(kernels, name)(a, b, (ctypes.c_char * len(c)).from_buffer(c), c_uint32(n))
    assert product.verify(c).columns == []


@pytest.mark.parametrize("first", [0, (1 << 32) - 700, 5 << 32])
def test_a_pattern_is_written_and_found_again(kernels, first: int) -> None:
    words = 1500  # no multiple of a block's threads
    memory = array.array("I", bytes(4 * words))
    at = (ctypes.c_uint32 * words).from_buffer(memory)
    place = (c_uint64(words), c_uint64(first), c_uint32(9), c_uint32(0xFFFFFFFF))
    kernels.host_fill(at, *place)
    assert list(memory) == [pattern(first + i, 9) ^ 0xFFFFFFFF for i in range(words)]
    report = bytearray(REPORT_BYTES)
    into = (ctypes.c_char * len(report)).from_buffer(report)
    kernels.host_check(at, *place, into)
    assert report == bytes(REPORT_BYTES)
    memory[1234] ^= 1 << 31
    kernels.host_check(at, *place, into)
    told = array.array("I", bytes(report))
    assert (told[0], told[2], told[4] ^ told[5]) == (1, 1234, 1 << 31)


def test_differences_are_all_counted_and_some_are_told(kernels) -> None:
    words = 3000
    one, other = array.array("I", range(words)), array.array("I", range(words))
    for i in range(0, words, 30):
        other[i] += 1
    report = bytearray(REPORT_BYTES)
    into = (ctypes.c_char * len(report)).from_buffer(report)
    got, want = ((ctypes.c_uint32 * words).from_buffer(of) for of in (one, other))
    kernels.host_compare(got, want, c_uint64(words), into)
    told = array.array("I", bytes(report))
    assert told[0] == 100
    records = [tuple(told[at : at + 4]) for at in range(2, len(told), 4)]
    assert len({index for index, _, _, _ in records}) == 64
    assert all((index % 30, got, want) == (0, index, index + 1) for index, _, got, want in records)
