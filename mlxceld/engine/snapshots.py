"""Texts of slots in files: mlx-lm's prompt-cache format, tokens and model beside it.

A file holds one cache object of mlx-lm for each entry of the model's cache list, so
that mlx-lm reads it too, except where keys and values are quantised to different
widths. What comes back from a disk is not believed: sizes, shapes and types are
compared with what this model's caches look like before anything reaches a slot.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    KVCache,
    QuantizedKVCache,
    make_prompt_cache,
    save_prompt_cache,
)

from mlxceld.engine.batch import SavedText
from mlxceld.engine.caches import CacheMap, Layout
from mlxceld.engine.pool import GROUP, LayerShape, Storage
from mlxceld.engine.promptfile import NOT_OURS, Tensor, read_header, read_states
from mlxceld.engine.runner import Saved, Unusable

_FORMAT = "mlxceld 1"

_STRANGE = "the file does not hold what the caches of this model look like"

_SAMPLE, _SAMPLES = 4096, 16


class Snapshots:
    """The `TextFiles` of one loaded model; `fingerprint` says which one it is."""

    def __init__(self, model: Any, map_: CacheMap, fingerprint: str) -> None:
        self._model = model
        self._map = map_
        self._identity = {"model": fingerprint, "caches": _describe(map_)}

    def write(
        self, folder: str, name: str, tokens: Sequence[int], saved: Saved | None
    ) -> int:
        """Write the file as a whole or not at all; mode 0600. Raises OSError."""
        caches: list[Any] = []
        if saved is not None:
            assert isinstance(saved, SavedText)
            caches = _to_caches(self._map, saved)
        metadata = {
            "format": _FORMAT,
            "tokens": json.dumps(list(tokens), separators=(",", ":")),
            **self._identity,
        }
        path = inside(folder, name)
        # The name of the file may be as long as a name can be.
        part = os.path.join(folder, f".mlxceld-{secrets.token_hex(8)}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            with os.fdopen(os.open(part, flags, 0o600), "wb") as file:
                save_prompt_cache(file, caches, metadata)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
                nbytes = file.tell()
            os.replace(part, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise
        with contextlib.suppress(OSError):
            _sync(folder)
        return nbytes

    def read(
        self, folder: str, name: str, most: int
    ) -> tuple[list[int], SavedText | None, int]:
        """Read a file back. Raises `Unusable`."""
        path = inside(folder, name)
        try:
            # Not held up by a pipe of that name.
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            with os.fdopen(fd, "rb") as file:
                nbytes = os.fstat(fd).st_size
                tensors, metadata = read_header(file, nbytes)
                tokens = self._tokens(metadata, most)
                if not tokens:
                    return [], None, nbytes
                self._refuse_excess(tensors, len(tokens))
                arrays = {key: one.read(file) for key, one in tensors.items()}
            states = read_states(arrays, metadata)
            return tokens, self._saved(states, metadata[1], len(tokens)), nbytes
        except Unusable:
            raise
        except FileNotFoundError:
            raise Unusable("there is no such file") from None
        except OSError as error:
            raise Unusable(f"cannot read the file: {error.strerror}") from None
        except Exception:
            # Whatever a stranger's file makes Python stumble over.
            raise Unusable(_STRANGE) from None

    def _refuse_excess(self, tensors: Mapping[str, Tensor], n: int) -> None:
        """Refuse a file that would take more memory than `n` tokens of this model."""
        most = n * self._map.bytes_per_token + self._map.fixed_bytes_per_slot
        scalars = 1024 * len(self._map.layouts)
        if sum(one.end - one.begin for one in tensors.values()) > most + scalars:
            raise Unusable(_STRANGE)

    def _tokens(self, metadata: Sequence[Any], most: int) -> list[int]:
        """The tokens, once the file is known to be of this model."""
        try:
            said = metadata[0]
            if said["format"] != _FORMAT:
                raise Unusable(NOT_OURS)
            tokens = json.loads(said["tokens"])
            identity = {key: said[key] for key in self._identity}
        except (LookupError, TypeError, ValueError, RecursionError):
            raise Unusable(NOT_OURS) from None
        if identity["model"] != self._identity["model"]:
            raise Unusable("the file was saved with another model")
        if identity["caches"] != self._identity["caches"]:
            raise Unusable("the file was saved with other cache types")
        if not isinstance(tokens, list) or any(type(one) is not int for one in tokens):
            raise Unusable("Invalid tokens in slot save file")
        if len(tokens) > most:
            raise Unusable("Restored prompt does not fit in the slot context")
        return tokens

    def _saved(self, states: list[Any], classes: Sequence[str], n: int) -> SavedText:
        """The text, every array of it checked against the model's own caches."""
        patterns = self._patterns()
        if not len(states) == len(classes) == len(patterns):
            raise Unusable(_STRANGE)
        layers: list[tuple[list[mx.array], list[mx.array]]] = []
        own = []
        triples = zip(
            self._map.layouts, patterns, zip(states, classes, strict=True), strict=True
        )
        for layout, pattern, (state, kind) in triples:
            own.append(_own(layout, pattern, state, kind, n, layers))
        mx.eval(layers)
        return SavedText(n, layers, [] if self._map.all_pooled else own)

    def _patterns(self) -> list[Any]:
        """The model's caches after one token: what a file has to look like."""
        caches = make_prompt_cache(self._model)
        if not self._map.all_pooled:
            mx.eval(self._model(mx.array([[0]]), cache=caches))
        return list(caches)


