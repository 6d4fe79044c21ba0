"""The working memory of one step, from the sizes of a model. Imports no MLX.

A step reads a prompt chunk and decodes a row for each slot. `plan.Geometry` takes the
terms apart, because slots and their context are only settled by the plan.
"""

from __future__ import annotations

from mlxceld import cachetypes
from mlxceld.pacing import PACINGS
from mlxceld.shape import Shape

_IN_FLIGHT = 2
"""Layers of a chunk, and decode steps, whose temporaries lie in a GPU's memory at once:
while one is computed the next is queued (engine/pace.py)."""

_SAMPLING = 100
"""Bytes for each token of the vocabulary with which a row is sampled. The likeliest
token takes 4, the usual sampling 25, all tokens 74, and all by `typical_p` 98."""

_LIBRARIES = 64 << 20
"""Bytes that CUDA's libraries take for products and attention. 32 MiB were seen beside
two layers of an 8B and of a 1.2B model on an H200."""

STRETCH = 256
"""Cells that one block of CUDA's attention reads where there are many rows, and a
quarter of them where there is one (engine/ragged.py)."""

MOST_PARTS = 64
"""Stretches of one row; each has a sum in float32 for every head until the last block
puts them together."""

_MANY = 8
"""Rows from which on all stretches are whole."""

_FUSED = 128
"""The largest heads that a GPU's attention kernel takes; with larger ones the scores
are an array of their own."""


def work_bytes(shape: Shape, width: int, *, chunk: int, kind: str) -> int:
    """Working memory of a prompt chunk of `chunk` tokens, attention scores aside.

    That is `_layer_values` for each token, `width` bytes each, of one layer on the CPU
    and of two on a GPU; the logits of a chunk are not computed. A chunk may be filled
    up by a grain less one token. On CUDA 64 MiB are for its libraries.
    """
    tokens = chunk + PACINGS[kind].grain - 1
    work = _in_flight(kind) * tokens * _layer_values(shape) * width
    if not _whole_scores(shape, width, kind) or growing_layers(shape):
        return work + _libraries(kind)
    # Only windows slide: what they attend to has an end that no context moves.
    cells = shape.window + tokens if shape.sliding_layers else 0
    scores = _cell_bytes(shape, width, tokens=tokens, kind=kind)
    return work + _libraries(kind) + cells * scores


def work_bytes_per_cell(
    shape: Shape,
    width: int,
    *,
    chunk: int,
    kind: str,
    types: tuple[str, str] = (cachetypes.AUTO, cachetypes.AUTO),
) -> int:
    """Working memory that a chunk takes for each token of the text before it.

    Where attention is not one fused kernel, a score for each of the chunk's tokens and
    heads, and a byte of the mask. Where keys and values are stored in another type,
    those of one layer in the model's precision. On a GPU both for two layers.
    """
    if not growing_layers(shape):
        return 0
    tokens = chunk + PACINGS[kind].grain - 1
    scores = 0
    if _whole_scores(shape, width, kind):
        scores = _cell_bytes(shape, width, tokens=tokens, kind=kind)
    if any(cachetypes.width(one, width) != width for one in types):
        scores += round(_in_flight(kind) * shape.token_values * width)
    return scores


def work_bytes_per_slot(shape: Shape, width: int, *, kind: str) -> int:
    """Working memory of one row of a decode step.

    A token's `_layer_values`, of one layer on the CPU and of all layers of two steps on
    a GPU, where a step is queued whole behind the one that runs; its logits, and what
    sampling makes of them. Without the parts of its attention.
    """
    layers = 1 if kind == "cpu" else _IN_FLIGHT * shape.layers
    return layers * _layer_values(shape) * width + shape.vocab * (width + _SAMPLING)


def work_bytes_per_part(shape: Shape, *, kind: str) -> int:
    """What each of a row's `parts` takes on CUDA: in all layers of a step a sum of
    values and two numbers more for every head."""
    if kind != "cuda":
        return 0
    return shape.layers * shape.heads * (shape.value_dim + 2) * 4


def parts(slots: int, slot_ctx: int) -> int:
    """The most parts of each of as many rows, if all hold `slot_ctx` tokens.

    Those of a few rows are shorter, to fill the device (engine/ragged.py).
    """
    stretch = STRETCH if slots >= _MANY else STRETCH // 4
    return min(MOST_PARTS, power(-(-slot_ctx // stretch)))


def power(n: int) -> int:
    """The least power of two that is not below `n`, 1 for numbers below that."""
    return 1 << max(0, n - 1).bit_length()


def _layer_values(shape: Shape) -> int:
    """Values that a layer makes of one token, as if all were held at once.

    Six times the hidden size (two norms, two outputs, two sums), three times the inner
    size of the MLP, queries plain, rotated and in line and the attention's output twice
    (engine/mixed.py), keys and values as computed and as written.
    """
    queries = shape.heads * (3 * shape.key_dim + 2 * shape.value_dim)
    return 6 * shape.hidden + 3 * shape.inner + queries + round(2 * shape.token_values)


def _whole_scores(shape: Shape, width: int, kind: str) -> bool:
    """Whether the scores of a chunk are ever held whole.

    On the CPU they are; on CUDA in float32, in latent attention, which hands a part of
    them over as a mask, and with large heads.
    """
    fused = kind == "metal" or (kind == "cuda" and width < 4)
    large = max(shape.key_dim, shape.value_dim) > _FUSED
    return not fused or large or shape.latent > 0


def _cell_bytes(shape: Shape, width: int, *, tokens: int, kind: str) -> int:
    """Bytes of the scores of `tokens` tokens for one cell, and of its mask."""
    scores = shape.heads * width * (2 if shape.latent else 1)
    return _in_flight(kind) * tokens * (scores + 1)


def _in_flight(kind: str) -> int:
    return 1 if kind == "cpu" else _IN_FLIGHT


def _libraries(kind: str) -> int:
    return _LIBRARIES if kind == "cuda" else 0


def growing_layers(shape: Shape) -> int:
    """Layers whose cache grows with the text."""
    return shape.layers if shape.full_layers is None else shape.full_layers
