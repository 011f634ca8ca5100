"""What people and models wrote, as HTML that is safe on our pages.

Markdown is read in one place, here; whatever comes out has gone through one allow-list, last.
"""

from __future__ import annotations

from .blocks import Block, BlockSplitter, all_blocks, closed_blocks, final_blocks
from .markdown import render
from .signs import visible

__all__ = [
    "Block",
    "BlockSplitter",
    "all_blocks",
    "closed_blocks",
    "final_blocks",
    "render",
    "visible",
]
