"""The run's own servers, and the rule about logged errors."""

from __future__ import annotations

import logging

import pytest
import redis
from django.contrib.auth import get_user_model
from django.db import connection

from tests.conftest import _ERRORS, pytest_runtest_call


@pytest.mark.django_db
def test_database_is_postgresql_with_an_ordinary_role() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper, version() FROM pg_roles WHERE rolname = current_user")
        is_super, version = cursor.fetchone()
    assert "PostgreSQL" in version
    assert not is_super
    get_user_model().objects.create_user("Ann")


def test_broker_answers(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.ping()


def test_a_logged_error_fails_the_test(request: pytest.FixtureRequest) -> None:
    class Item:
        fixturenames = ["tmp_path"]
        stash = pytest.Stash()

    hook = pytest_runtest_call(Item())  # type: ignore[arg-type]
    next(hook)
    logging.getLogger("hermes.anything").error("it broke")
    with pytest.raises(pytest.fail.Exception, match="it broke"):
        hook.send(None)
    # This very test logged it too, and would fail: take it back.
    request.node.stash[_ERRORS].records.clear()


def test_a_test_may_ask_for_errors(allow_errors: list[logging.LogRecord]) -> None:
    logging.getLogger("hermes.anything").error("meant")
    assert [record.getMessage() for record in allow_errors] == ["meant"]
