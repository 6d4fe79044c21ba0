"""What the routes share: settings, engine, templates, and who is running.

One `State` lives until a reload makes another of it. It holds no request's text.
"""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path
from typing import Any

from mlxceld.api.errors import ApiError, unavailable
from mlxceld.api.metrics import Metrics
from mlxceld.api.readers import Limits
from mlxceld.api.shapes import default_settings
from mlxceld.api.watching import Watching
from mlxceld.chat.named import named
from mlxceld.chat.template import CHATML, ChatTemplate, TemplateBroken
from mlxceld.constraints import default_constraint
from mlxceld.engine.client import EngineClient
from mlxceld.engine.messages import Ready
from mlxceld.problems import Problem, Refused
from mlxceld.settings import Settings


class Running:
    """The public parameters of running requests, and of the last one of each slot.

    The engine's snapshot says which request a slot holds; this says what it asked
    for. Bounded by the running requests and the slots.
    """

    def __init__(self) -> None:
        self._running: dict[int, dict[str, Any]] = {}
        self._last: dict[int, tuple[int, dict[str, Any]]] = {}

    def add(self, task: int, parameters: dict[str, Any]) -> None:
        self._running[task] = parameters

    def seat(self, task: int, slot: int) -> None:
        """The request has a slot, and is the last one there until the next."""
        if task in self._running:
            self._last[slot] = (task, self._running[task])

    def remove(self, task: int) -> None:
        self._running.pop(task, None)

    def parameters(self, task: int, slot: int) -> dict[str, Any] | None:
        """What the request in (or last in) the slot asked for, None when unknown."""
        last = self._last.get(slot)
        if last is not None and last[0] == task:
            return last[1]
        return self._running.get(task)


class State:
    """Everything a handler needs. Raises `Refused` for a template that is broken."""

    def __init__(self, settings: Settings, client: EngineClient) -> None:
        self.settings = settings
        self.client = client
        self.running = Running()
        self.defaults = default_settings(settings)
        self.started = time.time()
        self.metrics = Metrics()
        self.watching = Watching()
        self._own_template = _template_of(settings)
        self.constraint = default_constraint(settings)
        """What answers have to match where requests say nothing of it: body fields."""
        self._model_template: ChatTemplate | None = None
        self.template_kwargs: dict[str, Any] = json.loads(
            settings.model.chat_template_kwargs
        )

    def with_settings(self, settings: Settings) -> State:
        """The same engine and the same running requests under other settings.

        Template and grammar of the options stay: they take a restart to change.
        """
        other = copy.copy(self)
        other.settings = settings
        other.defaults = default_settings(settings)
        other.template_kwargs = json.loads(settings.model.chat_template_kwargs)
        return other

    def ready(self) -> Ready:
        """The loaded model and its plan; while it sleeps, those it will have again.

        Raises ApiError 503 before there is one.
        """
        ready = self.client.ready
        if ready is None or not self.serving:
            raise self.not_ready()
        return ready

    @property
    def serving(self) -> bool:
        """Whether requests are taken: the engine runs, or will when it is needed."""
        return self.client.state == "ready" or self.client.asleep

    def not_ready(self) -> ApiError:
        """Why nothing can be answered now, in llama-server's words while loading."""
        if self.client.state == "loading":
            return unavailable("Loading model", retry_after=1)
        if self.client.state == "failed":
            return unavailable("The model could not be loaded or the engine failed")
        return unavailable("The server is shutting down")

    def limits(self) -> Limits:
        ready = self.ready()
        return Limits(n_vocab=ready.model.n_vocab, slots=ready.plan.slots)

    @property
    def model_name(self) -> str:
        """The first alias, or the model as it was given."""
        model = self.settings.model
        if model.alias:
            return min(model.alias)
        return model.path or model.hf_repo or ""

    def template(self) -> ChatTemplate:
        """The chat template: the option's, the model's, or ChatML.

        ChatML is for a model that has none, and for all models without `model.jinja`.
        Raises TemplateBroken when the model's own template does not compile.
        """
        if self._own_template is not None:
            return self._own_template
        model_text = self.ready().model.chat_template
        text = (self.settings.model.jinja and model_text) or CHATML
        if self._model_template is None or self._model_template.text != text:
            self._model_template = ChatTemplate(text)
        return self._model_template


def _template_of(settings: Settings) -> ChatTemplate | None:
    """The template of the options, compiled, so that a mistake shows at start."""
    model = settings.model
    where, text = "model.chat_template", model.chat_template
    if model.chat_template_file:
        where = model.chat_template_file
        try:
            text = Path(where).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise Refused(
                [Problem(f"cannot read the chat template: {reason}", where=where)]
            ) from None
    if not text:
        return None
    if "{" not in text:
        try:
            text = named(text.strip())
        except KeyError as error:
            what = f"there is no built-in chat template `{text.strip()}`"
            hint = f"{error.args[0]}; or give the text of a Jinja template"
            raise Refused([Problem(what, where, hint)]) from None
    try:
        return ChatTemplate(text)
    except TemplateBroken as error:
        raise Refused(
            [Problem(f"the chat template is broken: {error}", where=where)]
        ) from None