def inside(folder: str, name: str) -> str:
    """The path of a file of the folder.

    Raises `Unusable` for a name that is a path, or a link that leads elsewhere.
    """
    path = os.path.join(folder, name)
    home = os.path.realpath(folder)
    if os.path.basename(name) != name or name in ("", ".", ".."):
        raise Unusable("Invalid filename")
    if os.path.dirname(os.path.realpath(path)) != home:
        raise Unusable("Invalid filename: it is a link that leads out of the folder")
    return path


def fingerprint(path: Path) -> str:
    """A digest that tells models apart: their settings, sizes and samples of weights.

    `path` is a model's directory or a GGUF file. Reading all weights again would double
    the time to start.
    """
    digest = hashlib.sha256()
    if path.is_dir():
        files = sorted([path / "config.json", *path.glob("*.safetensors")])
    else:
        files = [path]
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name if path.is_dir() else ''}:{size}\n".encode())
        with file.open("rb") as data:
            for index in range(_SAMPLES):
                data.seek(max(0, size - _SAMPLE) * index // (_SAMPLES - 1))
                digest.update(data.read(_SAMPLE))
    return digest.hexdigest()


def _describe(map_: CacheMap) -> str:
    """The form of all caches in words, to be compared as text."""

    def side(storage: Storage) -> str:
        kind = str(storage.dtype).removeprefix("mlx.core.")
        return f"{storage.dim}{kind}" + (f"q{storage.bits}" if storage.bits else "")

    def layer(shape: LayerShape | None) -> str:
        if shape is None:
            return "own"
        return f"{shape.heads}x{side(shape.keys)},{side(shape.values)}"

    return " ".join(layer(leaf) for one in map_.layouts for leaf in one.leaves())


def _to_caches(map_: CacheMap, saved: SavedText) -> list[Any]:
    """The text as mlx-lm's cache objects."""
    layers = iter(saved.layers)

    def build(layout: Layout, own: Any) -> Any:
        if layout.parts:
            caches = [None] * len(layout.parts) if own is None else own.caches
            return CacheList(*map(build, layout.parts, caches))
        return own if layout.shape is None else _pooled(*next(layers), saved.n)

    own = saved.own or [None] * len(map_.layouts)
    return [
        build(layout, cache) for layout, cache in zip(map_.layouts, own, strict=True)
    ]


def _pooled(keys: list[mx.array], values: list[mx.array], n: int) -> Any:
    if len(keys) == len(values) == 1:
        return KVCache.from_state((keys[0], values[0], n))
    # A code of 32 bits and a scale for 32 values: their numbers differ by the bits.
    bits = keys[0].shape[-1] // keys[-1].shape[-1] if len(keys) > 1 else 0
    state = (tuple(keys), tuple(values), n, GROUP, bits)
    return QuantizedKVCache.from_state(state)


def _own(
    layout: Layout,
    pattern: Any,
    state: Any,
    kind: str,
    n: int,
    layers: list[tuple[list[mx.array], list[mx.array]]],
) -> Any:
    """The slot's own cache of one entry; pooled parts of it are added to `layers`."""
    if layout.parts:
        parts = zip(layout.parts, pattern.caches, state, strict=True)
        if kind != "CacheList":
            raise Unusable(_STRANGE)
        return CacheList(*(_own(a, b, c[0], c[1], n, layers) for a, b, c in parts))
    if layout.shape is not None:
        keys, values, held = state[0], state[1], state[2]
        if held != n:
            raise Unusable(_STRANGE)
        sides = _listed(keys), _listed(values)
        for arrays, storage in zip(
            sides, (layout.shape.keys, layout.shape.values), strict=True
        ):
            if [(a.shape, a.dtype) for a in arrays] != list(
                _wanted(layout.shape.heads, n, storage)
            ):
                raise Unusable(_STRANGE)
        layers.append(sides)
        return KVCache()
    if kind != type(pattern).__name__:
        raise Unusable(_STRANGE)
    cache = type(pattern).from_state(state)
    if not _alike(cache, pattern, n):
        raise Unusable(_STRANGE)
    return cache


def _wanted(heads: int, n: int, storage: Storage) -> Iterator[tuple[Any, mx.Dtype]]:
    """Shapes and types of one side of a pooled layer as it is stored."""
    if not storage.bits:
        yield (1, heads, n, storage.dim), storage.dtype
        return
    yield (1, heads, n, storage.dim * storage.bits // 32), mx.uint32
    for _ in range(2):
        yield (1, heads, n, storage.dim // GROUP), storage.dtype


def _alike(cache: Any, pattern: Any, n: int) -> bool:
    """Whether a slot's own cache from a file may take the place of the pattern."""
    if isinstance(pattern, ArraysCache):
        if cache.left_padding is not None or cache.lengths is not None:
            return False
        return _looks(cache.cache) == _looks(pattern.cache)
    # Everything but the length of the text and where its end is has to agree.
    fixed = ("max_size", "keep", "chunk_size")
    if any(getattr(cache, f, None) != getattr(pattern, f, None) for f in fixed):
        return False
    if cache.offset != n:
        return False
    for mine, theirs in ((cache.keys, pattern.keys), (cache.values, pattern.values)):
        if (mine.ndim, mine.dtype, mine.shape[:2], mine.shape[3:]) != (
            4,
            theirs.dtype,
            theirs.shape[:2],
            theirs.shape[3:],
        ):
            return False
    length = cache.keys.shape[2]
    index = getattr(cache, "_idx", 0)
    first = getattr(cache, "start_position", 0)
    window = getattr(cache, "max_size", None)
    held = min(n, window) if window else n - first
    return (
        cache.values.shape[2] == length
        and 0 <= first <= n
        and held <= length
        and 0 <= index <= length
    )


def _looks(arrays: Sequence[Any]) -> list[Any]:
    return [None if a is None else (a.shape, a.dtype) for a in arrays]


def _listed(side: Any) -> list[mx.array]:
    return [side] if isinstance(side, mx.array) else list(side)


def _sync(folder: str) -> None:
    """Make the new name last."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
