"""Cookies that no browser of ours would send."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("name", ["sessionid", "csrftoken", "tz", "messages"])
def test_a_nul_in_a_cookie_is_no_login_and_no_error(client, name):
    client.cookies.load(f'{name}="aaaaaaaaaa\\000"')
    assert client.get("/").status_code == 302
    assert client.get("/login/").status_code == 200
