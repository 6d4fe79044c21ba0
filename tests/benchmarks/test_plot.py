"""The picture of speed and memory: what it reads, and where it puts it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from benchmarks import plot
from benchmarks.plot import Point, Series

SVG = "{http://www.w3.org/2000/svg}"
GIB = 1 << 30


def run(work: str, ours: list[tuple[float, int]], model: str = "8b") -> dict[str, Any]:
    """A run of engine.py; mlx-lm has half the rate and twice the memory."""
    pairs = [
        {
            "ours": {"rate": rate, "peak_bytes": peak},
            "peer": {"rate": rate / 2, "peak_bytes": 2 * peak},
        }
        for rate, peak in ours
    ]
    return {"model": model, "work": work, "pairs": pairs}


ENGINE = {
    "machine": "a machine",
    "runs": [
        run("4x512", [(400, 2 * GIB), (300, 2 * GIB), (200, 3 * GIB)]),
        run("1x512", [(100, GIB)]),
        run("16384+7x512", [(9, GIB)]),
        run("8x1024", [(9, GIB)]),
        run("joins", [(9, GIB)]),
        run("2x512", [(9, GIB)], model="tiny"),
    ],
}


def test_of_engine_both_sides_are_drawn_by_the_medians_of_their_pairs() -> None:
    assert plot.series_of(ENGINE, "8b", 512) == [
        Series("mlxcel", (Point(1, 100, GIB), Point(4, 300, 2 * GIB))),
        Series("mlx-lm", (Point(1, 50, 2 * GIB), Point(4, 150, 4 * GIB))),
    ]


def test_of_rows_each_kind_of_lengths_is_a_line() -> None:
    def step(rows: int, lengths: str, held: int = 512) -> dict[str, Any]:
        told = {"model": "8b", "held": held, "rows": rows, "lengths": lengths}
        return told | {"rate": 10.0 * rows, "peak_bytes": GIB}

    steps = [step(1, "equal"), step(2, "equal"), step(2, "spread"), step(4, "x", 9)]
    assert plot.series_of({"steps": steps}, "8b", 512) == [
        Series("mlxcel, equal lengths", (Point(1, 10, GIB), Point(2, 20, GIB))),
        Series("mlxcel, spread lengths", (Point(2, 20, GIB),)),
    ]


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (0, [0, 1]),
        (6, [0, 1, 2, 3, 4, 5, 6]),
        (7, [0, 2, 4, 6, 8]),
        (0.055, [0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06]),
        (4102, [0, 1000, 2000, 3000, 4000, 5000]),
        (61, [0, 20, 40, 60, 80]),
    ],
)
def test_ticks_are_round_and_reach_above_the_largest(
    most: float, expected: list[float]
) -> None:
    assert plot.ticks(most) == pytest.approx(expected)


@pytest.fixture
def picture() -> ET.Element:
    lines = plot.series_of(ENGINE, "8b", 512)
    return ET.fromstring(plot.draw("8b & <more>", "a machine", lines))


def test_the_picture_says_what_it_shows_and_in_which_units(picture: ET.Element) -> None:
    words = [element.text for element in picture.iter(f"{SVG}text")]
    for expected in (
        "8b & <more>",
        "mlxcel",
        "mlx-lm",
        "tokens per second, all rows together",
        "peak memory in GiB, weights included",
        "rows decoding at once",
        "a machine",
    ):
        assert expected in words
    title = picture.find(f"{SVG}title")
    assert title is not None
    assert title.text == "8b & <more>"


def test_the_background_is_white_whatever_the_page_is(picture: ET.Element) -> None:
    [first] = [element for element in picture if element.tag == f"{SVG}rect"][:1]
    assert (first.get("width"), first.get("height")) == ("920", "420")
    assert first.get("fill") == "#ffffff"


def test_points_lie_where_their_numbers_belong(picture: ET.Element) -> None:
    """300 tokens/s of ours is the largest, and the top of the scale of 0 to 300."""
    lines = [element.get("points", "") for element in picture.iter(f"{SVG}polyline")]
    # Two in the legend, two in each panel of 370 x 250 that begins at y = 96.
    ours, theirs = lines[2:4]
    assert ours == "84.0,262.7 426.0,96.0"
    assert theirs == "84.0,304.3 426.0,221.0"


def test_one_number_of_rows_is_drawn_in_the_middle() -> None:
    svg = plot.draw("one", "", [Series("only", (Point(8, 50, GIB),))])
    assert 'points="255.0,96.0"' in svg


def test_the_same_numbers_give_the_same_bytes(tmp_path: Path) -> None:
    report = tmp_path / "engine.json"
    report.write_text(json.dumps(ENGINE))
    files = [tmp_path / "one.svg", tmp_path / "other.svg"]
    for file in files:
        plot.main([str(report), "--model", "8b", "--out", str(file)])
    one, other = (file.read_bytes() for file in files)
    assert one == other
    assert one.startswith(b"<svg ")


def test_a_report_without_the_model_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "engine.json"
    report.write_text(json.dumps(ENGINE))
    with pytest.raises(SystemExit) as ended:
        plot.main([str(report), "--model", "1.2b", "--out", str(tmp_path / "a.svg")])
    assert ended.value.code == 2
    assert "no numbers of this model and length" in capsys.readouterr().err
