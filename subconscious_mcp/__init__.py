"""Local-first semantic memory for MCP agents.

Public names:
    MiniLMEmbeddingFunction: the embedding function, for programs that use Chroma alone.
    SubconsciousError: base of all errors that this package raises on purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from subconscious_mcp.errors import SubconsciousError

if TYPE_CHECKING:
    from subconscious_mcp.embedding import MiniLMEmbeddingFunction

__version__ = "0.1.0"
__all__ = ["MiniLMEmbeddingFunction", "SubconsciousError", "__version__"]


def __getattr__(name: str) -> Any:
    # Lazy, because the command line and the hooks must not pay for chromadb at import.
    if name == "MiniLMEmbeddingFunction":
        from subconscious_mcp.vectors import registered_embedding_function

        return registered_embedding_function()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
