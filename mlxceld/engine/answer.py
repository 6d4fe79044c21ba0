"""From tokens to an answer: text, stop strings, the end and its reason.

Everything here concerns one request at a time, so that a fault in one answer cannot
reach another.
"""

from __future__ import annotations

from collections.abc import Callable

from mlxceld.engine.messages import (
    Delta,
    Done,
    Progress,
    SlotState,
    TokenProbability,
    Up,
)
from mlxceld.engine.runner import Probability
from mlxceld.engine.slot import Request, Slot
from mlxceld.engine.text import Text
from mlxceld.engine.totals import Tally


class Answers:
    """Turns sampled tokens into `Delta` and `Done` messages."""

    def __init__(
        self, vocabulary: Text, emit: Callable[[Up], None], tally: Tally
    ) -> None:
        self._vocabulary = vocabulary
        self._emit = emit
        self._tally = tally

    def take(
        self,
        slot: Slot,
        request: Request,
        token: int,
        now: float,
        told: Probability | None = None,
    ) -> bool:
        """Give a request its next token; True when that was the last one.

        `told` is what a request with `n_probs` wants to know of the token.
        """
        budget = request.budget
        if budget is not None:
            if budget.due is not None:
                token, told = budget.due, told and _certain(request, budget.due)
            budget.accept(token)
        if request.matcher is not None and not request.matcher.accept(token):
            raise RuntimeError("a token was sampled that the grammar forbids")
        if request.first_token is None:
            request.first_token = now
            # The prompt's last token is read by the step that samples.
            self._tally.prompt_tokens += 1
            n = len(request.prompt)
            self._emit(Progress(request.id, n, n, request.n_cached))
        else:
            # Token by token, like the count of tokens: a rate taken half-way, or after
            # a client left, is of tokens and seconds of the same work.
            self._tally.predicted_seconds += now - request.latest_token
        request.latest_token = now
        request.output.append(token)
        self._tally.predicted_tokens += 1
        text, stop_type, word = self._text(request, token)
        if not stop_type:
            if request.matcher is not None and request.matcher.ended:
                stop_type = "eos"
            elif len(request.output) >= request.limit:
                stop_type = "limit"
            if stop_type:
                text += self._rest(request)
        text, cut = _watch_lines(request, text)
        if not stop_type and (cut or _overtime(request, now)):
            stop_type = "limit"
            text += "" if cut else self._rest(request)
        probabilities = [] if told is None else [_probability(request, token, told)]
        if not stop_type:
            n_decoded = len(request.output)
            self._emit(Delta(request.id, text, [token], n_decoded, probabilities))
            return False
        self._emit(
            Done(
                id=request.id,
                slot=slot.id,
                text=text,
                tokens=[token],
                stop_type=stop_type,
                stopping_word=word,
                truncated=request.skipped > 0
                or (
                    len(request.output) >= request.limit
                    and stop_type == "limit"
                    and request.truncated
                ),
                n_prompt=len(request.prompt),
                n_cached=request.n_cached,
                n_decoded=len(request.output),
                n_held=request.n_tokens - 1,
                timings=request.timings(now),
                probabilities=probabilities,
            )
        )
        return True

    def _text(self, request: Request, token: int) -> tuple[str, str, str]:
        """Text that may be sent now, the stop type ("" to go on), the stopping word."""
        if (
            token in self._vocabulary.eos_ids
            and not request.message.sampling.ignore_eos
        ):
            return self._rest(request), "eos", ""
        text, word = request.stops.feed(request.detokenizer.add(token))
        return (text, "word", word) if word is not None else (text, "", "")

    def _rest(self, request: Request) -> str:
        """What was held back: bytes of an unfinished character, a stop string's start.

        A stop string that the last bytes complete still ends the text before it.
        """
        text, word = request.stops.feed(request.detokenizer.flush())
        return text if word is not None else text + request.stops.flush()

    def slot_state(self, slot: Slot) -> SlotState:
        """The slot as /slots shows it."""
        request = slot.request
        last = slot.last
        if last is None:
            return SlotState(slot.id, n_held=slot.n_held)
        if request is None:
            return SlotState(slot.id, task=last.id, n_held=slot.n_held)
        read = len(request.prompt)
        if not request.skipped:
            read = min(slot.n_held, read)
        return SlotState(
            slot.id,
            task=request.id,
            processing=True,
            n_prompt=len(request.prompt),
            n_processed=max(0, read - request.n_cached),
            n_cached=request.n_cached,
            n_decoded=len(request.output),
            n_remain=request.n_remain,
            n_held=slot.n_held,
            has_next_token=not slot.prefilling,
            has_new_line=request.new_line,
        )


def _probability(request: Request, token: int, told: Probability) -> TokenProbability:
    # As in the answer: a special token that is not shown has no text.
    piece = request.detokenizer.piece
    return TokenProbability(
        token,
        piece(token),
        told.value,
        [(other, piece(other), value) for other, value in told.top],
    )


def _certain(request: Request, token: int) -> Probability:
    """What is told of a token that was not sampled but put in."""
    value = 1.0 if request.message.sampling.post_sampling_probs else 0.0
    return Probability(value, [(token, value)])


def _overtime(request: Request, now: float) -> bool:
    """Whether `t_max_predict_ms` is over; it counts once there is a line break."""
    allowed = request.message.t_max_predict_ms
    first = request.first_token
    if allowed <= 0 or first is None or not request.new_line:
        return False
    return (now - first) * 1e3 > allowed


def _watch_lines(request: Request, text: str) -> tuple[str, bool]:
    """Keep track of lines; the text, cut where a line is indented too little.

    The first line may begin anywhere. An empty line is indented too little, as in
    llama-server.
    """
    least = request.message.n_indent
    if not least:
        request.new_line = request.new_line or "\n" in text
        return text, False
    for index, character in enumerate(text):
        if request.indent is not None:
            if character in " \t":
                request.indent += 1
                continue
            if request.indent < least:
                return text[:index], True
            request.indent = None
        if character == "\n":
            request.new_line = True
            request.indent = 0
    return text, False
