"""Migrations: none is missing, they form a line, and each can be taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.apps import apps
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from .sources import APPS

OWN = [config.label for config in apps.get_app_configs() if config.name.split(".")[0] in APPS]
LOADER = MigrationLoader(None)
MIGRATED = sorted({label for label, _ in LOADER.disk_migrations} & set(OWN))


@pytest.mark.django_db
def test_no_model_is_without_its_migration() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


@pytest.mark.parametrize("label", MIGRATED)
def test_they_form_a_line_whose_end_is_written_down(label: str) -> None:
    leaves = [name for _, name in LOADER.graph.leaf_nodes(label)]
    folder = Path(apps.get_app_config(label).path)
    file = folder / "migrations" / "max_migration.txt"
    # Two branches that add a migration each conflict in this file, and are seen.
    assert [file.read_text(encoding="utf-8").strip()] == leaves


@pytest.mark.parametrize("label", MIGRATED)
def test_each_operation_can_be_taken_back(label: str) -> None:
    for (app, name), migration in LOADER.disk_migrations.items():
        if app == label:
            for operation in migration.operations:
                assert operation.reversible, f"{name}: {operation}"


@pytest.fixture
def content_types_as_before():
    """Migrating makes content types anew; what was remembered of them is undone with the test."""
    yield
    ContentType.objects.clear_cache()


@pytest.mark.django_db
@pytest.mark.usefixtures("content_types_as_before")
def test_the_tables_can_be_taken_back_and_made_again() -> None:
    for label in MIGRATED:
        MigrationExecutor(connection).migrate([(label, None)])
        tables = connection.introspection.table_names()
        assert [table for table in tables if table.startswith(label)] == []
    call_command("migrate", verbosity=0)
    executor = MigrationExecutor(connection)
    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []
