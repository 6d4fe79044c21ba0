"""Loads a model: a directory in MLX's format, a GGUF file, or a repository.

Whatever can be wrong with the files or the settings ends as a `Refused` that says what
to do; what is left over as an exception is a fault of ours or of MLX.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

# isort: off
from mlxceld.engine import blas

blas.load_blas()  # before MLX, or not at all

import mlx.core as mx  # noqa: E402
import mlx.nn as nn  # noqa: E402
import msgspec  # noqa: E402
from mlx.utils import tree_flatten, tree_map, tree_unflatten  # noqa: E402
# isort: on

from mlxceld.engine import aside, lean  # noqa: E402
from mlxceld.engine.messages import ModelInfo, ModelSource  # noqa: E402
from mlxceld.engine.text import Text  # noqa: E402
from mlxceld.modelfiles import (  # noqa: E402
    read_config,
    read_safetensors_header,
    text_config,
    trained_length,
    weight_files,
)
from mlxceld.problems import Problem, Refused, Unreachable  # noqa: E402

Progress = Callable[[str, int, int], None]
"""Told what is being done, and how many bytes of how many are done."""

_NAMES = {mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16"}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is in memory, on its device; its vocabulary may still be read."""

    model: Any
    """Callable as `model(inputs, cache=...)`: [B, L] tokens to [B, L, n_vocab]."""
    bare: ModelInfo
    """What is known without the vocabulary."""
    device: mx.Device
    dtype: mx.Dtype
    """What the model computes in: the type of most of its floating parameters."""
    vocabulary: Future[Text]

    @property
    def text(self) -> Text:
        """Waits for the vocabulary. Raises `Refused` for one that cannot be used."""
        return self.vocabulary.result()

    @property
    def info(self) -> ModelInfo:
        """All that the API tells. Waits, and raises, as `text` does."""
        text = self.text
        return msgspec.structs.replace(
            self.bare,
            chat_template=text.chat_template,
            bos_token=text.bos_token,
            eos_token=text.eos_token,
            eos_ids=tuple(sorted(text.eos_ids)),
            add_bos=text.add_bos,
        )


@dataclass(frozen=True, slots=True)
class _Read:
    """A model as its files hold it, before anything is made of its weights."""

    model: nn.Module
    text: Future[Text]
    config: dict[str, Any]
    ftype: str
    architecture: str


def load_model(
    source: ModelSource, *, device: str, dequantize: str, progress: Progress
) -> Loaded:
    """Load `source` onto `device` (auto, cpu or gpu), which becomes MLX's default.

    `dequantize` on turns all weights into float32, off leaves them as they are; auto
    is on for the CPU, where products of anything else are slow, and off for a GPU.
    Raises `Refused` for a model that is missing, damaged or not supported. Its
    vocabulary is read meanwhile, and may take longer.
    """
    lean.install()
    from mlxceld.engine import attention

    attention.install()
    chosen = choose_device(device)
    mx.set_default_device(chosen)
    on_cpu = chosen.type == mx.cpu
    if on_cpu and (advice := blas.advice()):
        progress(advice, 0, 0)
    progress("reading the model", 0, 0)
    path = find(source, progress)
    read = _read_gguf(path) if path.is_file() else _read_directory(path)
    n_params = count_parameters(read.model)
    if dequantize == "on" or (dequantize == "auto" and on_cpu):
        to_float32(read.model)
    size = _evaluate(read.model, path, progress)
    info = _info(read, n_params, size, "gpu" if chosen.type == mx.gpu else "cpu")
    return Loaded(read.model, info, chosen, compute_dtype(read.model), read.text)


def choose_device(name: str) -> mx.Device:
    """The device that `auto`, `cpu` or `gpu` stands for on this machine."""
    has_gpu = mx.is_available(mx.gpu)
    if name == "gpu" and not has_gpu:
        raise Refused(
            [
                Problem(
                    "device is gpu and MLX sees none",
                    hint='set engine.device = "auto", or install MLX for your GPU',
                )
            ]
        )
    use_gpu = name == "gpu" or (name == "auto" and has_gpu)
    return mx.Device(mx.gpu if use_gpu else mx.cpu, 0)


