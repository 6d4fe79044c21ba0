"""Text to tokens and back, and stop strings, at the borders where they break."""

from __future__ import annotations

import itertools
import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from mlxceld.engine.text import Detokenizer, StopScanner, Text, end_ids
from tests import tiny

FOX = ["The ", "quick br", "own f", "ox ju", "mps"]


@pytest.fixture(scope="module")
def text() -> Text:
    """The tiny byte-level tokenizer: byte b is token 3 + position of its letter."""
    backend = Tokenizer.from_str(json.dumps(tiny.tokenizer_json()))
    return Text.from_tokenizers(backend, bos_id=tiny.IM_START, add_bos=True)


def _scan(pieces: list[str], stops: list[str]) -> tuple[list[str], str | None]:
    scanner = StopScanner(stops)
    sent = []
    for piece in pieces:
        part, hit = scanner.feed(piece)
        sent.append(part)
        if hit is not None:
            return sent, hit
    return [*sent, scanner.flush()], None


def test_a_stop_string_that_crosses_token_borders_is_found_and_never_sent() -> None:
    sent, hit = _scan(FOX, ["own fox"])
    assert hit == "own fox"
    assert "".join(sent) == "The quick br"


def test_only_what_may_become_a_stop_string_is_held_back() -> None:
    sent, hit = _scan(["abc", "x", "ab", "cd!"], ["abcd"])
    assert sent == ["", "abcx", "", ""]
    assert hit == "abcd"


def test_text_held_back_comes_out_when_it_was_no_stop_string() -> None:
    sent, hit = _scan(["say ab"], ["abc"])
    assert (sent, hit) == (["say ", "ab"], None)


def test_empty_stop_strings_mean_nothing() -> None:
    assert _scan(["hello"], ["", ""]) == (["hello", ""], None)
    assert _scan(["hello"], []) == (["hello", ""], None)


def test_the_earliest_of_several_stop_strings_wins() -> None:
    assert _scan(["one two three"], ["three", "two"]) == (["one "], "two")


def test_of_stop_strings_that_end_together_the_longer_wins() -> None:
    assert _scan(["the ", "brown fox"], ["fox", "own fox"])[1] == "own fox"


def test_nothing_is_sent_after_a_hit() -> None:
    scanner = StopScanner(["x"])
    assert scanner.feed("axb") == ("a", "x")
    assert scanner.feed("more") == ("", "x")
    assert scanner.flush() == ""


@settings(max_examples=200, deadline=None)
@given(
    st.text("ab", max_size=14),
    st.lists(st.text("ab", max_size=4), max_size=3),
    st.data(),
)
def test_the_result_does_not_depend_on_where_tokens_are_cut(
    whole: str, stops: list[str], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=5)))
    bounds = [0, *cuts, len(whole)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(bounds)]
    by_pieces, hit = _scan(pieces, stops)
    by_letters, same = _scan(list(whole), stops)
    assert "".join(by_pieces) == "".join(by_letters)
    assert hit == same
    # Written without the scanner: the first end of any stop string.
    ends = [
        n for n in range(len(whole) + 1) for s in stops if s and whole[:n].endswith(s)
    ]
    assert (hit is not None) == bool(ends)
    if ends:
        best = max((s for s in stops if s and whole[: min(ends)].endswith(s)), key=len)
        assert "".join(by_pieces) == whole[: min(ends) - len(best)]


@pytest.mark.parametrize(
    "sample", ["Příliš žluťoučký kůň", "안녕하세요", "👋🏽👩‍👩‍👧 ok"]
)
def test_characters_cut_at_every_byte_come_out_whole(sample: str) -> None:
    raw = sample.encode()
    detokenizer = Detokenizer(Text([bytes([b]) for b in range(256)], _no_text))
    deltas = [detokenizer.add(byte) for byte in raw]
    assert "".join(deltas) + detokenizer.flush() == sample
    assert not any("\ufffd" in delta for delta in deltas)


def test_two_requests_do_not_share_half_a_character() -> None:
    text = Text([b"\xc3", b"\xa9", b"\xa8"], _no_text)
    one, other = Detokenizer(text), Detokenizer(text)
    assert (one.add(0), other.add(0)) == ("", "")
    assert (one.add(1), other.add(2)) == ("é", "è")


def test_bytes_that_are_no_text_become_replacement_marks() -> None:
    detokenizer = Detokenizer(Text([b"\xff", b"a"], _no_text))
    assert detokenizer.add(0) + detokenizer.add(1) == "\ufffda"


def test_a_character_cut_off_by_the_end_is_dropped() -> None:
    detokenizer = Detokenizer(Text([b"ok \xf0\x9f"], _no_text))
    assert detokenizer.add(0) == "ok "
    assert detokenizer.flush() == ""


def test_special_tokens_give_no_text_but_have_one(text: Text) -> None:
    assert Detokenizer(text).add(tiny.IM_END) == ""
    assert text.piece(tiny.IM_END) == b""
    assert text.piece(tiny.IM_END, special=True) == b"<|im_end|>"
    assert text.decode([tiny.IM_END, tiny.vocabulary().index("A")]) == "<|im_end|>A"


