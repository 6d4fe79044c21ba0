"""mlx-lm's own batch engine, `BatchGenerator`, with its own settings."""

from __future__ import annotations

import time
from typing import Any

import mlx.core as mx
from mlx_lm.generate import BatchGenerator

from benchmarks.measured import Measured
from benchmarks.models import afresh
from benchmarks.workloads import Workload


def run(model: Any, work: Workload) -> Measured:
    """Serve the workload, greedy, as many rows at once as the workload has."""
    afresh()
    generator = BatchGenerator(
        model, completion_batch_size=work.rows, prefill_batch_size=min(8, work.rows)
    )
    coming = list(enumerate(work.jobs))
    number_of: dict[int, int] = {}
    answers: list[list[int]] = [[] for _ in work.jobs]
    turn = told = given = counted = ended = 0
    begin = end = time.perf_counter()
    decoding: float | None = None
    while coming or ended < len(work.jobs):
        while coming and coming[0][1].arrives <= turn:
            number, job = coming.pop(0)
            uids = generator.insert([list(job.prompt)], max_tokens=[job.n_predict])
            number_of[uids[0]] = number
        _, responses = generator.next()
        turn += 1
        over = False
        for response in responses:
            answers[number_of[response.uid]].append(int(response.token))
            told += 1
            if response.finish_reason is not None:
                ended += 1
                over = True
        if decoding is None and (not work.steady or all(answers)):
            decoding, given = (time.perf_counter(), told) if work.steady else (begin, 0)
        if decoding is not None and not (work.steady and over):
            end, counted = time.perf_counter(), told - given
    peak = mx.get_peak_memory()
    generator.close()
    assert decoding is not None
    return Measured(
        tokens=counted,
        seconds=end - decoding,
        prompt_tokens=sum(len(job.prompt) for job in work.jobs),
        prompt_seconds=decoding - begin,
        peak_bytes=peak,
        answers=answers,
    )
