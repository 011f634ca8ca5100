"""How one attempt is done: claim, read, think, hand over to the fence."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django.conf import settings
from django.db import DatabaseError, connection

from hermes.lib.chat import (
    ChatModel,
    ChatModelError,
    ChatStream,
    ErrorKind,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
)
from hermes.lib.db import insist, released
from hermes.lib.hints import push, session_group
from hermes.lib.leases import Wake, Watch, watched
from sessions_app import endpoints
from sessions_app.domain import RESERVE_SHARE
from sessions_app.models import ModelEndpoint

from . import domain, fence, prompts, source
from .domain import AttemptStatus, Reason
from .fence import Claimed, Written
from .models import CompactionAttempt
from .source import Source

logger = logging.getLogger(__name__)

TICK: Final = 0.5  # seconds between two looks at a stream


def run_attempt(attempt_id: int) -> fence.Verdict | None:
    """Summarise once; return the fence's verdict, or None if it came to none."""
    found = (
        CompactionAttempt.objects.filter(pk=attempt_id, status=AttemptStatus.QUEUED)
        .select_related("session__chat")
        .first()
    )
    if found is None:
        return None
    chosen = found.session.chat.endpoint_id
    endpoint = endpoints.summary_endpoint(chosen)
    model = endpoints.adapter(endpoint, idle=settings.HERMES_COMPACTION_CEILING_SECONDS)
    claimed = fence.claim(
        attempt_id,
        endpoint_id=None if endpoint is None else endpoint.pk,
        model_name=model.name,
    )
    if claimed is None:
        return None
    try:
        return _work(claimed, model, endpoint, endpoints.model_for(chosen).window)
    except DatabaseError as error:
        # Its lease runs out, and the sweep says what became of it.
        logger.warning(
            "attempt left to the sweep", extra={"attempt": attempt_id, "cause": str(error)}
        )
        return None
    except Exception as error:
        logger.exception("attempt failed", extra={"attempt": attempt_id})
        fence.fail(claimed.lease, Reason.INTERNAL, detail=repr(error))
        return None


def _work(
    claimed: Claimed, model: ChatModel, endpoint: ModelEndpoint | None, window: int
) -> fence.Verdict | None:
    attempt, lease = claimed.attempt, claimed.lease
    if attempt.session.generation != attempt.generation:
        fence.fail(lease, Reason.GENERATION, status=AttemptStatus.SUPERSEDED)
        return None
    read = source.read(attempt.session, attempt.cut, _room(model, attempt))
    if read is None:
        fence.fail(lease, Reason.TOO_SHORT)
        return None
    if not fence.lower_cut(lease, read.cut, before_tokens=attempt.before_tokens):
        return None
    ceiling = settings.HERMES_COMPACTION_CEILING_SECONDS
    with watched(CompactionAttempt, lease, deadline=time.monotonic() + ceiling) as watch:
        written = _think(claimed, read, model, watch, window, is_mechanical=endpoint is None)
        if written is None:
            return None
        return _commit(claimed, written)


