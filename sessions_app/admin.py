"""What operators see of chats, sessions, turns and messages, and where they add models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth import get_user_model
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminPasswordWidget

from hermes.lib import reauth
from hermes.lib.admin import FreshMixin, Operation, OperationsMixin, ReadOnlyAdmin
from hermes.lib.lists import AskedMixin, ValuesFilter
from hermes.lib.outbound import BadAddress, check_base_url

from . import intake
from .domain import EndpointKind, Refused
from .models import Chat, History, Message, ModelEndpoint, Rewind, Session, Summary, Turn
from .records import RecordedMixin

User = get_user_model()
READ = "sessions_app.read_transcript"
TIMELINE = 200  # events of a page
HIDDEN = _("hidden: reading transcripts needs a permission of its own")


def timeline(subject: str) -> SafeString:
    """What the history holds of a subject, the oldest first, with the time between."""
    rows = History.objects.filter(subject=subject).order_by("pk")[:TIMELINE]
    lines = format_html_join("", "<li><time>{}</time> · <b>{}</b>{}</li>", _lines(rows))
    return format_html('<ol class="timeline">{}</ol>', lines) if lines else SafeString("–")


def _lines(rows: QuerySet[History]) -> Iterator[tuple[str, str, str]]:
    before = None
    for row in rows:
        gap = "" if before is None else f" (+{(row.at - before).total_seconds():.1f} s)"
        what = f"{row.kind} {row.frm} → {row.to}" if row.frm else f"{row.kind} {row.to}"
        more = "".join(f" · {part}" for part in (row.reason, row.actor) if part)
        yield f"{row.at:%Y-%m-%d %H:%M:%S}{gap}", what.strip(), more
        before = row.at


class TranscriptAdmin(ReadOnlyAdmin):
    """Rows that hold what people said: shown to whom it is permitted, and that is recorded."""

    text_fields: ClassVar[tuple[str, ...]] = ()
    read_permission: ClassVar[str] = READ
    hidden_word: ClassVar[Any] = HIDDEN

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Never the texts in a list."""
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.defer(*self.text_fields)

    def get_exclude(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Texts are not among the fields of whoever may not read them."""
        return [] if request.user.has_perm(self.read_permission) else list(self.text_fields)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """What is shown beside the columns: a word in the place of hidden ones."""
        fields = list(super().get_readonly_fields(request, obj))
        return fields if request.user.has_perm(self.read_permission) else [*fields, "hidden_text"]

    @admin.display(description=_("text"))
    def hidden_text(self, row: Any) -> str:
        """What stands for a text that this operator may not read."""
        return str(self.hidden_word)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Show a row; that its text was read by somebody else than its owner is recorded."""
        response = super().change_view(request, object_id, form_url, extra_context)
        if response.status_code == 200 and request.user.has_perm(self.read_permission):
            intake.record_reading(
                model=self.opts.model_name or "", pk=object_id, actor=request.user.get_username()
            )
        return response


@admin.register(Chat)
class ChatAdmin(TranscriptAdmin):
    """Chats: whose, where they stand; not what is said in them."""

    text_fields = ("draft", "title")
    list_display = ("id", "owner", "current", "is_deleted", "active_at")
    list_filter = (("deleted_at", admin.EmptyFieldListFilter), "is_hidden")
    list_select_related = ("owner", "current")
    search_fields = ("uid__exact", "key__exact", "owner__username__startswith")
    ordering = ("-id",)

    @admin.display(boolean=True, description=_("deleted"))
    def is_deleted(self, chat: Chat) -> bool:
        """Whether its owner has deleted it."""
        return chat.deleted_at is not None


@admin.register(Session)
class SessionAdmin(ReadOnlyAdmin):
    """Sessions and the numbers that describe them."""

    list_display = (
        "id",
        "chat",
        "number",
        "last_seq",
        "live_tokens",
        "left_out",
        "end_reason",
        "touched_at",
    )
    list_filter = ("end_reason", "begun_by")
    list_select_related = ("chat",)
    search_fields = ("key__exact",)
    sortable_by = ("id", "touched_at")
    ordering = ("-id",)


@admin.register(Turn)
class TurnAdmin(TranscriptAdmin):
    """Turns: how each one went, and why."""

    text_fields = ("text", "text_hash")
    list_display = (
        "id",
        "session",
        "status",
        "source",
        "error_code",
        "model_name",
        "model_calls",
        "created_at",
        "finished_at",
    )
    list_filter = ("status", "source", ("error_code", ValuesFilter))
    list_select_related = ("session",)
    search_fields = ("id__exact", "session__key__exact")
    found_order: ClassVar[Mapping[str, Sequence[str]]] = {"session": ("-changed", "-id")}
    ordering = ("-id",)


@admin.register(Message)
class MessageAdmin(TranscriptAdmin):
    """Messages: place, kind and size; the text for whom it is permitted."""

    text_fields = ("text", "parts")
    list_display = ("id", "session", "seq", "role", "kind", "tokens", "is_partial", "created_at")
    list_filter = ("role", "kind", "is_partial")
    list_select_related = ("session",)
    search_fields = ("session__key__exact",)
    found_order: ClassVar[Mapping[str, Sequence[str]]] = {"session": ("-seq",)}
    ordering = ("-id",)


@admin.register(Rewind)
class RewindAdmin(ReadOnlyAdmin):
    """What was taken out of the context, and what came back."""

    list_display = ("id", "session", "from_seq", "to_seq", "reason", "undone_at", "created_at")
    list_filter = ("reason",)
    list_select_related = ("session",)
    ordering = ("-id",)


def _undo(summary: Summary, actor: str, reason: str) -> str:
    chat = summary.session.chat
    try:
        intake.undo_summary(
            chat_id=chat.pk,
            user_id=chat.owner_id,
            summary_id=summary.pk,
            actor=actor,
            reason=reason,
        )
    except Refused:
        return gettext("it is not the current summary of its chat (any more)")
    return ""


@admin.register(Summary)
class SummaryAdmin(OperationsMixin, TranscriptAdmin):
    """Summaries: what they cover, and their size."""

    text_fields = ("text", "body", "parts")
    list_display = (
        "id",
        "session",
        "covers_through",
        "messages",
        "before_tokens",
        "after_tokens",
        "is_untrusted",
        "is_mechanical",
        "reverted_at",
        "created_at",
    )
    list_filter = (
        ("reverted_at", admin.EmptyFieldListFilter),
        "is_untrusted",
        "is_mechanical",
        "created_at",
    )
    list_select_related = ("session",)
    search_fields = ("id__exact", "session__key__exact")
    found_order: ClassVar[Mapping[str, Sequence[str]]] = {"session": ("-covers_through", "-id")}
    ordering = ("-id",)
    operations = (
        Operation(
            "undo",
            _("Undo"),
            _("The model reads the messages themselves again; nothing that was said changes."),
            "sessions_app.undo_summary",
            _undo,
        ),
    )


@admin.register(History)
class HistoryAdmin(ReadOnlyAdmin):
    """What happened, in order."""

    list_display = ("id", "at", "subject", "kind", "frm", "to", "reason", "actor")
    list_filter = (("kind", ValuesFilter),)
    search_fields = ("subject__exact", "actor__exact")
    ordering = ("-id",)


class EndpointForm(forms.ModelForm):  # type: ignore[type-arg]  # Django's is generic in stubs only
    """An endpoint, with a key that is written and never read back."""

    api_key = forms.CharField(
        label=_("API key"),
        required=False,
        strip=True,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "off"}),
        help_text=_("Left empty, the key stays as it is. A new address needs its key again."),
    )
    forget_key = forms.BooleanField(label=_("Remove the key"), required=False)

    class Meta:
        model = ModelEndpoint
        fields = ("name", "kind", "role", "base_url", "model", "window", "priority", "is_enabled")

    def clean_api_key(self) -> str:
        """The key, if it can be sent in a header."""
        key: str = self.cleaned_data["api_key"]
        if not all("!" <= sign <= "~" for sign in key):
            raise forms.ValidationError(
                gettext("A key has only visible ASCII characters and no spaces.")
            )
        return key

    def clean(self) -> dict[str, Any]:
        """Refuse an address that Hermes would not connect to, where it is entered."""
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("kind") != EndpointKind.OPENAI:
            return cleaned
        for name in ("base_url", "model"):
            if not cleaned.get(name) and name not in self.errors:
                self.add_error(name, gettext("An OpenAI-compatible endpoint needs this."))
        if cleaned.get("base_url"):
            try:
                check_base_url(
                    cleaned["base_url"],
                    allow_loopback=settings.HERMES_ALLOW_LOOPBACK_MODELS,
                    allowed_hosts=settings.HERMES_MODEL_HOSTS,
                )
            except BadAddress as error:
                self.add_error("base_url", str(error))
        return cleaned


