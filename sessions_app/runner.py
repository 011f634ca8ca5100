"""How one turn is done: claim, gates, start, then model calls and tools until it has an answer.

Nothing is written here but through ``transcript``; no connection is held while a model, a tool or
a clock is waited for.
"""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db import DatabaseError
from django.utils.module_loading import import_string

from hermes.lib.chat import (
    ChatModel,
    ChatModelError,
    ChatRequest,
    ErrorKind,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCall,
)
from hermes.lib.db import db_now, insist, is_transient, released
from hermes.lib.leases import Wake, Watch, watched

from . import domain, endpoints, signals, transcript
from .domain import Done, Drop, Gate, TurnStatus, Wait
from .models import Session, Turn
from .streaming import Flusher
from .transcript import Claimed, Step
from .transcript import context as contexts
from .transcript.head import tools

logger = logging.getLogger(__name__)

TURNS_A_TASK: Final = 8
BAD_ROUNDS: Final = 3  # rounds in a row in which no call could be run
PERSIST_SECONDS: Final = 60.0  # for which an answer is kept while the database does not answer
CHUNKS_A_CALL: Final = 1_000_000  # more than a call can save: numbers of one run never repeat
PROVIDER_KEY: Final = "provider"
TRIED_AGAIN: Final = frozenset(
    {ErrorKind.RATE, ErrorKind.OVERLOADED, ErrorKind.UNREACHABLE, ErrorKind.CUT}
)


@functools.cache
def _gates(names: tuple[str, ...]) -> tuple[Gate, ...]:
    return tuple(import_string(name) for name in names)


def run_turns(session_id: int) -> bool:
    """Run queued turns of a session, at most a few; report whether more may be waiting."""
    for number in range(TURNS_A_TASK):
        try:
            if number and not Turn.objects.queued().filter(session_id=session_id).exists():
                return False  # a look without the lock: what is queued from now on is hinted
            claimed = transcript.claim(session_id)
        except Session.DoesNotExist:
            logger.warning("hint for a session that is gone", extra={"session": session_id})
            return False
        except DatabaseError as error:
            # The turn stays queued, and the sweep asks for it again.
            logger.warning("turn not claimed", extra={"session": session_id, "cause": str(error)})
            return False
        if claimed is None:
            return False
        if run_turn(claimed) is Wake.SHUTDOWN:
            return False
    return True


def run_turn(claimed: Claimed) -> Wake | None:
    """Run one claimed turn to its end or to a wait; return why it was woken, if it was."""
    deadline = time.monotonic() + settings.HERMES_TURN_CEILING_SECONDS
    with watched(Turn, claimed.lease, deadline=deadline) as watch:
        try:
            model = endpoints.model_for(claimed.turn.chat.endpoint_id)
            claimed.window = model.window
            if claimed.turn.started_at is not None or _begin(claimed, watch):
                _work(claimed, watch, model)
        except DatabaseError as error:
            # Its lease runs out, and the sweep says what became of it.
            logger.warning(
                "turn left to the sweep", extra={"turn": claimed.turn.pk, "cause": str(error)}
            )
        except Exception:
            logger.exception("turn failed", extra={"turn": claimed.turn.pk})
            _fail(claimed, Step(), "internal", "")
        return watch.woken


def _begin(claimed: Claimed, watch: Watch) -> bool:
    """Ask the gates, then let the input become a message; False if the turn ended instead."""
    for gate in _gates(tuple(settings.HERMES_TURN_GATES)):
        try:
            verdict = gate(claimed.facts)
        except Exception:
            logger.exception("gate failed, turn passes", extra={"turn": claimed.turn.pk})
            continue
        if isinstance(verdict, Drop):
            _end(claimed, TurnStatus.CANCELLED, Step(), code="dropped", text=verdict.reason)
            return False
    if watch.woken is not None:
        _leave(claimed, watch, Step())
        return False
    if not persist(lambda: transcript.start(claimed)):
        return False
    turn = claimed.turn
    signals.turn_started.send_robust(
        Turn, session_id=turn.session_id, turn_id=turn.pk, source=turn.source
    )
    return True


def _work(claimed: Claimed, watch: Watch, model: ChatModel) -> None:
    """Alternate model calls and tools until the turn ends or waits."""
    bad_rounds = 0
    while True:
        if claimed.turn.open_calls:
            outcome = _run_tools(claimed, watch)
            if outcome is None:
                return
            bad_rounds = 0 if outcome else bad_rounds + 1
            if bad_rounds >= BAD_ROUNDS:
                _fail(claimed, Step(), ErrorKind.MALFORMED, "tool calls that could not be run")
                return
        if claimed.turn.model_calls >= settings.HERMES_MODEL_CALLS_A_TURN:
            _fail(claimed, Step(), "ceiling", "too many model calls")
            return
        step = _ask(claimed, watch, model)
        if step is None:
            return
        if not step.calls:
            _finish(claimed, step)
            return
        if not persist(functools.partial(transcript.append_step, claimed, step)):
            return
        claimed.take(step)


