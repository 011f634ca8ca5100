"""Settings for the embedded default and for production, in one file.

What differs between the two comes from the environment (``docs/settings.md``); there is no second
settings module.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import dj_database_url
import django_stubs_ext
from django.templatetags.static import static

from . import env
from .pool import Pooled, try_again

env.collect()  # every bad setting is told at once, by refuse_bad() at the end

django_stubs_ext.monkeypatch()

BASE_DIR = env.BASE
VAR = env.var_folder()


def _version() -> str:
    """The first version that CHANGELOG.md names: the one that runs."""
    text = (BASE_DIR / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"^## \[(\d+\.\d+\.\d+\S*)\]", text, re.MULTILINE)
    return found[1] if found else "unknown"


VERSION = _version()

# --- Who may reach us -------------------------------------------------------------------------
BIND = env.text("HERMES_BIND", default="127.0.0.1")
PORT = env.integer("HERMES_PORT", default=8000, low=1, high=65535)
HERMES_ORIGINS = env.names("HERMES_ORIGINS") or [
    f"http://{host}:{PORT}" for host in ("127.0.0.1", "localhost")
]


def _origin(written: str) -> SplitResult | None:
    """The origin taken apart; None, and a word about it, if it is not a full one."""
    try:
        parts = urlsplit(written)
        good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, half a bracket
        good = False
    if not good or "*" in written or parts.path not in {"", "/"} or parts.query or parts.username:
        env.refuse(
            f"HERMES_ORIGINS: {written!r} is not a full origin such as https://chat.example.org."
        )
        return None
    return parts


_origins = [parts for parts in map(_origin, HERMES_ORIGINS) if parts]
ALLOWED_HOSTS = sorted({origin.hostname or "" for origin in _origins})
CSRF_TRUSTED_ORIGINS = [f"{origin.scheme}://{origin.netloc}" for origin in _origins]
BEHIND_TLS = bool(_origins) and all(origin.scheme == "https" for origin in _origins)
# Addresses of clients are taken from X-Forwarded-For only behind a proxy that sets it.
TRUST_PROXY = env.boolean("HERMES_TRUST_PROXY", default=BEHIND_TLS)

SECRET_KEY = env.kept_secret("HERMES_SECRET_KEY", "secret_key")
HERMES_SECRET_KEYS = env.names("HERMES_SECRET_KEYS", secret=True) or [
    env.kept_secret("HERMES_FIELD_KEY", "field_key")
]
DEBUG = env.boolean("HERMES_DEBUG", default=False)

# --- Applications ----------------------------------------------------------------------------
INSTALLED_APPS = [
    "daphne",
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "channels",
    "sessions_app.apps.SessionsConfig",
    "compression_app.apps.CompressionConfig",
    "processes_app.apps.ProcessesConfig",
    "hermes.dashboard.apps.DashboardConfig",
    "hermes.apps.HermesConfig",
]
MIDDLEWARE = [
    "hermes.web.headers.Headers",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "hermes.dashboard.factors.NeedsSecondFactor",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "hermes.urls"
ASGI_APPLICATION = "hermes.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "libraries": {
                "chat": "hermes.web.templatetags.chat",
                "desk": "hermes.dashboard.templatetags.desk",
            },
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTHENTICATION_BACKENDS = ["hermes.dashboard.logins.GuardedBackend"]
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

# --- Words, times, files ---------------------------------------------------------------------
LANGUAGE_CODE = "en"
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"
LOCALE_PATHS = [BASE_DIR / "locale"]
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
# Files are served from where they are: nothing has to be collected before a start. A folder for
# collectstatic is only needed when another web server is to serve them.
STATIC_ROOT = env.text("HERMES_STATIC_ROOT") or None
WHITENOISE_USE_FINDERS = True
WHITENOISE_MAX_AGE = 60

# --- Database, broker, layer -------------------------------------------------------------------
DATABASE_URL = env.url("DATABASE_URL", schemes=("postgresql", "postgres"), secret=True)
REDIS_URL = env.url("REDIS_URL", schemes=("redis", "rediss", "unix"), secret=True)
REDIS_PREFIX = env.text("HERMES_REDIS_PREFIX", default="hermes")
DB_POOL = env.integer("HERMES_DB_POOL", default=16, low=2, high=200)
ASGI_THREADS = env.integer("ASGI_THREADS", default=8, low=1, high=200)
# How many processes hold a pool; a system check holds their sum against the server's limit.
PROCESSES = env.integer("HERMES_PROCESSES", default=3, low=1, high=1000)
# `celery` and `python -m celery`; not a folder further up that happens to have that name.
IS_WORKER = "celery" in Path(sys.argv[0]).parts[-2:]


def _database(url: str) -> dict[str, Any]:
    if not url:  # commands that need no database still run
        return {}
    try:
        parsed: dict[str, Any] = dict(dj_database_url.parse(url))
    except ValueError:
        env.refuse(
            "DATABASE_URL=(secret) cannot be taken apart as postgresql://user:password@host/name."
        )
        return {}
    session = {
        "lock_timeout": "2s",
        "statement_timeout": "60s" if IS_WORKER else "15s",
        "idle_in_transaction_session_timeout": "10s",
        "synchronous_commit": "on",
    }
    parsed["CONN_MAX_AGE"] = 0  # the pool keeps connections, not the threads
    parsed["CONN_HEALTH_CHECKS"] = True  # a connection that the server has ended is not handed out
    parsed["OPTIONS"] = {
        "application_name": "hermes-worker" if IS_WORKER else "hermes",
        # A host that does not answer at all, in seconds and milliseconds.
        **{"connect_timeout": 5, "tcp_user_timeout": 10_000},
        **parsed.get("OPTIONS", {}),
        "options": " ".join(f"-c {name}={value}" for name, value in session.items()),
        # After two seconds tries to connect are given up and begun anew: the pauses between them,
        # which double, do not grow with the time that the database is away.
        "pool": {
            **{"min_size": 1, "max_size": DB_POOL, "timeout": 10, "max_idle": 60},
            **{"reconnect_timeout": 2, "reconnect_failed": try_again},
            "connection_class": Pooled,
        },
    }
    return parsed


DATABASES = {"default": _database(DATABASE_URL)}

CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL or "redis://127.0.0.1:1"], "prefix": REDIS_PREFIX},
    }
}

CELERY_BROKER_URL = REDIS_URL or "redis://127.0.0.1:1"
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_CHANNEL_ERROR_RETRY = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 7200,  # above the ceiling of a turn; the row decides, not the redelivery
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    "socket_keepalive": True,
    "global_keyprefix": f"{REDIS_PREFIX}.",
}
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 2, "interval_start": 0, "interval_max": 0.2}
CELERY_TASK_DEFAULT_QUEUE = "background"
CELERY_TASK_ROUTES = {"sessions_app.tasks.run_turns": {"queue": "turns"}}
CELERY_BEAT_SCHEDULE = {
    "sweep": {"task": "sessions_app.sweep", "schedule": timedelta(seconds=10)},
    "compression-sweep": {"task": "compression_app.sweep", "schedule": timedelta(seconds=10)},
    "processes-sweep": {"task": "processes_app.sweep", "schedule": timedelta(seconds=10)},
    "desk-sweep": {"task": "hermes.dashboard.sweep", "schedule": timedelta(seconds=15)},
    "desk-check": {"task": "hermes.dashboard.check", "schedule": timedelta(minutes=10)},
}

# --- The first admin, the first models -----------------------------------------------------------
ADMIN_USERNAME = env.text("HERMES_ADMIN_USERNAME", default="admin")
ADMIN_PASSWORD = env.secret_text("HERMES_ADMIN_PASSWORD")


def _model(prefix: str) -> dict[str, Any]:
    """What the environment says about the first endpoint of one role."""
    return {
        "base_url": env.url(f"{prefix}_BASE_URL", schemes=("http", "https")),
        "api_key": env.secret_text(f"{prefix}_API_KEY"),
        "name": env.text(f"{prefix}_NAME"),
        "window": env.integer(f"{prefix}_CONTEXT", default=32_768, low=1024, high=100_000_000),
    }


# By role; an endpoint is made of each whose base URL and name are given.
MODEL_SEEDS = {"chat": _model("HERMES_MODEL"), "summary": _model("HERMES_SUMMARY_MODEL")}
for _role, _seed in MODEL_SEEDS.items():
    if bool(_seed["base_url"]) != bool(_seed["name"]):
        _prefix = "HERMES_MODEL" if _role == "chat" else "HERMES_SUMMARY_MODEL"
        env.refuse(f"{_prefix}_BASE_URL and {_prefix}_NAME are only of use together.")

# Dotted names of functions without arguments that the start command calls after migrating, in
# this order. One that is missing is skipped; one that raises is logged and stops no start.
HERMES_AT_START = ["sessions_app.intake.seed_endpoints"]

# --- The agent ---------------------------------------------------------------------------------
# The first may say that a turn is not wanted; only then is one held.
HERMES_TURN_GATES = ["processes_app.gate.still_wanted", "compression_app.gate.hold"]
# What every worker calls now and then by itself, each guarded against running twice at a time.
HERMES_SWEEPS = [
    "sessions_app.sweeps.sweep",
    "compression_app.sweeps.sweep",
    "processes_app.sweeps.sweep",
    "hermes.dashboard.sweeps.sweep",
]
# Who may keep an idle session open: dotted names of functions of a session's key.
HERMES_KEEP_OPEN = ["processes_app.gate.keeps_open"]
# What must hold of rows at any time; read by check_rows and by the tests.
HERMES_INVARIANTS = [
    "sessions_app.invariants.check_invariants",
    "compression_app.invariants.check_invariants",
    "processes_app.invariants.check_invariants",
]
HERMES_TOOLS = [
    "sessions_app.tools.CurrentTime",
    "processes_app.tools.RunCommand",
    "processes_app.tools.ListProcesses",
    "processes_app.tools.ReadOutput",
    "processes_app.tools.WaitProcess",
    "processes_app.tools.SendInput",
    "processes_app.tools.KillProcess",
    "processes_app.tools.Delegate",
]
HERMES_SYSTEM_PROMPT = env.text(
    "HERMES_SYSTEM_PROMPT",
    default="You are Hermes, a careful assistant. Answer in the language of the person.",
)
MAX_MESSAGE_BYTES = env.integer(
    "HERMES_MAX_MESSAGE_BYTES", default=256 * 1024, low=1024, high=1024 * 1024
)
HERMES_ALLOW_LOOPBACK_MODELS = env.boolean(
    "HERMES_ALLOW_LOOPBACK_MODELS", default=BIND in {"127.0.0.1", "localhost", "::1"}
)

HERMES_MODEL_HOSTS = env.names("HERMES_MODEL_HOSTS")
HERMES_SENDS_A_MINUTE = env.integer("HERMES_SENDS_A_MINUTE", default=120, low=1, high=100_000)
HERMES_SOCKETS_A_PERSON = env.integer("HERMES_SOCKETS_A_PERSON", default=50, low=1, high=10_000)
HERMES_SOCKETS = env.integer("HERMES_SOCKETS", default=2000, low=1, high=100_000)  # a process
HERMES_QUEUE_LIMIT = env.integer("HERMES_QUEUE_LIMIT", default=50, low=1, high=1000)
HERMES_TURN_CEILING_SECONDS = env.integer(
    "HERMES_TURN_CEILING_SECONDS", default=3600, low=10, high=86_400
)
HERMES_MODEL_CALLS_A_TURN = env.integer("HERMES_MODEL_CALLS_A_TURN", default=50, low=1, high=1000)
HERMES_MODEL_CONNECT_SECONDS = env.number(
    "HERMES_MODEL_CONNECT_SECONDS", default=5, low=0.1, high=60
)
HERMES_MODEL_IDLE_SECONDS = env.number("HERMES_MODEL_IDLE_SECONDS", default=120, low=0.5, high=3600)
HERMES_PROVIDER_TRIES = env.integer("HERMES_PROVIDER_TRIES", default=4, low=1, high=10)
HERMES_PROVIDER_BACKOFF_SECONDS = env.number(
    "HERMES_PROVIDER_BACKOFF_SECONDS", default=0.5, low=0, high=60
)
HERMES_PROVIDER_PAUSE_SECONDS = env.number(
    "HERMES_PROVIDER_PAUSE_SECONDS", default=15, low=0, high=120
)
HERMES_PROVIDER_WAIT_SECONDS = env.number(
    "HERMES_PROVIDER_WAIT_SECONDS", default=300, low=0, high=86_400
)
# --- Compaction ----------------------------------------------------------------------------------
HERMES_SOFT_MARK = env.number("HERMES_SOFT_MARK", default=0.60, low=0.05, high=1.0)
HERMES_HARD_MARK = env.number("HERMES_HARD_MARK", default=0.85, low=0.05, high=1.0)
HERMES_MESSAGE_LIMIT = env.integer("HERMES_MESSAGE_LIMIT", default=5000, low=10, high=1_000_000)
HERMES_TURN_HOLD_SECONDS = env.number("HERMES_TURN_HOLD_SECONDS", default=10, low=0, high=120)
HERMES_TURN_HOLD_RETRY_SECONDS = env.number(
    "HERMES_TURN_HOLD_RETRY_SECONDS", default=60, low=0, high=120
)
HERMES_COMPACTION_IDLE_SECONDS = env.number(
    "HERMES_COMPACTION_IDLE_SECONDS", default=120, low=0.5, high=3600
)
HERMES_COMPACTION_CEILING_SECONDS = env.number(
    "HERMES_COMPACTION_CEILING_SECONDS", default=600, low=1, high=86_400
)
HERMES_COMPACTION_QUEUED_SECONDS = env.number(
    "HERMES_COMPACTION_QUEUED_SECONDS", default=120, low=1, high=86_400
)
HERMES_FAILURE_COOLDOWN_SECONDS = env.number(
    "HERMES_FAILURE_COOLDOWN_SECONDS", default=300, low=0, high=86_400
)
if HERMES_COMPACTION_IDLE_SECONDS > HERMES_COMPACTION_CEILING_SECONDS:
    env.refuse(
        "HERMES_COMPACTION_IDLE_SECONDS is above HERMES_COMPACTION_CEILING_SECONDS: an attempt "
        "would end before it could be called silent."
    )

# --- Processes -----------------------------------------------------------------------------------
HERMES_COMMANDS = env.text("HERMES_COMMANDS", default="ask", choices=("ask", "allow-list", "off"))
HERMES_ALLOWED_COMMANDS = env.names("HERMES_ALLOWED_COMMANDS")
HERMES_APPROVAL_SECONDS = env.number("HERMES_APPROVAL_SECONDS", default=300, low=1, high=86_400)
HERMES_SANDBOX = env.text(
    "HERMES_SANDBOX", default="auto", choices=("auto", "bwrap", "landlock", "none")
)
HERMES_SANDBOX_ACCEPTED = env.text(
    "HERMES_SANDBOX_ACCEPTED", default="bwrap", choices=("bwrap", "landlock", "none")
)
HERMES_WORKSPACE = env.text("HERMES_WORKSPACE") or str(VAR / "workspace")
HERMES_PROCESSES_A_PERSON = env.integer("HERMES_PROCESSES_A_PERSON", default=5, low=1, high=10_000)
HERMES_PROCESSES_IN_ALL = env.integer("HERMES_PROCESSES_IN_ALL", default=20, low=1, high=10_000)
HERMES_PROCESS_SECONDS = env.integer("HERMES_PROCESS_SECONDS", default=3600, low=1, high=604_800)
HERMES_PROCESS_OUTPUT_BYTES = env.integer(
    "HERMES_PROCESS_OUTPUT_BYTES", default=1024 * 1024, low=4096, high=1024 * 1024 * 1024
)
HERMES_PROCESS_MEMORY_BYTES = env.integer(
    "HERMES_PROCESS_MEMORY_BYTES",
    default=2 * 1024**3,
    low=64 * 1024**2,
    high=1024**4,
)
HERMES_PROCESS_FILE_BYTES = env.integer(
    "HERMES_PROCESS_FILE_BYTES", default=1024**3, low=1024, high=1024**4
)
HERMES_PROCESS_TASKS = env.integer("HERMES_PROCESS_TASKS", default=256, low=8, high=100_000)
HERMES_WAKES_AN_HOUR = env.integer("HERMES_WAKES_AN_HOUR", default=30, low=1, high=100_000)
HERMES_AUTOMATIC_TURNS = env.integer("HERMES_AUTOMATIC_TURNS", default=10, low=1, high=100_000)

HERMES_SWEEP_SECONDS = env.number("HERMES_SWEEP_SECONDS", default=10, low=0.1, high=600)
HERMES_SESSION_IDLE_HOURS = env.number("HERMES_SESSION_IDLE_HOURS", default=0, low=0, high=8760)

# --- The desk ------------------------------------------------------------------------------------
HERMES_SECOND_FACTOR_REQUIRED = env.boolean(
    "HERMES_SECOND_FACTOR_REQUIRED",
    default=not {origin.hostname for origin in _origins} <= {"127.0.0.1", "localhost", "::1"},
)
HERMES_METRICS_TOKEN = env.secret_text("HERMES_METRICS_TOKEN")
HERMES_METRICS_NETWORKS = env.names("HERMES_METRICS_NETWORKS", default=("127.0.0.1/32", "::1/128"))
for _network in HERMES_METRICS_NETWORKS:
    try:
        ipaddress.ip_network(_network, strict=False)
    except ValueError:
        env.refuse(f"HERMES_METRICS_NETWORKS: {_network!r} is not a network such as 10.0.0.0/8.")
HERMES_ALERT_STREAK = env.integer("HERMES_ALERT_STREAK", default=3, low=1, high=1000)
HERMES_ALERT_QUEUED_SECONDS = env.number(
    "HERMES_ALERT_QUEUED_SECONDS", default=120, low=1, high=86_400
)
HERMES_ALERT_WASTED_TOKENS = env.integer(
    "HERMES_ALERT_WASTED_TOKENS", default=200_000, low=1, high=1_000_000_000
)
# smtp:// begins in clear text and is told to encrypt where the server can; smtps:// is TLS at once.
HERMES_MAIL_URL = env.url("HERMES_MAIL_URL", schemes=("smtp", "smtps"), secret=True)
DEFAULT_FROM_EMAIL = env.text("HERMES_MAIL_FROM", default="hermes@localhost")
_mail = urlsplit(HERMES_MAIL_URL)
EMAIL_HOST = _mail.hostname or "localhost"
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = unquote(_mail.username or ""), unquote(_mail.password or "")
EMAIL_USE_SSL = _mail.scheme == "smtps"
EMAIL_USE_TLS = _mail.scheme == "smtp" and _mail.hostname not in {"localhost", "127.0.0.1"}
EMAIL_PORT = _mail.port or (465 if EMAIL_USE_SSL else 587 if EMAIL_USE_TLS else 25)
EMAIL_TIMEOUT = 15

# The lists of the admin in the accent of the other pages.
UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Hermes",
    "SITE_HEADER": "Hermes desk",
    "SITE_URL": "/",
    "SITE_ICON": lambda request: static("icons/hermes.svg"),
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("icons/hermes.svg")}
    ],
    "COLORS": {
        "primary": {
            "50": "#f0f8f7",
            "100": "#e2f1ef",
            "200": "#c5e3df",
            "300": "#a9d5d0",
            "400": "#4fc4b8",
            "500": "#1f8d84",
            "600": "#0d6b64",
            "700": "#0b5953",
            "800": "#15302e",
            "900": "#102523",
            "950": "#08211f",
        }
    },
}

# --- Headers -----------------------------------------------------------------------------------
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_HTTPONLY = True
CSRF_COOKIE_HTTPONLY = True
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
if BEHIND_TLS:
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "__Host-sessionid", "__Host-csrftoken"
    SECURE_SSL_REDIRECT = True
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_HSTS_SECONDS = 31_536_000
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SECURE_HSTS_PRELOAD = True

# Probes of the machine itself come without TLS.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]

# --- Logs --------------------------------------------------------------------------------------
LOG_FORMAT = env.text("HERMES_LOG_FORMAT", default="text", choices=("text", "json"))
LOG_LEVEL = env.text(
    "HERMES_LOG_LEVEL", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR")
)
# Celery tells every task three times; with a sweep every few seconds nothing else would be seen.
LOG_LEVEL_OF_TASKS = {"DEBUG": "INFO", "INFO": "WARNING"}.get(LOG_LEVEL, LOG_LEVEL)
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "wrong_host": {"()": "hermes.lib.logs.WrongHost"},
        "redacting": {"()": "hermes.lib.redaction.RedactingFilter"},
    },
    "formatters": {
        "text": {"()": "hermes.lib.logs.TextFormatter"},
        "json": {"()": "hermes.lib.logs.JsonFormatter"},
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": LOG_FORMAT,
            "filters": ["redacting"],
        }
    },
    "root": {"handlers": ["console"], "level": LOG_LEVEL},
    "loggers": {
        # Django's own handlers would say everything twice, in another form.
        "django": {"handlers": [], "level": LOG_LEVEL, "propagate": True},
        "django.server": {"handlers": [], "level": LOG_LEVEL, "propagate": True},
        "django.security.DisallowedHost": {"filters": ["wrong_host"]},
        "daphne": {"level": "WARNING"},
        "celery": {"level": "INFO" if LOG_LEVEL == "DEBUG" else LOG_LEVEL},
        "celery.app.trace": {"level": LOG_LEVEL_OF_TASKS},
        "celery.beat": {"level": LOG_LEVEL_OF_TASKS},
        "celery.worker.strategy": {"level": LOG_LEVEL_OF_TASKS},
        "kombu": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},  # its INFO lines hold the addresses of model endpoints
        "httpx2": {"level": "WARNING"},
        "httpcore2": {"level": "WARNING"},
        "openai": {"level": "WARNING"},
    },
}

env.refuse_bad()
