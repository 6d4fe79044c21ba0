"""The bytes of tokens, worked out by hand."""

from __future__ import annotations

from mlxceld.engine.tokenbytes import byte_level_piece, spm_piece


def test_pieces_of_both_kinds_of_vocabulary() -> None:
    assert byte_level_piece("Ġworld") == b" world"
    assert byte_level_piece("Ã©Ċ") == "é\n".encode()
    assert byte_level_piece("媽") == "媽".encode()
    assert spm_piece("▁the▁end") == b" the end"
    assert spm_piece("<0x0A>") == b"\n"
