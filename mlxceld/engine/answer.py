"""From tokens to an answer: text, stop strings, the end and its reason.

Everything here concerns one request at a time, so that a fault in one answer cannot
reach another.
"""

from __future__ import annotations

from collections.abc import Callable

from mlxceld.engine.messages import Delta, Done, SlotState, Up
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

    def take(self, slot: Slot, request: Request, token: int, now: float) -> bool:
        """Give a request its next token; True when that was the last one."""
        if request.first_token is None:
            request.first_token = now
            # The prompt's last token is read by the step that samples.
            self._tally.prompt_tokens += 1
        request.output.append(token)
        self._tally.predicted_tokens += 1
        text, stop_type, word = self._text(request, token)
        request.new_line = request.new_line or "\n" in text
        if not stop_type and len(request.output) >= request.limit:
            stop_type = "limit"
            text += self._rest(request)
        if not stop_type:
            self._emit(Delta(request.id, text, [token], len(request.output)))
            return False
        timings = request.timings(now)
        self._tally.predicted_seconds += timings.predicted_ms / 1e3
        self._emit(
            Done(
                id=request.id,
                slot=slot.id,
                text=text,
                tokens=[token],
                stop_type=stop_type,
                stopping_word=word,
                truncated=stop_type == "limit" and request.truncated,
                n_prompt=len(request.prompt),
                n_cached=request.n_cached,
                n_decoded=len(request.output),
                n_held=request.n_tokens - 1,
                timings=timings,
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
            return SlotState(slot.id)
        if request is None:
            return SlotState(slot.id, task=last.id, n_held=slot.n_held)
        read = min(slot.n_held, len(request.prompt))
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
