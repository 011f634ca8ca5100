"""Leases: who may write, who is gone, and how a worker is woken."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest
from django.db import OperationalError

from hermes.lib.db import DbNow
from hermes.lib.leases import Lease, Owner, Renewer, Wake, Watch, process_start
from sessions_app.models import Turn
from tests import states

pytestmark = pytest.mark.django_db(transaction=True)


class TestOwner:
    def test_this_process_is_not_gone(self):
        assert not Owner.me().is_gone()

    def test_a_process_that_ended_is_gone(self):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        me = Owner.me()
        owner = Owner(me.host, me.boot, child.pid, process_start(child.pid))
        assert not owner.is_gone()
        child.kill()
        deadline = time.monotonic() + 10
        while not owner.is_gone():  # a zombie does no work: it counts as gone
            assert time.monotonic() < deadline
        child.communicate()
        assert owner.is_gone()

    def test_a_recycled_pid_is_not_taken_for_the_owner(self):
        me = Owner.me()
        assert Owner(me.host, me.boot, me.pid, "12345").is_gone()

    def test_another_boot_is_gone_and_another_host_cannot_be_told(self):
        me = Owner.me()
        assert Owner(me.host, "another-boot", me.pid, me.start).is_gone()
        assert not Owner("another-host", me.boot, 1, "1").is_gone()

    def test_a_row_names_its_owner(self):
        me = Owner.me()
        assert Owner.parse(str(me)) == me
        assert Owner.parse("nonsense") is None
        assert Owner.parse("a|b|pid|c") is None
        assert me.host == socket.gethostname()
        assert me.pid == os.getpid()


def watch_of(state: states.State, **fields) -> Watch:
    return Watch(Turn, state.claimed.lease, Turn.LEASE, **fields)


class TestClaim:
    def test_each_claim_has_a_higher_token(self):
        state = states.claimed()
        states.end_leases(state)
        from sessions_app import transcript

        again = transcript.claim(state.turn.session_id)
        assert again.lease == Lease(state.turn.pk, 2)

    def test_a_claim_through_the_query_set(self):
        state = states.queued()
        ttl = timedelta(seconds=20)
        lease = Turn.objects.claim(state.turn.pk, "running", ttl=ttl, owner=Owner.me())
        assert lease == Lease(state.turn.pk, 1)
        assert Turn.objects.claim(state.turn.pk, "running", ttl=ttl, owner=Owner.me()) is None
        assert Turn.objects.renew(lease, ttl=ttl)
        assert not Turn.objects.renew(Lease(lease.pk, 2), ttl=ttl)

    def test_expiry_is_by_the_database_clock(self):
        state = states.claimed()
        assert not Turn.objects.expired().exists()
        Turn.objects.filter(pk=state.turn.pk).update(lease_expires_at=DbNow())
        assert Turn.objects.expired().exists()


class TestWatchdog:
    def test_a_stop_wakes_the_worker_once(self):
        state = states.claimed()
        watch, woken = watch_of(state), []
        with watch.on_wake(lambda: woken.append(watch.woken)):
            Renewer().look([watch])
            assert woken == []
            Turn.objects.filter(pk=state.turn.pk).update(stop_asked_at=DbNow())
            Renewer().look([watch])
            watch.wake(Wake.LOST)

        assert woken == [Wake.STOP]
        assert not watch.sleep(10)

    def test_who_comes_late_is_told_at_once(self):
        watch, woken = watch_of(states.claimed()), []
        watch.wake(Wake.SHUTDOWN)
        with watch.on_wake(lambda: woken.append(1)):
            assert woken == [1]

    @pytest.mark.parametrize("change", [{"fence_token": 9}, {"status": "queued"}])
    def test_a_row_taken_away_wakes_as_lost(self, change):
        state = states.claimed()
        watch = watch_of(state)
        if "status" in change:
            change = {**change, "lease_expires_at": None}
        Turn.objects.filter(pk=state.turn.pk).update(**change)
        Renewer().look([watch])

        assert watch.woken is Wake.LOST

    def test_a_row_that_is_gone_wakes_as_lost(self):
        watch = Watch(Turn, Lease(987654, 1), Turn.LEASE)
        Renewer().look([watch])
        assert watch.woken is Wake.LOST

    def test_a_deadline_wakes_as_overdue(self):
        watch = watch_of(states.claimed(), deadline=time.monotonic() - 1)
        Renewer().look([watch])
        assert watch.woken is Wake.OVERDUE

    def test_a_lease_is_renewed_when_it_is_due(self):
        state = states.claimed()
        before = state.again().lease_expires_at
        watch = watch_of(state, renewed_at=time.monotonic())
        Renewer().look([watch])
        assert state.again().lease_expires_at == before
        watch.renewed_at -= 6
        Renewer().look([watch])
        assert state.again().lease_expires_at > before

    def test_a_renewal_that_lost_the_race_wakes_as_lost(self, monkeypatch):
        state = states.claimed()
        watch = watch_of(state, renewed_at=time.monotonic() - 6)
        monkeypatch.setattr(type(Turn.objects.all()), "renew", lambda *_, **__: False)
        Renewer().look([watch])
        assert watch.woken is Wake.LOST


class TestRenewer:
    def test_one_thread_watches_while_there_is_something_to_watch(self):
        state = states.claimed()
        renewer = Renewer()
        with renewer.watched(Turn, state.claimed.lease) as watch:
            assert renewer.is_busy()
            thread = renewer._thread
            Turn.objects.filter(pk=state.turn.pk).update(stop_asked_at=DbNow())
            assert not watch.sleep(10)
        assert watch.woken is Wake.STOP
        assert not renewer.is_busy()
        thread.join(10)
        assert not thread.is_alive()

    def test_leaving_wakes_those_that_work_and_those_that_begin(self):
        first, second = states.claimed(), states.claimed()
        renewer = Renewer()
        with renewer.watched(Turn, first.claimed.lease) as one:
            renewer.leave()
            with renewer.watched(Turn, second.claimed.lease) as two:
                assert (one.woken, two.woken) == (Wake.SHUTDOWN, Wake.SHUTDOWN)
            renewer.stay()
            with renewer.watched(Turn, second.claimed.lease) as three:
                assert three.woken is None

    @pytest.mark.parametrize("error", [OperationalError("away"), RuntimeError("surprise")])
    def test_a_look_that_fails_is_not_the_last(self, monkeypatch, allow_errors, error):
        state = states.claimed()
        renewer, looked, looks = Renewer(), threading.Event(), []

        def look(watches):
            looks.append(1)
            if len(looks) == 1:
                raise error
            looked.set()

        monkeypatch.setattr(renewer, "look", look)
        with renewer.watched(Turn, state.claimed.lease):
            assert looked.wait(10)
