"""The most memory that a plan says, against the most that MLX then held.

    python -m benchmarks.memory --model 1.2b --context 8192 32768 --slots 1 4 16

For each way to share a context, each context and each number of slots: plan as the
daemon plans, fill every slot to its window (a shared pool to its end), decode, and in a
shared pool then let one request take all of it, so that the others have to go. Ends
with status 1 when the peak is above the plan's total or the caches above its KV bytes.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mlx.utils import tree_flatten

from benchmarks import models, ours
from benchmarks.machine import has_gpu, this_machine
from benchmarks.models import mx
from mlxceld.engine import device as devices
from mlxceld.geometry import read_geometry
from mlxceld.pacing import chunk_of
from mlxceld.plan import Geometry, Plan, Wish, make_plan

WAYS = ("legacy", "llama-compat", "llama-compat unified", "per-seq")
"""How slots get their context, as the wishes of `wish` spell it."""

_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "uint32": "U32"}


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the grid; sizes in bytes."""

    model: str
    way: str
    context: int
    slots: int
    slot_ctx: int
    pool: int
    weight_bytes: int
    plan_kv_bytes: int
    work_bytes: int
    plan_bytes: int
    kv_bytes: int
    peak_bytes: int

    @property
    def share(self) -> float:
        """The peak as a share of the plan."""
        return self.peak_bytes / self.plan_bytes

    @property
    def kept(self) -> bool:
        """Whether the plan was an upper bound."""
        within = self.kv_bytes <= self.plan_kv_bytes
        return within and self.peak_bytes <= self.plan_bytes


def wish(way: str, context: int, slots: int) -> Wish:
    """What a user asks for; in mode per-seq the context is that of each slot."""
    # Nothing is kept in RAM: the plan's total is without it.
    asked = Wish(ctx_size=context, parallel=slots, min_slot_ctx=1, cache_ram=0)
    match way:
        case "legacy":
            return asked
        case "per-seq":
            return replace(
                asked, mode="per-seq", ctx_size=None, ctx_size_per_seq=context
            )
    return replace(asked, mode="llama-compat", kv_unified="unified" in way)


def planned(model: Any, chunk: int) -> Geometry:
    """What the daemon would know of the model: caches measured, the rest from files."""
    with tempfile.TemporaryDirectory() as folder:
        describe(model, Path(folder))
        float32 = mx.default_device().type == mx.DeviceType.cpu
        estimate = read_geometry(Path(folder), float32=float32, chunk=chunk)
    weights = sum(int(array.nbytes) for _, array in tree_flatten(model.parameters()))
    measured = ours.geometry(model)
    return replace(
        estimate,
        kv_bytes_per_token=measured.kv_bytes_per_token,
        fixed_bytes_per_slot=measured.fixed_bytes_per_slot,
        weight_bytes=weights,
        measured=True,
    )


def describe(model: Any, folder: Path) -> None:
    """Write the model's files as far as a plan reads them: the weights are a hole."""
    config = {k: v for k, v in asdict(model.args).items() if v is not None}
    tensors: dict[str, Any] = {}
    end = 0
    for name, array in tree_flatten(model.parameters()):
        kind = _DTYPES[str(array.dtype).rpartition(".")[2]]
        offsets = [end, end + int(array.nbytes)]
        tensors[name] = {
            "dtype": kind,
            "shape": list(array.shape),
            "data_offsets": offsets,
        }
        end = offsets[1]
        if name.endswith(".scales"):
            config["quantization"] = {"group_size": 64, "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))
    header = json.dumps(tensors).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + end)


