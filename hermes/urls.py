"""Addresses."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import include, path

from hermes.dashboard import metrics
from hermes.dashboard import views as desk
from hermes.web import probes, taskviews, views

urlpatterns = [
    path("", views.home, name="home"),
    path("login/", desk.SignIn.as_view(), name="login"),
    path("login/code/", desk.sign_in_code, name="login-code"),
    path("logout/", LogoutView.as_view(next_page="/login/"), name="logout"),
    path("chats/new/", views.new_chat, name="chat-new"),
    path("chats/<uuid:uid>/", views.chat_page, name="chat"),
    path("chats/<uuid:uid>/older/", views.older, name="chat-older"),
    path("chats/<uuid:uid>/versions/<int:rewind>/", views.version, name="chat-version"),
    path("chats/<uuid:uid>/summaries/<int:pk>/", views.summary, name="chat-summary"),
    path("chats/<uuid:uid>/fold/", views.fold, name="chat-fold"),
    path("chats/<uuid:uid>/text/", views.text, name="chat-text"),
    path("chats/<uuid:uid>/rename/", views.rename, name="chat-rename"),
    path("chats/<uuid:uid>/pin/", views.pin, name="chat-pin"),
    path("chats/<uuid:uid>/archive/", views.archive, name="chat-archive"),
    path("chats/<uuid:uid>/delete/", views.delete, name="chat-delete"),
    path("chats/<uuid:uid>/undelete/", views.undelete, name="chat-undelete"),
    path("chats/<uuid:uid>/model/", views.model, name="chat-model"),
    path("chats/<uuid:uid>/results/<int:pk>/", taskviews.result, name="chat-result"),
    path("processes/<slug:uid>/", taskviews.process_log, name="process-log"),
    path("sidebar/", views.sidebar, name="sidebar"),
    path("healthz", probes.healthz, name="healthz"),
    path("readyz", probes.readyz, name="readyz"),
    path("metrics", metrics.page, name="metrics"),
    path("admin/", include("hermes.dashboard.urls")),  # before the lists: it has their index
    path("admin/", admin.site.urls),
]
