"""Operations of migrations that let people go on working."""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations


class AddIndexBeside(AddIndexConcurrently):
    """Make an index while rows are written; its migration says ``atomic = False``.

    What an interrupted run has left of the index is removed first, so the migration can be run
    again. Within a transaction, where PostgreSQL does not make one beside the work, it is made as
    any other.
    """

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """The index is there and valid."""
        if schema_editor.connection.in_atomic_block:
            # A table with checks put off to the end of the transaction gets no index.
            schema_editor.connection.check_constraints()
            migrations.AddIndex.database_forwards(
                self, app_label, schema_editor, from_state, to_state
            )
            return
        name = schema_editor.quote_name(self.index.name)
        schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
        super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """The index is gone."""
        if schema_editor.connection.in_atomic_block:
            migrations.AddIndex.database_backwards(
                self, app_label, schema_editor, from_state, to_state
            )
            return
        super().database_backwards(app_label, schema_editor, from_state, to_state)
