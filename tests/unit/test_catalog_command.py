"""catalog: topics, rows, what is known of a GPU, and whether the catalog is sound."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

from gpustrap.catalog.loader import load_catalog
from gpustrap.catalog.schema import Catalog
from gpustrap.catalog.schema_gpu import IdRange
from gpustrap.catalog.topics import TOPICS
from gpustrap.cli.app import app
from gpustrap.cli.output import stdout
from gpustrap.commands import catalog as commands
from gpustrap.errors import GpustrapError
from gpustrap.exitcodes import ExitCode
from gpustrap.report.catalog_text import either


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["catalog", *words])


def data(*words: str) -> Any:
    result = run(*words, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def found(text: str) -> list[str]:
    return [known.gpu.name for known in commands.find(load_catalog(), text)]


def refused(text: str) -> tuple[str, ExitCode]:
    with pytest.raises(GpustrapError) as caught:
        commands.find(load_catalog(), text)
    (problem,) = caught.value.problems
    assert problem.code == "gpu-unknown"
    return problem.message, problem.exit_code


LSPCI = "01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [GeForce RTX 3090] [10de:2204] (rev a1)"


@pytest.mark.parametrize(
    "text",
    [
        *("10de:2204", "[10de:2204]", "2204", "0x2204", "10DE:2204", LSPCI, f"0000:{LSPCI}"),
        *("RTX 3090", "3090", "geforce rtx 3090", "NVIDIA GeForce RTX 3090", "rtx3090", "RTX-3090"),
    ],
)
def test_a_gpu_is_found_by_id_and_by_name(text: str) -> None:
    """3090 is a name here, although four digits are an id, too."""
    assert found(text) == ["GeForce RTX 3090"]


def test_digits_are_an_id_where_a_board_has_it() -> None:
    assert found("2182") == ["GeForce GTX 1660 Ti"]


def test_a_prefix_makes_digits_an_id() -> None:
    (known,) = commands.find(load_catalog(), "10de:3090")
    assert known.board is None
    assert found("0x3090") == ["unlisted NVIDIA GPU 10de:3090"]


def test_a_shared_id_shows_every_board() -> None:
    assert found("2d04") == ["GeForce RTX 5060 Ti 16GB", "GeForce RTX 5060 Ti 8GB"]


def test_a_part_of_a_name_finds_all_that_have_it() -> None:
    assert set(found("V100 SXM2")) == {"Tesla V100 SXM2 16GB", "Tesla V100 SXM2 32GB"}
    assert len(found("A100")) == 5


def test_a_word_without_a_number_is_no_model() -> None:
    """RTX is not TITAN RTX alone, nor TITAN X the older of the two."""
    assert len(found("RTX")) > 50
    assert found("TITAN X") == ["GeForce GTX TITAN X", "TITAN X (Pascal)"]
    assert found("TITAN RTX") == ["TITAN RTX"]


@pytest.mark.parametrize("text", ["GTX 1080 Ti", "GTX 1080Ti", "gtx1080ti", "1080ti", "Nvidia GTX-1080 ti"])
def test_a_name_may_be_spelt_as_people_do(text: str) -> None:
    assert found(text) == ["GeForce GTX 1080 Ti"]


def test_several_ids_and_several_names_are_several_gpus() -> None:
    both = ["GeForce RTX 3090", "GeForce RTX 5090"]
    for text in ("10de:2204 10de:2b85", "2204 2b85", "2204 0x2b85", f"{LSPCI} [10de:2b85]", "3090 5090"):
        assert found(text) == both
    assert found("P40 2204") == ["Tesla P40", "GeForce RTX 3090"]


def test_what_has_the_same_words_and_more_is_named() -> None:
    result = run("show", "RTX", "6000")
    assert result.stdout.startswith("Quadro RTX 6000\n")
    assert "Also there: RTX 6000 Ada, RTX PRO 6000 Blackwell" in result.stderr
    assert "Also there" not in run("show", "10de:1e30").stderr


def test_the_vendor_alone_is_no_gpu() -> None:
    message, code = refused("10de")
    assert code is ExitCode.USAGE
    assert "the vendor" in message


def test_every_refusal_has_a_next_step() -> None:
    steps = {
        "10de": "lspci -nn -d 10de:",
        "8086:1234": "gpustrap catalog show gpus",
        "rtz 3090": "gpustrap catalog show RTX 3090",
        "driver": "gpustrap catalog show drivers",
        "xyzzy": "gpustrap catalog show gpus",
    }
    for text, step in steps.items():
        with pytest.raises(GpustrapError) as caught:
            commands.find(load_catalog(), text)
        assert caught.value.problems[0].remedy == step


def test_words_behind_a_topic_choose_its_rows() -> None:
    assert [row["branch"] for row in data("show", "drivers", "580")["drivers"]] == ["580"]
    assert "595" not in run("show", "drivers", "580").stdout
    rows = data("show", "packages", "ubuntu", "headless")["driver_packages"]
    assert rows
    assert all("ubuntu" in str(row["distros"]) and "headless" in row["leading"] for row in rows)
    assert [row["version"] for row in data("show", "cuda", "12.9")["cuda"]["toolkits"]] == ["12.9"]
    assert "toolkit package" not in run("show", "cuda", "12.9").stdout
    result = run("show", "drivers", "xyzzy")
    assert isinstance(result.exception, GpustrapError)
    (problem,) = result.exception.problems
    assert (problem.code, problem.exit_code, problem.remedy) == (
        "row-unknown",
        ExitCode.USAGE,
        "gpustrap catalog show drivers",
    )


@pytest.mark.parametrize(
    ("topic", "words"), [("drivers", ("LTSB", "NFB", "PB", "kernels before")), ("packages", ("seen",))]
)
def test_words_of_the_field_are_explained_under_the_table(topic: str, words: tuple[str, ...]) -> None:
    legend = run("show", topic).stdout.rpartition("\n\n")[2]
    assert [word for word in words if word not in legend] == []


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("topic", TOPICS)
def test_no_word_of_a_topic_is_broken_and_no_line_ends_in_spaces(
    topic: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def words(width: int) -> list[str]:
        monkeypatch.setattr(stdout, "_width", width)
        shown = run("show", topic).stdout.splitlines()
        assert [line for line in shown if line != line.rstrip()] == []
        return [word for line in shown for word in line.split() if len(word) < 40]

    assert set(words(width)) - set(words(400)) == set()


def test_the_bare_verb_shows_the_topics() -> None:
    assert (run().exit_code, run().stdout) == (0, run("show").stdout)


def test_what_is_known_of_a_gpu() -> None:
    (pascal,) = commands.find(load_catalog(), "P40")
    assert pascal.flavours == ("proprietary",)
    assert [b.branch for b in pascal.branches][-1] == "580"
    assert pascal.toolkits[-1].version == "12.9"
    (blackwell,) = commands.find(load_catalog(), "RTX 5090")
    assert blackwell.flavours == ("open",)
    assert blackwell.branches[0].branch == "570"
    assert blackwell.toolkits[0].version == "12.8"
    (ultra,) = commands.find(load_catalog(), "B300 288GB")
    assert (ultra.branches[0].branch, ultra.toolkits[0].version) == ("580", "12.9")


def test_an_unlisted_id_says_what_fits_all_it_may_be_and_warns() -> None:
    (known,) = commands.find(load_catalog(), "10de:2fff")
    assert [b.branch for b in known.branches][:1] == ["580"], "it may be a GB10, which 570 does not drive"
    (warning,) = known.warnings
    assert warning.startswith("10de:2fff is not in the catalog; ids 2900 to 2fff are Blackwell or GB10")
    result = run("show", "10de:2fff")
    assert result.exit_code == 0
    assert "Warning: 10de:2fff is not in the catalog" in result.stderr
    assert data("show", "10de:2fff")[0]["warnings"]


def test_every_unlisted_id_warns_and_every_board_does_not() -> None:
    """Never a guess without a warning: of each id, listed or not, one or the other."""
    catalog = load_catalog()
    listed = {device for gpu in catalog.gpus for device in gpu.ids}
    ends = [device for r in catalog.id_ranges for device in (r.first, r.last)]
    for device in (*ends, *sorted(listed)):
        for known in commands.find(catalog, f"10de:{device}"):
            assert bool(known.warnings) == (device not in listed), device


@pytest.mark.parametrize("text", ["10de:5000", "5000f", "10de:ffff"])
def test_what_lies_nowhere_is_refused(text: str) -> None:
    message, code = refused(text)
    assert (code is ExitCode.REFUSED) == ("range" in message)
    assert refused("10de:ffff")[1] is ExitCode.REFUSED


def test_another_vendor_is_refused() -> None:
    assert refused("1002:744c") == ("only NVIDIA's GPUs, 10de:XXXX, are in the catalog", ExitCode.REFUSED)


def test_a_misspelt_name_is_a_usage_error_with_a_suggestion() -> None:
    message, code = refused("rtz 3090")
    assert code is ExitCode.USAGE
    assert "did you mean RTX 3090" in message
    assert "drivers" in refused("driver")[0]
    assert "did you mean" not in refused("xyzzy")[0]


@pytest.mark.parametrize("text", [" ", "-", "[bold]", "\x1b[2J"])
def test_nonsense_ends_as_a_refusal(text: str) -> None:
    assert refused(text)[1] is ExitCode.USAGE


def test_the_words_of_a_name_need_no_quotes() -> None:
    result = run("show", "RTX", "3090")
    assert result.exit_code == 0
    for words in ("24 GiB", "Ampere, compute capability 8.6", "open or proprietary", "580 (LTSB until 2028-06)"):
        assert words in result.output


def test_many_gpus_are_a_table() -> None:
    assert "PCI ids 10de:" in run("show", "A100").output
    assert len(run("show", "A100").output.splitlines()) == 6


def test_the_topics() -> None:
    rows = {row["topic"]: row for row in data("show")}
    assert list(rows) == list(TOPICS)
    assert rows["drivers"]["rows"] == len(load_catalog().drivers)
    assert rows["drivers"]["recalled"] == 1
    assert rows["gpus"]["oldest"] <= rows["gpus"]["newest"]


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_is_a_table_and_whole_rows(topic: str) -> None:
    result = run("show", topic)
    assert result.exit_code == 0
    assert "verified" in result.output or "recalled" in result.output
    assert set(data("show", topic)) == set(TOPICS[topic])


def test_rows_in_json_are_as_in_the_file() -> None:
    gpus = data("show", "gpus")["gpus"]
    assert len(gpus) == len(load_catalog().gpus)
    assert {"source", "checked", "confidence", "ids"} <= set(gpus[0])


def test_a_sound_catalog() -> None:
    result = run("check")
    assert result.exit_code == 0
    assert "nothing broken" in result.stderr
    checked = data("check")
    assert checked["broken"] == []
    assert ("drivers", "620") in {(row["topic"], row["row"]) for row in checked["recalled"]}


def test_old_rows_are_shown_but_are_no_fault() -> None:
    health = commands.check(date(2100, 1, 1), 180)
    assert len(health.old) == health.rows > 0
    day = max(date.fromisoformat(e.row.checked) for e in health.old)
    assert commands.check(day, 10_000).old == ()
    assert run("check", "--older-than", "0").exit_code == 0


def broken() -> Catalog:
    catalog = load_catalog()
    return replace(catalog, gpus=(catalog.gpus[0].model_copy(update={"architecture": "Amper"}), *catalog.gpus[1:]))


def test_a_broken_reference_is_said_and_ends_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "load_catalog", broken)
    result = run("check")
    assert result.exit_code == 1
    assert "architecture Amper is not in the catalog" in result.stderr


def test_what_the_schema_refuses_is_said_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def misspelt() -> Catalog:
        TypeAdapter(tuple[IdRange, ...]).validate_python([{"firts": "0000"}])
        raise AssertionError("the schema takes anything")

    monkeypatch.setattr(commands, "load_catalog", misspelt)
    result = run("check")
    assert result.exit_code == 1
    assert "0 firts" in result.stderr
    assert "Traceback" not in result.output


def test_either() -> None:
    assert [either(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a or b", "a, b or c"]
