"""Addresses of the desk, below ``/admin/`` and before the lists of the admin."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from . import drops, views

app_name = "desk"
urlpatterns = [
    path("", admin.site.admin_view(views.dashboard), name="dashboard"),
    path("login/", views.to_sign_in, name="to-sign-in"),
    path("desk/sessions/<int:pk>/", admin.site.admin_view(views.session), name="timeline"),
    path("desk/sessions/<int:pk>/export/", admin.site.admin_view(views.export), name="export"),
    path("desk/dropped/", admin.site.admin_view(drops.dropped), name="dropped"),
    path("desk/confirm/", admin.site.admin_view(views.confirm), name="confirm"),
    path("desk/second-factor/", admin.site.admin_view(views.second_factor), name="second-factor"),
    path("desk/live/", admin.site.admin_view(views.live), name="live"),
]
