"""Templates of the options, and the parameters of running requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlxceld.api.state import Running, State
from mlxceld.engine.client import EngineClient
from mlxceld.engine.messages import Load, ModelInfo, ModelSource, Ready
from mlxceld.plan import Wish, make_plan
from mlxceld.problems import Refused
from mlxceld.settings import ModelSettings, Settings


def state(**model: Any) -> State:
    client = EngineClient(Load(source=ModelSource(path="x"), wish=Wish()))
    return State(Settings(model=ModelSettings(**model)), client)


def ready(template: str, **model: Any) -> State:
    """A state whose model is loaded and brings this template."""
    found = state(**model)
    info = ModelInfo(n_vocab=8, n_ctx_train=64, chat_template=template)
    found.client.ready = Ready(info, make_plan(Wish(ctx_size=64)))
    found.client.state = "ready"
    return found


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


def test_without_jinja_the_models_own_template_is_not_used() -> None:
    own = "({{ messages[0].content }})"
    assert ready(own).template().render(HI) == "(hi)"
    chatml = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert ready(own, jinja=False).template().render(HI) == chatml
    assert ready("").template().render(HI) == chatml
    given = ready(own, jinja=False, chat_template="<{{ messages[0].content }}>")
    assert given.template().render(HI) == "<hi>"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"chat_template": "{% for %}"}, "broken: line 1"),
        ({"chat_template": "vicunya"}, "no built-in chat template `vicunya`"),
        ({"chat_template_file": "/nonexistent/x"}, "No such file"),
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