def find(source: ModelSource, progress: Progress) -> Path:
    """Where the files of `source` are, after fetching a repository if need be."""
    if source.path:
        path = Path(source.path).expanduser()
        if not path.exists():
            raise _refused(
                source.path,
                "there is no such file or directory",
                "give a GGUF file or a directory with config.json and weights",
            )
        return path
    if not source.hf_repo:
        raise _refused("", "no model is given", "set model.path (`--model`)")
    utils = lean.model_loader()
    where = f"Hugging Face repository {source.hf_repo}"
    if not source.offline:
        progress(f"fetching {source.hf_repo}", 0, 0)
    try:
        return Path(
            utils.snapshot_download(
                source.hf_repo,
                allow_patterns=utils.DEFAULT_ALLOW_PATTERNS,
                local_files_only=source.offline,
            )
        )
    except Exception as error:  # hub, network, disk: a dozen types, one meaning
        what = f"cannot be had: {_first_line(error)}"
        if source.offline:
            hint = "fetch it once without `--offline`, or set model.path to local files"
            raise _refused(where, what, hint) from None
        hint = "check its name and the network, or set model.path to local files"
        # A service manager may try again: the network is often late after a boot.
        raise Unreachable([Problem(what, where=where, hint=hint)]) from None


def to_float32(model: nn.Module) -> None:
    """Replace quantised layers by plain ones, and make all floats float32.

    The products of scales are taken in float32 too: in float16 they would round.
    Layers that MLX cannot dequantise faithfully stay as they are.
    """
    from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

    plain = {
        nn.QuantizedLinear: nn.Linear,
        nn.QuantizedEmbedding: nn.Embedding,
        QuantizedSwitchLinear: SwitchLinear,
    }
    replaced = []
    for name, module in model.named_modules():
        kind = plain.get(type(module))
        if kind is None or "global_scale" in module:
            continue
        # Past the constructor: it would draw random weights only to be replaced.
        fresh = kind.__new__(kind)
        nn.Module.__init__(fresh)
        fresh.weight = _dequantised(module)
        if "bias" in module:
            fresh.bias = module.bias
        replaced.append((name, fresh))
    if replaced:
        model.update_modules(tree_unflatten(replaced))
    model.update(tree_map(_as_float32, model.parameters()))


def count_parameters(model: nn.Module) -> int:
    """Parameters of the model, a packed word counting as the values it holds."""
    total = 0
    for _, module in model.named_modules():
        own = {k: v for k, v in module.items() if isinstance(v, mx.array)}
        packed = "scales" in own
        for name, array in own.items():
            if name.startswith("_") or (packed and name in ("scales", "biases")):
                continue
            per_word = 32 / module.bits if packed and name == "weight" else 1
            total += round(array.size * per_word)
    return total


def compute_dtype(model: nn.Module) -> mx.Dtype:
    """The type of most floating parameters."""
    sizes: dict[mx.Dtype, int] = {}
    for _, array in tree_flatten(model.parameters()):
        if mx.issubdtype(array.dtype, mx.floating):
            sizes[array.dtype] = sizes.get(array.dtype, 0) + array.size
    return max(sizes, key=sizes.__getitem__, default=mx.float32)


def _read_gguf(path: Path) -> _Read:
    from mlxceld.engine import gguf, gguftext

    header = gguf.open_gguf(path, vocabulary=False)

    def read_text() -> Text:
        return gguftext.read_text(path, gguf.open_gguf(path).metadata)

    text = aside.start(read_text, "vocabulary")
    model = gguf.build_model(path, header)
    config = gguf.llama_config(path, header)
    ftype = gguf.FILE_TYPES.get(header.metadata.get("general.file_type", -1), "")
    return _Read(model, text, config, ftype, "llama")


