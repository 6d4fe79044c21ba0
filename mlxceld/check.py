"""The report of `--check-config`: what a start would read, ignore, plan and warn about.

It is worked out without MLX and without a server, so that a service manager can ask
before every start. A model that is not on this disk is no mistake of a configuration:
the plan is then made without sizes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from errno import EACCES, EISDIR
from pathlib import Path
from stat import S_ISDIR

from mlxceld.backend import may_be_cuda, will_be_float32
from mlxceld.config import Resolved, wish
from mlxceld.constraints import default_constraint
from mlxceld.flips import announcements
from mlxceld.geometry import read_geometry
from mlxceld.memory import memory_limit_bytes
from mlxceld.pacing import chunk_of, kind_of
from mlxceld.plan import Geometry, Plan, make_plan
from mlxceld.problems import Problem, Refused
from mlxceld.service.secrets import read_keys
from mlxceld.service.tls import tls_context
from mlxceld.settings import Settings

ANY_MODEL = Geometry(n_ctx_train=1 << 40)
"""Stands for a model that was not read: it refuses nothing by its size."""


@dataclass(frozen=True, slots=True)
class Report:
    """Lines for people, and what would keep the daemon from starting."""

    lines: tuple[str, ...]
    problems: tuple[Problem, ...] = ()


def report(resolved: Resolved) -> Report:
    """Check a configuration that was resolved: make its plan, look for flips."""
    lines = list(_said(resolved))
    geometry, why = _geometry(resolved.settings)
    if why:
        lines.append(why)
    try:
        _check_files(resolved.settings)
        check_folders(resolved.settings)
        plan = _plan(resolved.settings, geometry)
    except Refused as refused:
        return Report(tuple(lines), refused.problems)
    if plan is None:
        lines.append("plan: depends on the training length of the model")
    else:
        lines += [f"plan: {line}" for line in plan.lines()]
        lines += [f"note: {note}" for note in plan.notes]
    lines += flip_lines(resolved, geometry)
    return Report((*lines, "the configuration is good"))


def check_folders(settings: Settings, environ: Mapping[str, str] | None = None) -> None:
    """Raises `Refused` for folders and files of the settings that cannot be used.

    `environ` may name a folder of credentials; it is that of the process by default.
    """
    tls_context(settings.server)
    read_keys(settings.server, os.environ if environ is None else environ)
    folder = settings.server.slot_save_path
    if folder is not None and not os.path.isdir(folder):
        wanted = "name a folder" if os.path.exists(folder) else "create it"
        hint = f"{wanted}, or leave server.slot_save_path out"
        raise Refused([Problem("slot_save_path is not a directory", folder, hint)])


def _check_files(settings: Settings) -> None:
    """Raises `Refused` for named files with which the daemon would not start.

    And for a grammar or schema that is none. What comes through a pipe is left to the
    start, which can read it once.
    """
    problems = []
    sampling = settings.sampling
    constraint = sampling.grammar_file or sampling.json_schema_file
    for key, name in (
        ("model.chat_template_file", settings.model.chat_template_file),
        ("sampling.grammar_file", sampling.grammar_file),
        ("sampling.json_schema_file", sampling.json_schema_file),
    ):
        if name and (reason := _unreadable(name)):
            problems.append(Problem(f"cannot read {key}: {reason}", name))
    log = settings.logging.file
    if log and (os.path.isdir(log) or not os.path.isdir(os.path.dirname(log) or ".")):
        reason = _unreadable(log)
        what = f"the log file `{log}` cannot be written: {reason}"
        hint = "name a file in a folder that exists and is writable"
        problems.append(Problem(what, "logging.file", hint))
    if not problems and (not constraint or os.path.isfile(constraint)):
        default_constraint(settings)
    if problems:
        raise Refused(problems)


def _unreadable(name: str) -> str:
    """Why a file cannot be read, in the system's words; empty when it can."""
    try:
        folder = S_ISDIR(os.stat(name).st_mode)
    except OSError as error:
        return error.strerror or str(error)
    if folder:
        return os.strerror(EISDIR)
    return "" if os.access(name, os.R_OK) else os.strerror(EACCES)


def estimate(settings: Settings) -> Geometry | None:
    """The geometry that the model's files tell; None when they are elsewhere.

    Raises `Refused` for a model that cannot be read.
    """
    model, engine = settings.model, settings.engine
    if model.path is None:
        return None
    return read_geometry(
        Path(model.path),
        float32=will_be_float32(engine.device, engine.dequantize),
        chunk=chunk_of(engine.batch_size, engine.device),
        cache_types=(engine.cache_type_k, engine.cache_type_v),
        kind=kind_of(engine.device),
    )


def memory_limit(settings: Settings) -> int | None:
    """The memory limit in bytes as far as it can be known without MLX.

    None for a share of a graphics card's memory: only the engine can ask for its size.
    """
    wanted = settings.engine.memory_limit
    if isinstance(wanted, str) and may_be_cuda(settings.engine.device):
        return None
    return memory_limit_bytes(wanted)


def flip_lines(resolved: Resolved, geometry: Geometry | None) -> Iterator[str]:
    """Every flip that changes anything here, smaller effects included."""
    is_set = {key: resolved.is_set(key) for key in resolved.origins}
    for one in announcements(wish(resolved.settings), is_set, geometry):
        first, *rest = one.lines
        yield f"{one.weight}: {first}"
        yield from (f"  {line}" for line in rest)


def _said(resolved: Resolved) -> Iterator[str]:
    files = ", ".join(str(path) for path in resolved.files)
    yield f"files: {files or 'none'}"
    for override in resolved.overrides:
        yield f"override: {override.render()}"
    if resolved.ignored_line:
        yield resolved.ignored_line
    for problem in resolved.warnings:
        yield f"warning: {problem.render()}"


def _geometry(settings: Settings) -> tuple[Geometry | None, str]:
    """Sizes of the model, or None and a line that says why there are none."""
    model = settings.model
    if model.path is None and model.hf_repo is None:
        return None, "model: none is named; a start needs one (`--model PATH`)"
    if model.path is None:
        return None, f"model: {model.hf_repo} is read when the daemon starts"
    try:
        return estimate(settings), ""
    except Refused as refused:
        found = refused.problems[0].render()
        return None, f"model: could not be read, so the plan has no sizes: {found}"


def _plan(settings: Settings, geometry: Geometry | None) -> Plan | None:
    """The plan; None when it cannot be known without the model."""
    asked = wish(settings)
    if geometry is not None:
        return make_plan(asked, geometry, memory_limit(settings))
    plan = make_plan(asked, ANY_MODEL)
    needs_length = plan.slot_ctx >= (ANY_MODEL.n_ctx_train or 0)
    return None if needs_length else plan