# --- Model calls --------------------------------------------------------------------------------


def _ask(claimed: Claimed, watch: Watch, model: ChatModel) -> Step | None:
    """One model call, tried again where that can help; None if the turn ended or waits."""
    window_share = 1.0
    for attempt in range(1, settings.HERMES_PROVIDER_TRIES + 1):
        flushed, error = Step(), None
        if watch.woken is None:
            flushed, error = _call(claimed, watch, model, window_share)
        if watch.woken is not None:
            _leave(claimed, watch, flushed)
            return None
        if error is None:
            return flushed
        is_last = attempt == settings.HERMES_PROVIDER_TRIES
        is_too_long = error.kind is ErrorKind.TOO_LONG and not flushed.text
        if is_too_long and window_share == 1.0 and not is_last:
            window_share = 0.6  # our estimate was too low for this provider: once, with less
            signals.turn_overflowed.send_robust(
                Turn, session_id=claimed.turn.session_id, turn_id=claimed.turn.pk
            )
            continue
        if flushed.text or error.kind not in TRIED_AGAIN:
            _fail(claimed, flushed, error.kind, str(error))
            return None
        pause = error.retry_after
        if pause is None and not is_last:
            pause = settings.HERMES_PROVIDER_BACKOFF_SECONDS * 2 ** (attempt - 1)
        if pause is None or (is_last and error.retry_after is None):
            _fail(claimed, flushed, error.kind, str(error))
            return None
        if pause > settings.HERMES_PROVIDER_PAUSE_SECONDS or is_last:
            _wait_for_provider(claimed, flushed, error, pause)
            return None
        with released():
            watch.sleep(pause)
    raise AssertionError("unreachable")


def _call(
    claimed: Claimed, watch: Watch, model: ChatModel, window_share: float
) -> tuple[Step, ChatModelError | None]:
    """Stream one answer; return what came, and how it failed if it did."""
    turn = claimed.turn
    specs = [tool.spec for tool in tools().values()]
    ratio = endpoints.ratios.of(model)
    window = int(model.window * window_share)
    # As it was when the turn started; a summary that lands just now holds from the next call on.
    session = turn.session if claimed.has_begun else None
    claimed.has_begun = False
    given = contexts.build(
        turn.session_id, window=window, tools=specs, ratio=ratio, session=session
    )
    stream = model.open(ChatRequest(given.messages, specs))
    reasoning: list[str] = []
    finished: Finished | None = None
    error: ChatModelError | None = None
    lost: Callable[[], None] = functools.partial(watch.wake, Wake.LOST)
    flusher = Flusher(
        claimed.lease,
        session_id=turn.session_id,
        offset=turn.length,
        on_lost=lost,
        number=turn.model_calls * CHUNKS_A_CALL,
    )
    with released(), flusher, watch.on_wake(stream.shutdown):
        try:
            for event in stream:
                if isinstance(event, TextDelta):
                    flusher.add(event.text)
                elif isinstance(event, ReasoningDelta):
                    reasoning.append(event.text)
                    flusher.add_reasoning(event.text)
                else:
                    finished = event
        except ChatModelError as raised:
            error = raised
        finally:
            stream.close()
    if finished is not None and finished.usage is not None:
        endpoints.ratios.learn(model, estimated=given.tokens, counted=finished.usage.prompt)
    text = flusher.text
    if finished is not None and not text.strip() and not finished.tool_calls:
        text = ""
        error = ChatModelError(
            ErrorKind.REFUSED if finished.reason is FinishReason.CONTENT_FILTER else ErrorKind.EMPTY
        )
    return (
        Step(
            text=text,
            reasoning="".join(reasoning),
            calls=finished.tool_calls if finished is not None else (),
            finish=finished.reason if finished is not None else "",
            usage=finished.usage if finished is not None else None,
            last_seq=given.last_seq,
            live_tokens=given.live_tokens,
            built_on_id=given.built_on_id,
            left_out=given.left_out,
            model_name=model.name,
        ),
        error,
    )


def _finish(claimed: Claimed, step: Step) -> None:
    if not persist(lambda: transcript.finish(claimed, step)):
        return
    usage = step.usage
    signals.turn_committed.send_robust(
        Turn,
        session_id=claimed.turn.session_id,
        turn_id=claimed.turn.pk,
        window=claimed.window,
        size=usage.prompt + usage.completion if usage is not None else None,
        built_on_id=step.built_on_id,
        left_out=step.left_out,
    )