def _room(model: ChatModel, attempt: CompactionAttempt) -> int:
    """Tokens of rows that fit into the summary model's own window, beside everything else."""
    previous = attempt.session.summary
    fixed = prompts.overhead() + (0 if previous is None else previous.tokens)
    usable = model.window - 2 * (model.window // RESERVE_SHARE)  # a summary is a long answer
    return max(500, int(usable / endpoints.ratios.of(model) / 1.15) - fixed)


def _commit(claimed: Claimed, written: Written) -> fence.Verdict:
    """Hand over to the fence, until the deadline again where the database does not answer."""
    commit = functools.partial(fence.commit, claimed.lease, written)
    return insist(commit, seconds=settings.HERMES_COMPACTION_CEILING_SECONDS, what="commit")


def _think(
    claimed: Claimed,
    read: Source,
    model: ChatModel,
    watch: Watch,
    window: int,
    *,
    is_mechanical: bool,
) -> Written | None:
    """The one model call; None if the attempt was ended, by us or by somebody else."""
    stream = model.open(prompts.request(read, claimed.attempt.focus))
    text: list[str] = []
    finished: Finished | None = None
    with released(), _followed(claimed, stream, watch) as pace:
        try:
            for event in stream:
                pace.note()
                if isinstance(event, TextDelta):
                    text.append(event.text)
                elif isinstance(event, ReasoningDelta):
                    pace.has_reasoning = True
                else:
                    finished = event
        except ChatModelError as error:
            _fail(claimed, watch, pace, error)
            return None
        finally:
            stream.close()
    if watch.woken is Wake.LOST:
        return None
    body = "".join(text)
    rejection = domain.rejection(
        body,
        has_reasoning=pace.has_reasoning,
        has_calls=bool(finished and finished.tool_calls),
        is_truncated=finished is None or finished.reason is FinishReason.LENGTH,
    )
    if finished is not None and finished.reason is FinishReason.CONTENT_FILTER:
        rejection = Reason.REFUSAL
    usage = finished.usage if finished is not None else None
    draft = prompts.draft(read, body, window, is_mechanical=is_mechanical)
    return Written(draft, rejection, usage)


def _fail(claimed: Claimed, watch: Watch, pace: Pace, error: ChatModelError) -> None:
    """End the attempt after its stream broke, by whoever broke it."""
    lease = claimed.lease
    if watch.woken is Wake.LOST:
        return
    if watch.woken is Wake.SHUTDOWN:
        fence.fail(lease, Reason.SHUTDOWN, status=AttemptStatus.LOST)
    elif watch.woken is Wake.OVERDUE:
        fence.fail(lease, Reason.DEADLINE)
    elif watch.woken is Wake.STOP:
        fence.fail(lease, Reason.CANCELLED, status=AttemptStatus.CANCELLED)
    elif pace.is_stalled or error.kind is ErrorKind.STALLED:
        fence.fail(lease, Reason.STALLED, detail=str(error))
    elif error.kind is ErrorKind.EMPTY:
        reason = Reason.REASONING_ONLY if pace.has_reasoning else Reason.EMPTY
        fence.fail(lease, reason, detail=str(error))
    else:
        fence.fail(
            lease,
            Reason.PROVIDER,
            detail=f"{error.kind}: {error}",
            retry_after=error.retry_after,
        )


class Pace:
    """How a stream goes: parsed deltas so far, and when the last one came."""

    def __init__(self) -> None:
        self.count = 0
        self.last_at: float | None = None
        self.is_stalled = False
        self.has_reasoning = False

    def note(self) -> None:
        """A delta was parsed; keep-alives and bytes are none."""
        self.count += 1
        self.last_at = time.monotonic()


@contextmanager
def _followed(claimed: Claimed, stream: ChatStream, watch: Watch) -> Iterator[Pace]:
    """Note progress in the row, and shut the stream down when nobody wants it or it went silent.

    Before the first delta only the ceiling counts: a model may think before it speaks.
    """
    pace = Pace()
    over = threading.Event()

    def follow() -> None:
        noted = 0
        while not over.wait(TICK):
            idle = settings.HERMES_COMPACTION_IDLE_SECONDS
            if pace.last_at is not None and time.monotonic() - pace.last_at > idle:
                pace.is_stalled = True
                stream.shutdown()
                return
            if pace.count == noted:
                continue
            noted = pace.count
            try:
                if not fence.progress(claimed.lease, noted):
                    watch.wake(Wake.LOST)
                    return
            except DatabaseError as error:
                logger.warning("progress not noted", extra={"cause": str(error)})
            finally:
                connection.close()
            session_id = claimed.attempt.session_id
            push(session_group(session_id), {"type": "attempt.moved", "session": session_id})

    thread = threading.Thread(target=follow, name="attempt-follower", daemon=True)
    thread.start()
    with watch.on_wake(stream.shutdown):
        try:
            yield pace
        finally:
            over.set()
            thread.join()
