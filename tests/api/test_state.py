"""Templates of the options, and the parameters of running requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlxceld.api.state import Running, State
from mlxceld.engine.client import EngineClient
from mlxceld.engine.messages import Load, ModelSource
from mlxceld.plan import Wish
from mlxceld.problems import Refused
from mlxceld.settings import ModelSettings, Settings


def state(**model: Any) -> State:
    client = EngineClient(Load(source=ModelSource(path="x"), wish=Wish()))
    return State(Settings(model=ModelSettings(**model)), client)


HI = [{"role": "user", "content": "hi"}]


def test_a_template_of_the_option_wins(tmp_path: Path) -> None:
    given = state(chat_template="<{{ messages[0].content }}>")
    assert given.template().render(HI) == "<hi>"
    file = tmp_path / "template.jinja"
    file.write_text("[{{ messages[0].content }}]", encoding="utf-8")
    assert state(chat_template_file=str(file)).template().render(HI) == "[hi]"
    assert (
        state(chat_template="chatml").template().render(HI).startswith("<|im_start|>")
    )


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"chat_template": "{% for %}"}, "broken: line 1"),
        ({"chat_template": "vicuna"}, "no built-in chat template `vicuna`"),
        ({"chat_template_file": "/nonexistent/x"}, "No such file"),
        ({"chat_template_kwargs": "[1]"}, "no JSON object"),
        ({"chat_template_kwargs": "{"}, "no JSON object"),
    ],
)
def test_mistakes_in_the_options_show_at_start(
    model: dict[str, Any], words: str
) -> None:
    with pytest.raises(Refused, match=words):
        state(**model)


def test_the_name_is_the_first_alias_or_the_model_as_given() -> None:
    assert state(alias=("zeta", "smol"), path="/m").model_name == "smol"
    assert state(path="/models/x.gguf").model_name == "/models/x.gguf"
    assert state(hf_repo="org/model").model_name == "org/model"


def test_parameters_outlive_the_request_in_its_slot_only() -> None:
    running = Running()
    running.add(1, {"seed": 1})
    assert running.parameters(1, 0) == {"seed": 1}
    running.seat(1, 0)
    running.remove(1)
    assert running.parameters(1, 0) == {"seed": 1}
    assert running.parameters(1, 1) is None
    running.add(2, {"seed": 2})
    running.seat(2, 0)
    assert running.parameters(1, 0) is None
    assert running.parameters(2, 0) == {"seed": 2}