def _end(claimed: Claimed, to: TurnStatus, step: Step, **why: Any) -> None:
    persist(functools.partial(transcript.end, claimed, to, step, **why))


def _fail(claimed: Claimed, step: Step, code: str, text: str) -> None:
    _end(claimed, TurnStatus.FAILED, step, code=code, text=text)


def _wait_for_provider(claimed: Claimed, step: Step, error: ChatModelError, pause: float) -> None:
    """Let go of the worker for as long as the provider asks, or end the turn where that is long."""
    until = db_now() + timedelta(seconds=pause)
    too_long = pause > settings.HERMES_PROVIDER_WAIT_SECONDS
    if too_long or claimed.turn.provider_waits >= settings.HERMES_PROVIDER_TRIES:
        _end(
            claimed,
            TurnStatus.FAILED,
            step,
            code=error.kind,
            text=str(error),
            retry_at=until,
        )
        return
    persist(
        lambda: transcript.wait(
            claimed,
            Wait(PROVIDER_KEY, until),
            error_code=error.kind,
            error_text=str(error),
        )
    )


def _leave(claimed: Claimed, watch: Watch, step: Step) -> None:
    """End the turn as the one who woke us wants it, with what there is."""
    match watch.woken:
        case Wake.STOP:
            to, code = TurnStatus.CANCELLED, "stopped"
        case Wake.OVERDUE:
            to, code = TurnStatus.FAILED, "ceiling"
        case Wake.SHUTDOWN:
            to, code = TurnStatus.INTERRUPTED, "shutdown"
        case _:  # somebody else has ended it
            return
    _end(claimed, to, step, code=code)


# --- Tools --------------------------------------------------------------------------------------


def _run_tools(claimed: Claimed, watch: Watch) -> bool | None:
    """Run the open calls in order; None if the turn ended or waits, else whether any could run."""
    could_run = False
    for asked in transcript.open_calls(claimed.turn):
        if watch.woken is not None:
            _leave(claimed, watch, Step())
            return None
        call = ToolCall(asked["id"], asked["name"], asked["arguments"])
        outcome, ran = _run_tool(claimed.facts, call)
        could_run = could_run or ran
        if isinstance(outcome, Wait):
            _wait(claimed, call, outcome)
            return None
        if not persist(functools.partial(transcript.append_result, claimed, call, outcome)):
            return None
        claimed.turn.open_calls -= 1
    return could_run


def _wait(claimed: Claimed, call: ToolCall, asked: Wait) -> None:
    """Wait for a tool; one more look catches what came before the turn was waiting."""
    if not persist(lambda: transcript.wait(claimed, asked)):
        return
    again, _ran = _run_tool(claimed.facts, call)
    if isinstance(again, Done):
        transcript.resume(claimed.turn.pk, asked.key, session_id=claimed.turn.session_id)


def _run_tool(facts: domain.TurnFacts, call: ToolCall) -> tuple[Done | Wait, bool]:
    """The outcome of a call, and whether the tool was run at all."""
    tool = tools().get(call.name)
    if tool is None:
        known = ", ".join(tools()) or "none"
        return Done(f"There is no tool {call.name!r}. Tools: {known}.", ok=False), False
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError as error:
        return Done(f"The arguments are not valid JSON: {error}.", ok=False), False
    if problem := domain.arguments_problem(arguments, tool.spec.parameters):
        return Done(f"The tool was not run: {problem}.", ok=False), False
    with released():
        try:
            return tool(domain.ToolCallFacts(facts, call.id, arguments)), True
        except Exception as error:
            if isinstance(error, DatabaseError) and is_transient(error):
                raise  # asked again when the database answers; all else would fail again
            logger.exception("tool failed", extra={"turn": facts.turn_id, "tool": call.name})
            return Done("The tool failed with an internal error.", ok=False), True


def is_ready(turn_id: int) -> bool:
    """Whether the tool that a waiting turn waits for has its result by now."""
    turn = (
        Turn.objects.filter(pk=turn_id, status=TurnStatus.WAITING)
        .exclude(wait_key=PROVIDER_KEY)
        .select_related("chat", "session")
        .first()
    )
    if turn is None:
        return False
    calls = transcript.open_calls(turn)
    if not calls:
        return False
    facts = transcript.facts_of(turn)
    call = ToolCall(calls[0]["id"], calls[0]["name"], calls[0]["arguments"])
    return isinstance(_run_tool(facts, call)[0], Done)


# --- Writing while the database is away -----------------------------------------------------------


def persist(write: Callable[[], bool]) -> bool:
    """Write an outcome, for a while again where the database does not answer; its own verdict."""
    return insist(write, seconds=PERSIST_SECONDS, what="outcome")
