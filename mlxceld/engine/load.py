"""From an order to a running engine: load, measure, plan, allocate, probe, warm up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from mlxceld.cachetypes import AUTO
from mlxceld.engine import aside, blas, kernels, lean
from mlxceld.engine import messages as m
from mlxceld.engine.engine import Engine
from mlxceld.geometry import read_geometry
from mlxceld.pacing import PACINGS, Pacing
from mlxceld.plan import Geometry, make_plan
from mlxceld.problems import Problem, Refused


def load(order: m.Load, tell: Callable[[m.Loading], None]) -> Engine:
    """Load the model of `order` and make everything ready to run.

    Raises `Refused` for what a user can mend: a path, a model that is not supported, a
    plan that does not fit.
    """
    # A system BLAS has to be in the process before MLX is, and MLX asks its environment
    # when it is first imported.
    blas.load_blas()
    kernels.keep_plans()
    lean.install()
    import mlx.core as mx
    import msgspec

    from mlxceld.engine import caches, device, linear
    from mlxceld.engine.batch import ModelRunner
    from mlxceld.engine.grammar import Grammars
    from mlxceld.engine.model import find, load_model
    from mlxceld.engine.probe import Verdict, probe, writes_in_place
    from mlxceld.engine.sampling import Sampler
    from mlxceld.engine.snapshots import Snapshots, fingerprint
    from mlxceld.engine.warmup import warm_up

    def progress(doing: str, done: int, total: int) -> None:
        tell(m.Loading(doing, done, total))

    if (build := device.build()) is not None:
        kernels.keep(build)
    # Unpacked weights leave their packed ones behind: few are kept for reuse.
    device.bound_cache(0, 0)
    path = find(order.source, progress)
    loaded = load_model(
        m.ModelSource(path=str(path)),
        device=order.device,
        dequantize=order.dequantize,
        progress=progress,
    )
    info = loaded.bare
    if loaded.vocabulary.done():
        loaded.vocabulary.result()  # refuses what is of no use before more is done

    def prepare() -> Grammars:
        made = Grammars(loaded.text, info.n_vocab)
        made.prepare()
        return made

    # Better now than at the first grammar, when streams are running: reading the
    # vocabulary for them stops every other thread.
    grammars = aside.start(prepare, "grammars")
    gpu = loaded.device.type == mx.DeviceType.gpu
    if not gpu:
        # A product takes all cores and waits for the slowest: with a thread beside it
        # the probe takes longer than both after each other.
        tell(m.Loading("reading the vocabulary"))
        grammars.result()
    tell(m.Loading("measuring the caches"))
    cache_map = caches.measure(loaded.model)
    cuda = gpu and not mx.metal.is_available()
    kind = "cuda" if cuda else "metal" if gpu else "cpu"
    chunk = order.prefill_chunk or PACINGS[kind].chunk
    pacing = pacing_of(kind, chunk)
    # mlx on CUDA needs the one layout, the CPU is faster with the other (see pool.py).
    cell_major = cuda
    if cuda:
        linear.join_rows(loaded.model)
    types = (order.cache_type_k, order.cache_type_v)
    try:
        stored = cache_map.stored_as(*types)
    except ValueError as error:
        raise _types_refused(path, str(error)) from None
    tell(m.Loading("probing the model"))
    verdict: Verdict = probe(
        loaded.model, cache_map, info.n_vocab, cell_major=cell_major, stored=stored
    )
    if verdict.pooled:
        cache_map = stored
    elif types == (AUTO, AUTO):
        cache_map = cache_map.unpooled()
    else:
        raise _types_refused(path, verdict.note)
    estimate = read_geometry(
        path,
        float32=loaded.dtype == mx.float32,
        chunk=chunk,
        cache_types=types,
        kind=kind,
    )
    geometry = Geometry(
        n_ctx_train=info.n_ctx_train or None,
        kv_bytes_per_token=cache_map.bytes_per_token,
        fixed_bytes_per_slot=cache_map.fixed_bytes_per_slot,
        weight_bytes=info.size,
        work_bytes=estimate.work_bytes,
        work_bytes_per_cell=estimate.work_bytes_per_cell,
        work_bytes_per_slot=estimate.work_bytes_per_slot,
        work_bytes_per_part=estimate.work_bytes_per_part,
        measured=True,
    )
    limit = device.memory_limit(order, loaded.device)
    plan = make_plan(order.wish, geometry, limit)
    mx.clear_cache()
    device.bound_cache(limit, plan.work_bytes)
    device.bound_memory(limit, plan.total_bytes)
    if not loaded.vocabulary.done():
        tell(m.Loading("reading the vocabulary"))
    text = loaded.text
    tell(m.Loading("allocating the pool"))
    runner = ModelRunner(
        loaded.model,
        cache_map,
        Sampler(info.n_vocab, sorted(text.eos_ids), text),
        slots=plan.slots,
        cells=plan.cells,
        cell_major=cell_major,
        batched=verdict.batched,
        pipelined=False,
        together=verdict.together,
        grain=pacing.grain,
    )
    if gpu:
        # On the CPU host and device share the cores: nothing is gained from a queue.
        tell(m.Loading("warming up"))
        runner.pipelined = writes_in_place(runner)
        warm_up(runner, pacing, slots=plan.slots, room=plan.slot_ctx, chunk=chunk)
    info = msgspec.structs.replace(
        loaded.info, batched=runner.batched, decode_note=verdict.note
    )
    files = Snapshots(loaded.model, cache_map, fingerprint(path))
    tell(m.Loading("reading the vocabulary"))
    return Engine(
        text, runner, info, plan, device.memory_use, files, grammars.result(), pacing
    )


def pacing_of(kind: str, chunk: int) -> Pacing:
    """The pacing of a kind of device where no chunk has more than `chunk` tokens.

    Chunks that are smaller than the grain would each be filled up to it: 256 tokens
    read in chunks of 64 would cost what 256 + 192 + 128 + 64 do.
    """
    usual = PACINGS[kind]
    return replace(usual, grain=min(usual.grain, chunk))


def _types_refused(path: Path, why: str) -> Refused:
    hint = "use f16, bf16, f32 or auto for cache_type_k and cache_type_v"
    return Refused([Problem(f"cache type: {why}", str(path), hint)])
