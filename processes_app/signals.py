"""What others may want to know of this application, without it knowing them."""

from __future__ import annotations

from typing import Final

from django.dispatch import Signal

# level: of the sandbox in force; "refused" or "off" where no command runs. From its own process.
supervisor_began: Final = Signal()