def _read_directory(path: Path) -> _Read:
    # transformers would tell every user of ours that it misses PyTorch.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    utils = lean.model_loader()
    kind = read_config(path)["model_type"]
    for file in weight_files(path):
        read_safetensors_header(file)
    try:
        model, config = utils.load_model(path, lazy=True)
    except Exception as error:  # ValueError, KeyError, TypeError, RuntimeError, ...
        raise _not_loaded(path, kind, error) from None
    ends = config.get("eos_token_id")
    text = aside.start(partial(_read_tokenizer, path, utils, ends), "vocabulary")
    quantization = config.get("quantization")
    if isinstance(quantization, dict) and "bits" in quantization:
        ftype = f"{quantization['bits']}bit"
    else:
        ftype = _NAMES.get(compute_dtype(model), "")
    return _Read(model, text, config, ftype, str(kind))


def _read_tokenizer(path: Path, utils: Any, ends: Any) -> Text:
    try:
        wrapper = utils.load_tokenizer(path, {"trust_remote_code": False}, ends)
        return Text.from_hf(wrapper, _numbers(ends))
    except Exception as error:
        raise _refused(
            str(path),
            f"its tokenizer cannot be loaded: {_first_line(error)}",
            "the directory needs tokenizer.json and tokenizer_config.json",
        ) from None


def _not_loaded(path: Path, kind: str, error: Exception) -> Refused:
    """What an error of mlx-lm's loader means to a user."""
    line = _first_line(error)
    if "not supported" in line and "Model type" in line:
        return _refused(
            str(path),
            f"model type `{kind}` is not supported by the installed mlx-lm",
            "upgrade mlx-lm, or use another model",
        )
    if "custom module" in line:
        return _refused(
            str(path),
            "the model brings Python code of its own, which is never run",
            "use a model type that mlx-lm knows",
        )
    if isinstance(error, TypeError | KeyError):
        line = f"its config.json does not describe a `{kind}` model: {line}"
    else:
        line = f"its weights do not fit its config.json: {line}"
    return _refused(str(path), line, "the model is damaged or incomplete: get it again")


def _evaluate(model: nn.Module, path: Path, progress: Progress) -> int:
    """Bring all parameters into memory, told in bytes; returns their bytes."""
    arrays = [array for _, array in tree_flatten(model.parameters())]
    total = sum(array.nbytes for array in arrays)
    done = 0
    for batch in _batches(arrays, max(total // 50, 1)):
        try:
            mx.eval(batch)
        except RuntimeError as error:
            raise _refused(
                str(path), f"cannot be read: {_first_line(error)}", "get it again"
            ) from None
        done += sum(array.nbytes for array in batch)
        progress("loading weights", done, total)
    # Parts that no parameter list shows: frequencies, buffers of frozen modules.
    mx.eval(model)
    return total


def _batches(arrays: list[mx.array], nbytes: int) -> Iterator[list[mx.array]]:
    batch: list[mx.array] = []
    held = 0
    for array in arrays:
        batch.append(array)
        held += array.nbytes
        if held >= nbytes:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _info(read: _Read, n_params: int, size: int, device: str) -> ModelInfo:
    config = text_config(read.config)
    logits = read.model(mx.array([[0]]))
    return ModelInfo(
        n_vocab=logits.shape[-1],
        n_ctx_train=trained_length(config),
        n_embd=config.get("hidden_size") or config.get("n_embd") or 0,
        n_params=n_params,
        size=size,
        ftype=read.ftype,
        architecture=read.architecture,
        device=device,
    )


def _dequantised(module: nn.Module) -> mx.array:
    scales, biases = module.scales, module.get("biases")
    if module.mode == "affine":
        scales, biases = scales.astype(mx.float32), biases.astype(mx.float32)
    return mx.dequantize(
        module.weight,
        scales,
        biases,
        group_size=module.group_size,
        bits=module.bits,
        mode=module.mode,
    )


def _as_float32(array: mx.array) -> mx.array:
    floating = mx.issubdtype(array.dtype, mx.floating)
    return array.astype(mx.float32) if floating else array


def _numbers(value: Any) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [v for v in values if isinstance(v, int)]


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".:") if lines else type(error).__name__


def _refused(where: str, what: str, hint: str) -> Refused:
    return Refused([Problem(what, where=where, hint=hint)])