def test_special_tokens_may_be_preserved_but_no_end_of_an_answer() -> None:
    pieces = [b"<|call|>", b"<|other|>", b"</s>", b"<|call|>x"]
    text = Text(pieces, _no_text, special=[0, 1, 2], eos_ids=[2])
    detokenizer = Detokenizer(text, ["<|call|>", "</s>"])
    assert [detokenizer.add(token) for token in (0, 1, 2, 3)] == [
        "<|call|>",
        "",
        "",
        "<|call|>x",
    ]


def _no_text(text: str, parse_special: bool) -> list[int]:
    raise AssertionError("this vocabulary encodes nothing")


def test_tokens_outside_the_vocabulary_have_no_text(text: Text) -> None:
    assert text.piece(text.n_vocab) == b""
    assert text.piece(-1, special=True) == b""


def test_text_becomes_tokens_and_comes_back(text: Text) -> None:
    tokens = text.encode(["hello world <|im_end|> é 🙂"], add_special=False)
    names = tiny.vocabulary()
    assert tokens[:2] == [names.index("hello"), names.index("Ġworld")]
    assert tiny.IM_END in tokens
    assert text.decode(tokens) == "hello world <|im_end|> é 🙂"


def test_special_tokens_can_be_taken_as_plain_text(text: Text) -> None:
    tokens = text.encode(["<|im_end|>"], add_special=False, parse_special=False)
    assert tiny.IM_END not in tokens
    assert text.decode(tokens) == "<|im_end|>"
    assert text.encode(["<|im_end|>"], add_special=False) == [tiny.IM_END]


def test_bos_goes_before_text_once_and_not_before_tokens(text: Text) -> None:
    hello = tiny.vocabulary().index("hello")
    assert text.encode(["hello"], add_special=True) == [tiny.IM_START, hello]
    assert text.encode(["<|im_start|>hello"], add_special=True) == [
        tiny.IM_START,
        hello,
    ]
    assert text.encode(["hello"], add_special=False) == [hello]
    assert text.encode([7, "hello"], add_special=True) == [7, hello]
    assert text.encode(["hello", 7, "hello"], add_special=True) == [1, hello, 7, hello]
    assert text.encode([""], add_special=True) == [tiny.IM_START]
    assert text.encode([], add_special=True) == []


def test_many_threads_may_encode_at_once(text: Text) -> None:
    wanted = text.encode(["hello world"], add_special=False)
    literal = text.encode(["<|im_end|>"], add_special=False, parse_special=False)
    wrong: list[object] = []

    def work() -> None:
        for _ in range(50):
            plain = text.encode(["<|im_end|>"], add_special=False, parse_special=False)
            if text.encode(["hello world"], add_special=False) != wanted:
                wrong.append("text")
            if plain != literal:
                wrong.append("literal")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_sentencepiece_style_tokenizer_keeps_its_spaces_and_bytes() -> None:
    vocab = {"<s>": 0, "▁a": 1, "b": 2, "<0xC3>": 3, "<0xA9>": 4, "▁": 5, "a": 6}
    backend = Tokenizer(models.BPE(vocab, [("▁", "a")], byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    backend.add_tokens([AddedToken("<s>", special=True, normalized=False)])
    text = Text.from_tokenizers(backend)
    assert [text.piece(i) for i in (1, 2, 3, 4)] == [b" a", b"b", b"\xc3", b"\xa9"]
    assert text.encode([" abé"], add_special=False) == [1, 2, 3, 4]


def test_added_tokens_that_are_not_special_are_text() -> None:
    backend = Tokenizer(models.BPE({"a": 0}, []))
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens([AddedToken("<think>", special=False)])
    assert Text.from_tokenizers(backend).piece(1) == b"<think>"


def test_well_known_ends_of_turns_end_a_generation(text: Text) -> None:
    assert text.eos_ids == {tiny.END_OF_TEXT, tiny.IM_END}
    assert end_ids({"<|eot_id|>": 5, "word": 6}, [9]) == {5, 9}


def test_end_of_a_message_is_not_the_end_of_an_answer_in_channel_formats() -> None:
    known = {"<|end|>": 1, "<|return|>": 2, "<|call|>": 3}
    assert end_ids(known, []) == {2, 3}
    assert end_ids({"<|end|>": 1}, []) == {1}


def test_a_long_text_has_the_tokens_of_its_parts(text: Text) -> None:
    """Long texts take another way through the tokenizer."""
    part = text.encode([" hello world é 🙂"], add_special=False)
    assert text.encode([" hello world é 🙂" * 500], add_special=False) == part * 500
    ends = text.encode(["<|im_end|>"], add_special=False, parse_special=False)
    whole = text.encode(["<|im_end|>" * 200], add_special=False, parse_special=False)
    assert tiny.IM_END not in whole
    assert text.decode(whole) == text.decode(ends) * 200


def test_whether_a_very_long_text_fits_is_seen_at_its_beginning(text: Text) -> None:
    read: list[int] = []

    def encoder(part: str, parse_special: bool) -> list[int]:
        read.append(len(part))
        return [0] * (len(part) // 5)

    counted = Text([b"abcde"], encoder)
    # Parts of 250,000 characters: 50,000 tokens each, 16 of them given for the cut.
    assert counted.exceeds(["x" * 10_000_000], 60_000) == 99_968
    assert read == [250_000, 250_000]
    assert counted.exceeds(["x" * 500_000], 99_968) == 0
    assert counted.exceeds([1, 2, "x" * 500_000, 3], 99_969) == 99_970
