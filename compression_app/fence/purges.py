"""What of compaction is deleted with a chat that was deleted long ago."""

from __future__ import annotations

from compression_app.models import CompactionAttempt, CompressionState, Cooldown
from hermes.lib.db import transacted
from sessions_app.models import Chat


@transacted
def purge(chat_id: int) -> bool:
    """Delete the rows of a deleted chat's sessions; False if it was brought back meanwhile.

    The chat and its history are left to their own application, which cannot go first.
    """
    chat = Chat.objects.lock(chat_id)
    if chat.deleted_at is None:
        return False
    Cooldown.objects.filter(session__chat=chat).delete()
    CompactionAttempt.objects.filter(session__chat=chat).delete()
    CompressionState.objects.filter(session__chat=chat).delete()
    return True
