"""Reasoning in chats: what a request and the options want of it.

A request's template variables win, then its other fields, then the options.
"""

from __future__ import annotations

from typing import Any

from mlxceld.api.errors import bad_field
from mlxceld.api.readers import INT32, integer, json_object, text
from mlxceld.api.state import State
from mlxceld.chat import harmony, reasoning
from mlxceld.engine import messages as m

_BUDGETS = ("reasoning_budget_tokens", "thinking_budget_tokens")


def variables_of(state: State, body: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The template's variables, and whether the model may reason. Raises ApiError."""
    limits, model = state.limits(), state.settings.model
    keeps = model.reasoning_preserve
    variables: dict[str, Any] = {
        "preserve_thinking": keeps,
        "clear_thinking": not keeps,
        "truncate_history_thinking": not keeps,
        **state.template_kwargs,
    }
    thinks: bool | None = None
    if model.reasoning != "auto":
        thinks = model.reasoning == "on"
    elif model.reasoning_budget == 0:
        thinks = False
    if model.reasoning_effort:
        variables["reasoning_effort"] = model.reasoning_effort
    effort = body.get("reasoning_effort")
    if effort is not None:
        variables["reasoning_effort"] = text("reasoning_effort", effort, limits)
        if effort == "none":
            del variables["reasoning_effort"]
            thinks = False
    asked = _asked_budget(state, body)
    if asked is not None and asked >= 0:
        thinks = asked > 0
    if body.get("chat_template_kwargs") is not None:
        variables |= json_object(
            "chat_template_kwargs", body["chat_template_kwargs"], limits
        )
    wanted = variables.get("enable_thinking")
    if wanted is not None:
        if not isinstance(wanted, bool):
            raise bad_field("chat_template_kwargs", "enable_thinking must be a boolean")
        thinks = wanted
    if thinks is not None:
        # The word that other templates have for it.
        variables.setdefault("thinking", thinks)
    variables["enable_thinking"] = thinks is not False
    return variables, thinks is not False


def close(words: str, template: str, prefill: str, thinks: bool) -> str:
    """End reasoning that the prompt `words` opened where none is wanted.

    The beginning of an answer that a client gives is no reasoning, unless it says so.
    """
    markers = reasoning.markers_of(template)
    if markers is None:
        return words
    says = markers.end in prefill or prefill.lstrip().startswith(markers.start)
    if thinks and (not prefill or says):
        return words
    return reasoning.closed(words, markers)


def budget_of(
    state: State, body: dict[str, Any], template: str, words: str, prefill: str
) -> m.ThinkingBudget | None:
    """The bound on the reasoning of the answer to the prompt `words` + `prefill`.

    None where there is none, and where the answer can have no reasoning. Raises
    ApiError.
    """
    tokens = _asked_budget(state, body)
    message = body.get("reasoning_budget_message")
    if message is not None:
        message = text("reasoning_budget_message", message, state.limits())
    if tokens is None:
        tokens = state.settings.model.reasoning_budget
    speaks = harmony.speaks_harmony(template)
    markers = harmony.MARKERS if speaks else reasoning.markers_of(template)
    if tokens < 0 or markers is None:
        return None
    opened = reasoning.opened(words, markers)
    if prefill:
        opened = opened or prefill.lstrip().startswith(markers.start)
        if not opened or markers.end in prefill:
            return None
    if message is None:
        message = state.settings.model.reasoning_budget_message or ""
    return m.ThinkingBudget(tokens, markers.start, markers.end, opened, message)


def _asked_budget(state: State, body: dict[str, Any]) -> int | None:
    """The tokens of reasoning that a request asks for; -1 is as many as it takes."""
    found = None
    for name in _BUDGETS:
        if body.get(name) is not None:
            found = integer(-1, INT32)(name, body[name], state.limits())
    return found


def format_of(state: State, body: dict[str, Any]) -> str:
    """Where reasoning goes, one of `reasoning.FORMATS`. Raises ApiError."""
    name = body.get("reasoning_format")
    if name is None:
        name = state.settings.model.reasoning_format
    if name not in reasoning.FORMATS:
        known = ", ".join(f'"{known}"' for known in reasoning.FORMATS)
        raise bad_field("reasoning_format", f"must be one of {known}")
    return "deepseek" if name == "auto" else str(name)
