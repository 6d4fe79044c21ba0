"""The sample configuration: every option as a comment, ready to be uncommented.

Prose is marked `# `, values are marked `#` alone, so that an editor can uncomment
either without touching the other.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Iterator

from mlxceld.documents.flags import changes
from mlxceld.files import VERSION
from mlxceld.help import default_text
from mlxceld.kinds import BadValue, Choice, Kind
from mlxceld.options import EXCLUSIVE, TABLES, Option, in_table

_WIDTH = 86

EXAMPLES: dict[str, str] = {
    "model.path": '"~/models/Llama-3.2-1B-Instruct-4bit"',
    "model.hf_repo": '"mlx-community/Llama-3.2-1B-Instruct-4bit"',
    "model.hf_token": '"hf_..."',
    "model.chat_template": '"{% for m in messages %}{{ m.content }}{% endfor %}"',
    "model.chat_template_file": '"chat.jinja"',
    "model.reasoning_effort": '"low"',
    "engine.mode": '"llama-compat"',
    "engine.ctx_size": "32768",
    "engine.ctx_size_per_seq": "8192",
    "engine.parallel": "4",
    "engine.kv_unified": "true",
    "engine.cache_ram": "8192",
    "sampling.json_schema": '{ type = "object" }',
    "server.api_key_file": '"api-keys"',
    "server.ssl_key_file": '"key.pem"',
    "server.ssl_cert_file": '"cert.pem"',
    "server.slot_save_path": '"slots"',
    "logging.file": '"/var/log/mlxcel/mlxcel.log"',
}
"""Values, as TOML, for options without a default of their own."""


def sample_text() -> str:
    """The file `etc/mlxcel.toml`."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from _comment(
        "The configuration of mlxcel-server, with everything that can be set. Values "
        "that are commented out are the defaults, or examples where it says so. See "
        "mlxcel.toml(5)."
    )
    yield "#"
    yield from _comment(
        "Copy what you need to ~/.config/mlxcel/mlxcel.toml or "
        "/etc/mlxcel/mlxcel.toml, then run `mlxcel-server --check-config`."
    )
    yield "#"
    yield from _comment(
        "Written by `python -m mlxceld.generate` from the option table."
    )
    yield ""
    yield "# The version of the format."
    yield f"version = {VERSION}"
    for table in TABLES:
        yield ""
        yield f"[{table}]"
        for option in in_table(table):
            if "file" in option.where:
                yield ""
                yield from _entry(option)


def _entry(option: Option) -> Iterator[str]:
    yield from _comment(f"{option.short}.")
    for paragraph in option.long.split("\n\n"):
        yield from _comment(paragraph)
    if isinstance(option.kind, Choice):
        for word, text in option.kind.choices:
            yield from _comment(f"{word}: {text}", "#   ")
    for one, other in EXCLUSIVE:
        if option.key in (one, other):
            rival = (other if option.key == one else one).partition(".")[2]
            yield from _comment(f"Not together with {rival}.")
    for change in changes(option):
        yield from _comment(change)
    if option.default is None:
        yield from _comment(f"Default: {default_text(option)}. An example:")
    yield f"#{option.name} = {value(option)}"


def value(option: Option) -> str:
    """The default as TOML, or an example where "not said" is the default."""
    if option.default is not None:
        return option.kind.render(option.default)
    return EXAMPLES.get(option.key) or _any(option.kind)


def _any(kind: Kind) -> str:
    """Some value of a kind: the first of a few that it takes."""
    words = [f'"{word}"' for word in kind.words] if isinstance(kind, Choice) else []
    for text in (*words, '"name"', "true", "1", "0.5", "[]", "{}", '"0660"'):
        try:
            kind.check(tomllib.loads(f"x = {text}")["x"])
        except BadValue:
            continue
        return text
    raise LookupError(f"no example fits {kind}: give EXAMPLES one")


def _comment(text: str, prefix: str = "# ") -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=prefix,
        subsequent_indent=prefix if prefix == "# " else f"{prefix}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