@admin.register(ModelEndpoint)
class ModelEndpointAdmin(RecordedMixin, AskedMixin, FreshMixin, ModelAdmin):
    """Where models answer. Keys are sealed, and bound to the address they were given for."""

    form = EndpointForm
    recorded = EndpointForm.Meta.fields
    list_display = ("name", "role", "model", "base_url", "window", "key", "is_enabled", "priority")
    list_filter = ("role", "kind", "is_enabled")
    fields = (
        "name",
        "kind",
        "role",
        "base_url",
        "model",
        "window",
        "api_key",
        "forget_key",
        "key",
        "priority",
        "is_enabled",
    )
    readonly_fields = ("key",)

    @admin.display(description=_("key"))
    def key(self, endpoint: ModelEndpoint) -> str:
        """Whether there is a key, and how it ends."""
        if not endpoint.sealed_key:
            return gettext("none")
        return f"…{endpoint.key_hint}" if endpoint.key_hint else gettext("set")

    def save_model(self, request: HttpRequest, obj: ModelEndpoint, form: Any, change: bool) -> None:
        """Save; a key stays only with the address that it was given for."""
        key = form.cleaned_data["api_key"]
        moved = obj.sealed_key and obj.key_origin != intake.origin_of(obj.base_url)
        if key:
            intake.set_key(obj, key)
        elif form.cleaned_data["forget_key"] or moved:
            intake.set_key(obj, "")
            if moved:
                messages.warning(
                    request,
                    gettext("The address has changed, so its key was removed. Enter it again."),
                )
        super().save_model(request, obj, form, change)


admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class UserAdmin(RecordedMixin, AskedMixin, FreshMixin, DjangoUserAdmin[Any], ModelAdmin):
    """People."""

    recorded = ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")
    list_per_page = 50  # as in every other list; a row of this one costs 2 ms to draw

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> Any:
        """A new password for somebody; else a session left open could get itself one."""
        if not reauth.is_fresh(request):
            return reauth.ask(request)
        with transaction.atomic():
            response = super().user_change_password(request, id, form_url)
            if request.method == "POST" and response.status_code == 302:
                row = self.get_object(request, unquote(id))
                self.record(request, row, "change", {}, {}, ["password"])
        return response


@admin.register(Group)
class GroupAdmin(RecordedMixin, AskedMixin, FreshMixin, DjangoGroupAdmin, ModelAdmin):
    """Roles."""

    recorded = ("name", "permissions")
