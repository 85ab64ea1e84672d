"""What the smoke scripts compare with: one wrong entry is found, and a right result is never refused."""

from __future__ import annotations

import math
import struct

import pytest

from gpustrap.verify.gpustrap_verify.smoke import common
from gpustrap.verify.gpustrap_verify.smoke.common import SmokeError

SIZE = 24


def right() -> tuple[list[list[float]], list[list[float]], list[list[float]]]:
    a, b = common.matrix(SIZE, SIZE, seed=1), common.matrix(SIZE, SIZE, seed=2)
    return (
        a,
        b,
        [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a],
    )


def flipped(value: float, bit: int) -> float:
    """A float32 with one bit flipped."""
    (number,) = struct.unpack("<I", struct.pack("<f", value))
    return float(struct.unpack("<f", struct.pack("<I", number ^ 1 << bit))[0])


def test_a_right_product_passes() -> None:
    common.compare_product("x", *right())


@pytest.mark.parametrize("bit", range(31))  # the sign of a zero changes nothing
@pytest.mark.parametrize("place", [(0, 0), (5, 17), (SIZE - 1, SIZE - 1)])
def test_a_flipped_bit_is_found(bit: int, place: tuple[int, int]) -> None:
    a, b, c = right()
    row, column = place
    c[row][column] = flipped(c[row][column], bit)
    with pytest.raises(SmokeError, match=f"1 of {SIZE} rows are wrong; row {row}, column {column} is"):
        common.compare_product("x", a, b, c)


def test_a_zero_that_became_something_tiny_is_found() -> None:
    """It vanishes in every sum."""
    a, b, c = right()
    row, column = next((r, k) for r in range(SIZE) for k in range(SIZE) if c[r][k] == 0)
    c[row][column] = flipped(0.0, 0)
    with pytest.raises(SmokeError, match=f"row {row}, column {column}"):
        common.compare_product("x", a, b, c)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_found(value: float) -> None:
    a, b, c = right()
    c[3][4] = value
    with pytest.raises(SmokeError, match="row 3, column 4"):
        common.compare_product("x", a, b, c)


def test_errors_that_cancel_out_in_a_row_are_found() -> None:
    a, b, c = right()
    c[2][0], c[2][1] = c[2][0] + 1, c[2][1] - 1
    with pytest.raises(SmokeError):
        common.compare_product("x", a, b, c)


def test_a_product_of_another_shape_is_found() -> None:
    a, b, c = right()
    with pytest.raises(SmokeError, match="another shape"):
        common.compare_product("x", a, b, c[:-1])


def test_convolution() -> None:
    image = common.matrix(5, 5, seed=5)
    found = [[sum(sum(line[c : c + 3]) for line in image[r : r + 3]) for c in range(3)] for r in range(3)]
    common.compare_convolution("x", image, found)
    found[1][2] += 0.5
    with pytest.raises(SmokeError, match="row 1, column 2"):
        common.compare_convolution("x", image, found)


@pytest.mark.parametrize("losses", [[1.0, 1.0], [1.0, 2.0], [1.0, math.nan], [math.inf, 0.0]], ids=str)
def test_a_model_that_does_not_learn(losses: list[float]) -> None:
    with pytest.raises(SmokeError, match="the loss went from"):
        common.compare_losses("x", losses)


@pytest.mark.parametrize(
    ("built_for", "capability", "fits"),
    [
        ("sm_80", (8, 6), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("sm_90 compute_90", (12, 0), True),
        ("sm_90a", (9, 0), True),
        ("sm_90a", (9, 1), False),
        ("sm_100f", (10, 3), True),
        ("sm_100a", (10, 3), False),
        ("sm_100 sm_120", (12, 1), True),
        ("sm_75 sm_80 sm_86 sm_90 sm_100 sm_120", (7, 0), False),
        ("gfx942", (9, 0), False),
    ],
)
def test_code_for_a_device(built_for: str, capability: tuple[int, int], fits: bool) -> None:
    assert common.covers(built_for.split(), capability) is fits


def test_errors_that_cancel_under_both_rounds_would_need_equal_signs() -> None:
    """Two rounds with the same signs would miss what one misses."""
    import random

    assert random.Random(0).choices((-1, 1), k=SIZE) != random.Random(1).choices((-1, 1), k=SIZE)
