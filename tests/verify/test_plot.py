"""The timeline is a picture that any browser shows, whatever it is made from."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from mlxceld.verify.plot import svg
from mlxceld.verify.record import Poll, Record, Seen, Stream

SVG = "{http://www.w3.org/2000/svg}"
STREAMS = (
    Stream(0, 0.0, (1.0, 2.0, 3.0), 4.0, tokens=3, slot=1),
    Stream(1, 0.0, (2.0,), None, error="gone <img onerror=x> & away"),
    Stream(2, 0.5, error="HTTP 503"),
)
RECORD = Record(
    "http://host/<a>&", Seen(slots=2), STREAMS, (Poll(0.9, 1.0, 1), Poll(1.9, 2.0, 2))
)


def drawn(record: Record) -> ElementTree.Element:
    return ElementTree.fromstring(svg(record))


def rects(root: ElementTree.Element, kind: str) -> list[tuple[float, float]]:
    """Left edge and width of the bars of a kind."""
    return [
        (float(one.attrib["x"]), float(one.attrib["width"]))
        for one in root.iter(f"{SVG}rect")
        if one.attrib["class"] == kind
    ]


def test_bars_lie_where_their_times_are() -> None:
    """Four seconds are 652 wide, from 84 on."""
    root = drawn(RECORD)
    assert rects(root, "wait") == [(84.0, 163.0), (84.0, 326.0), (165.5, 0.0)]
    assert rects(root, "run") == [(247.0, 489.0), (410.0, 0.0)]


def test_every_token_is_a_line() -> None:
    (ticks, one) = (
        path.attrib["d"]
        for path in drawn(RECORD).iter(f"{SVG}path")
        if path.attrib["class"] == "tick"
    )
    assert re.findall(r"M(\S+) ", ticks) == ["247.0", "410.0", "573.0"]
    assert re.findall(r"M(\S+) ", one) == ["410.0"]


def test_texts_of_a_server_stay_texts() -> None:
    root = drawn(RECORD)
    assert not [one for one in root.iter() if not one.tag.startswith(SVG)]
    assert not list(root.iter(f"{SVG}img"))
    titles = [one.text for one in root.iter(f"{SVG}title")]
    assert "gone <img onerror=x> & away" in titles
    assert titles[0] == "3 streams at http://host/<a>&"


def test_it_needs_nothing_from_elsewhere() -> None:
    text = svg(RECORD).replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"href|url\(|@import|<script|src=", text)


def test_the_curve_shows_how_many_were_busy() -> None:
    (busy,) = (
        path.attrib["d"]
        for path in drawn(RECORD).iter(f"{SVG}path")
        if path.attrib["class"] == "busy"
    )
    # Three lanes end at 122; the floor is 84 below, and a slot is 30 high.
    assert busy == "M84.0 206H247.0V176.0H410.0V146.0H736.0"


def test_a_record_without_anything_is_an_empty_picture() -> None:
    root = drawn(Record("http://host", Seen(), ()))
    assert rects(root, "wait") == []
