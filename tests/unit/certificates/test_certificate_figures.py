"""Bars, curves and the picture of a machine: everything is in them, inside the frame, whatever the numbers are."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpustrap.model.certificate import Gpu, Hardware
from gpustrap.model.check import Check, Measure, Series, Verdict
from gpustrap.report.figures.bars import bars, matrices
from gpustrap.report.figures.curves import HEIGHT, MOST, WIDTH, charts, nice_ticks, thinned
from gpustrap.report.figures.topology import Topology, topology


def check(*measures: Measure, series: tuple[Series, ...] = ()) -> Check:
    return Check(id="a-check", title="A check", verdict=Verdict.PASS, measures=measures, series=series)


def measure(value: float, subject: str = "a", **changed: Any) -> Measure:
    return Measure.model_validate(
        {"name": "matmul-bf16", "subject": subject, "value": value, "unit": "TFLOPS", **changed}
    )


def gpu(address: str, **changed: Any) -> Gpu:
    found = {
        "address": f"0000:{address}:00.0",
        "name": "A100",
        "pci_id": "10de:20b0",
        "uuid": f"GPU-{address}",
        **changed,
    }
    return Gpu.model_validate(found)


def machine(*gpus: Gpu, switches: int = 0) -> Hardware:
    words = dict.fromkeys(("os", "kernel", "virtualization", "cpu", "driver", "flavour"), "x")
    return Hardware(
        **words,
        secure_boot=None,
        threads=1,
        memory=1,
        gpus=gpus,
        switches=tuple(f"0000:0{n}:00.0" for n in range(switches)),
    )


def drawn(machine: Hardware, *checks: Check) -> Topology:
    found = topology(machine, checks)
    assert found
    return found


def test_bars_are_on_one_scale_with_what_is_expected() -> None:
    (group,) = bars([check(measure(50, "a", expected=100), measure(100, "b", expected=100))], str.upper)
    assert [(bar.label, bar.length, bar.expected, bar.note) for bar in group.bars] == [
        ("A", 50.0, 100.0, "50 %"),
        ("B", 100.0, 100.0, "100 %"),
    ]
    assert (group.title, group.expected) == ("matmul bf16", "100 TFLOPS")


def test_what_is_expected_of_each_is_beside_it_where_it_differs() -> None:
    (group,) = bars([check(measure(50, expected=100, source="s"), measure(9, expected=10))], str)
    assert [bar.note for bar in group.bars] == ["50 % of 100 TFLOPS (s)", "90 % of 10 TFLOPS"]


def test_where_nothing_is_expected_none_is_shown() -> None:
    (group,) = bars([check(measure(0), measure(7))], str)
    assert [(bar.length, bar.expected, bar.note) for bar in group.bars] == [(0.0, None, ""), (100.0, None, "")]


@given(st.lists(st.tuples(st.floats(-1e18, 1e18), st.floats(0, 1e18)), min_size=1, max_size=9))
def test_no_bar_is_longer_than_its_frame(values: list[tuple[float, float]]) -> None:
    (group,) = bars([check(*(measure(value, expected=expected) for value, expected in values))], str)
    assert all(0 <= bar.length <= 100 and 0 <= (bar.expected or 0) <= 100 for bar in group.bars)


def test_measures_between_two_are_a_table() -> None:
    pairs = [measure(9, "a", peer="b"), measure(8, "b", peer="a", verdict="fail"), measure(7, "c", peer="a")]
    (matrix,) = matrices([check(*pairs)], str)
    assert matrix.heads == ("a", "b", "c")
    assert [[cell.text for cell in cells] for _, cells in matrix.rows] == [["", "9", ""], ["8", "", ""], ["7", "", ""]]
    assert matrix.rows[1][1][0].verdict is Verdict.FAIL


def test_of_two_measures_of_one_pair_the_worse_is_shown() -> None:
    pairs = [measure(9, "a", peer="b", verdict="fail"), measure(8, "a", peer="b", name="matmul-fp16")]
    (matrix,) = matrices([check(*pairs)], str)
    assert [cell.text for cell in matrix.rows[0][1]] == ["", "9"]


POINTS = st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e6, 1e6)), min_size=1, max_size=40)


@given(st.lists(POINTS, min_size=1, max_size=5))
@settings(max_examples=40)
def test_curves_stay_in_their_frame(series: list[list[tuple[float, float]]]) -> None:
    found = [Series(name="power", subject=str(n), unit="W", points=tuple(points)) for n, points in enumerate(series)]
    (chart,) = charts([check(series=tuple(found))], str)
    assert len(chart.curves) == len(series)
    for curve in chart.curves:
        numbers = [float(word) for word in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", curve.path)]
        assert all(0 <= x <= WIDTH for x in numbers[::2])
        assert all(0 <= y <= HEIGHT for y in numbers[1::2])
        assert "nan" not in curve.path
    assert all(0 <= tick.at <= HEIGHT for tick in chart.up)
    assert all(0 <= tick.at <= WIDTH for tick in chart.across)
    assert 2 <= len(chart.up) <= 8


@given(st.integers(1, 5 * MOST), st.integers())
def test_thinning_keeps_the_extremes(count: int, seed: int) -> None:
    random = Random(seed)
    points = [(float(second), random.uniform(-1e6, 1e6)) for second in range(count)]
    kept = thinned(points)
    assert len(kept) <= MOST
    assert {min(v for _, v in kept), max(v for _, v in kept)} == {min(v for _, v in points), max(v for _, v in points)}


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9))
def test_ticks_hold_the_values(low: float, span: float) -> None:
    ticks = nice_ticks(low, low + span)
    slack = 1e-6 * (abs(low) + span + 1)
    assert ticks[0] <= low + slack
    assert ticks[-1] >= low + span - slack
    assert len(ticks) <= 8


@pytest.mark.parametrize(("seconds", "unit"), [(50, "s"), (600, "min"), (7200, "h"), (86400 * 3, "d")])
def test_time_is_told_in_a_unit_of_its_own(seconds: float, unit: str) -> None:
    series = Series(name="power", points=((0, 1), (seconds, 2)))
    (chart,) = charts([check(series=(series,))], str)
    assert {tick.text.split()[1] for tick in chart.across} == {unit}


def test_a_series_without_points_is_no_chart() -> None:
    assert charts([check(series=(Series(name="power", points=()),))], str) == ()


def test_a_machine_without_gpus_has_no_picture() -> None:
    assert topology(machine(), ()) is None


def test_only_bridges_that_gpus_share_are_drawn() -> None:
    own = gpu("01", numa_node=0, bridges=("0000:00:01.0",))
    pair = [
        gpu(slot, numa_node=1, bridges=("0000:80:01.0", "0000:81:00.0", f"0000:82:{slot}.0")) for slot in ("83", "84")
    ]
    found = drawn(machine(own, *pair))
    assert sorted(box.words for box in found.boxes if box.kind in {"cpu", "bridge"}) == [
        "CPU 0",
        "CPU 1",
        "bridge 0000:81:00.0",
    ]
    assert found.words == "CPU 0: 0000:01:00.0; CPU 1: 0000:83:00.0, 0000:84:00.0"


def test_nothing_lies_over_anything_else() -> None:
    gpus = [gpu(f"{n:02x}", numa_node=n // 4, bridges=(f"0000:{n // 2}0:00.0",)) for n in range(8)]
    found = drawn(machine(*gpus, switches=4))
    boxes = found.boxes
    for one in boxes:
        assert one.x + one.width <= found.width
        assert one.y + one.height <= found.height
        for other in boxes:
            apart = (
                one.x + one.width <= other.x
                or other.x + other.width <= one.x
                or one.y + one.height <= other.y
                or other.y + other.height <= one.y
            )
            assert one is other or apart


def test_nvlink_is_drawn_where_a_copy_is_faster_than_the_slots() -> None:
    cards = [gpu(slot, link_width_max=16, link_speed_max=16.0, nvlink="NVLink3 bridge") for slot in ("01", "02", "03")]
    copies = check(
        measure(51, "GPU-01", peer="GPU-02", unit="GB/s"),
        measure(24, "GPU-01", peer="GPU-03", unit="GB/s"),  # PCIe 4.0 x16 carries 31.5
    )
    found = drawn(machine(*cards), copies)
    assert found.words.endswith("NVLink between 0000:01:00.0 and 0000:02:00.0")
    assert [wire.kind for wire in found.wires].count("nvlink") == 1


def test_boards_without_nvlink_have_none_drawn() -> None:
    cards = [gpu(slot, link_width_max=1, link_speed_max=2.5) for slot in ("01", "02")]
    found = drawn(machine(*cards), check(measure(51, "GPU-01", peer="GPU-02", unit="GB/s")))
    assert "NVLink" not in found.words


def test_a_gpu_has_the_colour_of_its_worst_measure() -> None:
    found = drawn(machine(gpu("01"), gpu("02")), check(measure(1, "GPU-01"), measure(1, "GPU-01", verdict="fail")))
    assert [box.verdict for box in found.boxes if box.kind == "gpu"] == [Verdict.FAIL, None]


def test_a_link_that_is_narrower_than_the_card_says_so() -> None:
    found = drawn(machine(gpu("01", link_width=1, link_width_max=16)))
    assert "01:00.0 · x1 of x16" in next(box.lines for box in found.boxes if box.kind == "gpu")


@pytest.mark.parametrize("count", [1, 16, 200])
def test_any_number_of_gpus_has_a_picture(count: int) -> None:
    found = drawn(machine(*(gpu(f"{n:x}") for n in range(count))))
    assert found.height < 3500
