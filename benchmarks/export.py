"""Writes a model directory that every server of MLX models can load.

    python -m benchmarks.export --model 1.2b --out model-1.2b
    python -m benchmarks.export --gguf SmolLM2-135M-Instruct.Q4_1.gguf --out smollm2

`--model` gives random weights in the shape of a real model, and a vocabulary of made-up
words, so that nothing has to be fetched. `--gguf` gives the weights of a real model
as float32, and its own vocabulary. In neither does an answer end by itself: the end of
an answer is a token that no server takes for one in what the model says, so that all
answers are as long as was asked for.
"""

from __future__ import annotations

import argparse
import itertools
import json
import string
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

# Before anything else that imports MLX: it brings the BLAS along.
from benchmarks import models
from benchmarks.models import mx, nn

# isort: split
from mlx_lm.utils import save_config, save_model
from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers import models as vocabularies

from mlxceld.engine import gguf, gguftext
from mlxceld.engine.messages import ModelSource
from mlxceld.engine.model import load_model

END = "<|never|>"
"""The end of an answer, in the configuration and in no answer."""

GROUP = 64


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.export",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", choices=sorted(models.SHAPES))
    source.add_argument("--gguf", type=Path, metavar="FILE")
    gpu = models.mx.metal.is_available() or models.mx.cuda.is_available()
    add(
        "--weights",
        choices=["4bit", "float16", "float32"],
        default="4bit" if gpu else "float32",
        help="of a random model (default: 4bit with a GPU, else float32)",
    )
    add("--out", type=Path, required=True, metavar="DIR")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.gguf:
        from_gguf(args.gguf, args.out)
    else:
        random_model(args.model, args.weights, args.out)
    size = sum(file.stat().st_size for file in args.out.iterdir())
    print(f"{args.out}: {size / (1 << 30):.2f} GiB")


def random_model(name: str, weights: str, out: Path) -> None:
    """Random weights in one of the shapes of benchmarks/models.py."""
    gpu = mx.metal.is_available() or mx.cuda.is_available()
    # As `build` gives it: 4 bits on a GPU, float32 on the CPU.
    model = models.build(
        name, mx.Device(mx.gpu if gpu and weights == "4bit" else mx.cpu)
    )
    config = {k: v for k, v in asdict(model.args).items() if v is not None}
    if weights == "4bit":
        if not gpu:
            model.set_dtype(mx.float16)
            nn.quantize(model, group_size=GROUP, bits=4)
        config["quantization"] = {"group_size": GROUP, "bits": 4, "mode": "affine"}
    elif weights == "float16":
        model.set_dtype(mx.float16)
    write(model, config, made_up(models.SHAPES[name].n_vocab), 0, out)


def from_gguf(file: Path, out: Path) -> None:
    """The weights of a GGUF file as float32, as both sides compute on the CPU."""
    loaded = load_model(
        ModelSource(path=str(file)),
        device="cpu",
        dequantize="auto",
        progress=lambda *_: None,
    )
    header = gguf.open_gguf(file)
    config = gguf.llama_config(file, header)
    config["tie_word_embeddings"] = "lm_head" not in loaded.model
    tokenizer, end = vocabulary_of(header.metadata)
    write(loaded.model, config, tokenizer, end, out)


def write(
    model: Any, config: dict[str, Any], tokenizer: Tokenizer, end: int, out: Path
) -> None:
    """The files of a model directory."""
    save_model(out, model)
    save_config({**config, "eos_token_id": end}, config_path=out / "config.json")
    tokenizer.save(str(out / "tokenizer.json"))
    kind = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"],
    }
    (out / "tokenizer_config.json").write_text(json.dumps(kind, indent=1) + "\n")


def made_up(n_vocab: int) -> Tokenizer:
    """A byte-level vocabulary: the end, 256 bytes, then words with a space before them.

    A word of the vocabulary is one token without any merges; other text falls into
    bytes.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = itertools.product(string.ascii_lowercase, repeat=4)
    words = ("Ġ" + "".join(word) for word in letters)
    tokens = [END, *alphabet, *itertools.islice(words, n_vocab - len(alphabet) - 1)]
    return _byte_level(
        {token: number for number, token in enumerate(tokens)},
        [],
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        [END],
        whole_words=True,
    )


def vocabulary_of(fields: Any) -> tuple[Tokenizer, int]:
    """The byte-level vocabulary of a GGUF file, and the id of its end.

    Control tokens get names that say nothing: a server that knows the ends of many
    models by name would else end answers that another one goes on with.
    """
    tokens = list(fields["tokenizer.ggml.tokens"])
    kinds = fields["tokenizer.ggml.token_type"]
    control = [number for number, kind in enumerate(kinds) if kind == 3]
    for number in control:
        tokens[number] = f"<|control {number}|>"
    # Any control token but those that models say: the ends and the chat's marks are
    # the first few.
    end = control[-1]
    tokens[end] = END
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    rules = gguftext.RULES[fields["tokenizer.ggml.pre"]]
    splits = [pre_tokenizers.Split(Regex(rule), "isolated") for rule in rules]
    tokenizer = _byte_level(
        {token: number for number, token in enumerate(tokens)},
        merges,
        pre_tokenizers.Sequence(
            [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        ),
        [tokens[number] for number in control],
    )
    return tokenizer, end


def _byte_level(
    vocab: dict[str, int],
    merges: Sequence[Any],
    splitting: Any,
    special: Sequence[str],
    *,
    whole_words: bool = False,
) -> Tokenizer:
    tokenizer = Tokenizer(
        vocabularies.BPE(vocab=vocab, merges=merges, ignore_merges=whole_words)
    )
    tokenizer.pre_tokenizer = splitting
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in special])
    return tokenizer


if __name__ == "__main__":
    main()
