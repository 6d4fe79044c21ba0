"""From an order to a running engine: load, measure, plan, allocate, probe, warm up."""

from __future__ import annotations

from collections.abc import Callable

from mlxceld.engine import blas
from mlxceld.engine import messages as m
from mlxceld.engine.main import Engine
from mlxceld.geometry import read_geometry
from mlxceld.plan import Geometry, make_plan


def load(order: m.Load, tell: Callable[[m.Loading], None]) -> Engine:
    """Load the model of `order` and make everything ready to run.

    Raises `Refused` for what a user can mend: a path, a model that is not supported, a
    plan that does not fit.
    """
    # A system BLAS has to be in the process before MLX is.
    blas.load_blas()
    import mlx.core as mx
    import msgspec

    from mlxceld.engine import caches
    from mlxceld.engine.batch import ModelRunner
    from mlxceld.engine.model import find, load_model
    from mlxceld.engine.probe import Verdict, probe, writes_in_place
    from mlxceld.engine.sampling import Sampler

    def progress(doing: str, done: int, total: int) -> None:
        tell(m.Loading(doing, done, total))

    path = find(order.source, progress)
    loaded = load_model(
        m.ModelSource(path=str(path)),
        device=order.device,
        dequantize=order.dequantize,
        progress=progress,
    )
    info = loaded.info
    tell(m.Loading("measuring the caches"))
    cache_map = caches.measure(loaded.model)
    gpu = loaded.device.type == mx.DeviceType.gpu
    # mlx on CUDA needs the one layout, the CPU is faster with the other (see pool.py).
    cell_major = gpu and not mx.metal.is_available()
    tell(m.Loading("probing the model"))
    verdict: Verdict = probe(
        loaded.model, cache_map, info.n_vocab, cell_major=cell_major
    )
    if not verdict.pooled:
        cache_map = cache_map.unpooled()
    geometry = Geometry(
        n_ctx_train=info.n_ctx_train or None,
        kv_bytes_per_token=cache_map.bytes_per_token,
        fixed_bytes_per_slot=cache_map.fixed_bytes_per_slot,
        weight_bytes=info.size,
        work_bytes=read_geometry(
            path, float32=loaded.dtype == mx.float32, chunk=order.prefill_chunk
        ).work_bytes,
        measured=True,
    )
    plan = make_plan(order.wish, geometry, order.memory_limit)
    tell(m.Loading("allocating the pool"))
    runner = ModelRunner(
        loaded.model,
        cache_map,
        Sampler(info.n_vocab, sorted(loaded.text.eos_ids)),
        slots=plan.slots,
        cells=plan.cells,
        cell_major=cell_major,
        batched=verdict.batched,
        pipelined=False,
    )
    if gpu:
        # On the CPU host and device share the cores: nothing is gained from a queue.
        tell(m.Loading("warming up"))
        runner.pipelined = writes_in_place(runner, loaded.text)
    info = msgspec.structs.replace(
        info, batched=runner.batched, decode_note=verdict.note
    )
    return Engine(loaded.text, runner, info, plan)