def fill(loop: ours.Loop, plan: Plan, steps: int) -> None:
    """Use all cells of the plan, `steps` of each slot by decoding."""
    # Every row is still decoding when the last one begins.
    most = steps + 2 * plan.slots
    # Beside its text a row in a shared pool needs a cell for the next token.
    each = min(plan.slot_ctx, plan.cells // plan.slots - (2 if plan.shared else 0))
    most = min(most, each // 2)
    loop.fill([each - most] * plan.slots, most)
    while loop.scheduler.busy:
        loop.turn()
    if plan.shared:
        alone = min(plan.slot_ctx, plan.pool - 2) - steps
        other = [5 + (i * 31) % 900 for i in range(alone)]
        loop.ask(plan.slots, other, steps)
        while loop.scheduler.busy:
            loop.turn()


def point(
    name: str,
    model: Any,
    geometry: Geometry,
    way: str,
    context: int,
    slots: int,
    *,
    steps: int,
    chunk: int,
) -> Point:
    """Plan, fill, and look at what was held."""
    plan = make_plan(wish(way, context, slots), geometry)
    devices.bound_cache(None, plan.work_bytes)
    models.afresh()
    before = mx.get_active_memory()
    loop = ours.build(
        model, models.SHAPES[name].n_vocab, plan, chunk=chunk, queue=slots
    )
    fill(loop, plan, steps)
    return Point(
        name,
        way,
        context,
        slots,
        plan.slot_ctx,
        plan.pool,
        plan.weight_bytes,
        plan.kv_bytes,
        plan.work_bytes,
        plan.total_bytes,
        loop.runner.kv_bytes,
        # Beside the weights nothing was there, unless there are other models.
        plan.weight_bytes + mx.get_peak_memory() - before,
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.memory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", choices=sorted(models.SHAPES), nargs="+", default=["tiny"])
    add("--way", choices=WAYS, nargs="+", default=list(WAYS))
    add("--context", type=int, nargs="+", default=[2048, 8192], metavar="C")
    add("--slots", type=int, nargs="+", default=[1, 4, 16], metavar="N")
    add("--steps", type=int, default=16, help="tokens of an answer (default: 16)")
    add("--chunk", type=int, help="prompt chunk (default: the device's)")
    add("--device", choices=["cpu", "gpu"], default="gpu" if has_gpu() else "cpu")
    add("--out", type=Path, metavar="FILE", help="write every point as JSON")
    args = parser.parse_args(argv)
    report: dict[str, Any] = {"machine": this_machine(args.device), "points": []}
    chunk = chunk_of(args.chunk, args.device)
    print(f"# {report['machine']}, prompt chunk {chunk}\n{_HEAD}")
    broken = 0
    for name in args.model:
        device = mx.gpu if args.device == "gpu" else mx.cpu
        model = models.build(name, mx.Device(device))
        with ours.prepared(model):
            geometry = planned(model, chunk)
            for way in args.way:
                for context in args.context:
                    for slots in args.slots:
                        where = (name, model, geometry, way, context, slots)
                        found = point(*where, steps=args.steps, chunk=chunk)
                        print(_line(found), flush=True)
                        broken += not found.kept
                        kept = {"share": found.share, "kept": found.kept}
                        report["points"].append(asdict(found) | kept)
        del model
    if args.out:
        args.out.write_text(json.dumps(report, indent=1) + "\n")
    if broken:
        print(f"\n{broken} of {len(report['points'])} took more than was planned")
    return 1 if broken else 0


_HEAD = (
    "| model, mode | C | N | n_ctx | plan KV | KV | plan work | plan total | peak | "
    "peak / plan | kept |\n" + "| --- " * 11 + "|"
)


def _line(one: Point) -> str:
    def mib(n: int) -> str:
        return f"{n / (1 << 20):.1f}"

    cells = [
        f"{one.model}, {one.way}",
        *(str(number) for number in (one.context, one.slots, one.slot_ctx)),
        *map(mib, (one.plan_kv_bytes, one.kv_bytes, one.work_bytes)),
        *map(mib, (one.plan_bytes, one.peak_bytes)),
        # Rounded up: a plan that is exceeded never reads 1.00.
        f"{math.ceil(100 * one.share) / 100:.2f}",
        "yes" if one.kept else "NO",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
