"""Local-first semantic memory for MCP agents.

Public names:
    MiniLMEmbeddingFunction: the embedding function, for programs that use Chroma alone.
    SubconsciousError: base of all errors that this package raises on purpose.
"""

from __future__ import annotations

# Not from `typing`: this module is imported by the pipe, which every window starts.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from subconscious_mcp.embedding import MiniLMEmbeddingFunction
    from subconscious_mcp.errors import SubconsciousError

__version__ = "0.1.0"
__all__ = ["MiniLMEmbeddingFunction", "SubconsciousError", "__version__"]


def __getattr__(name: str) -> Any:
    # Lazy, because the pipe and the hooks must not pay for chromadb at import.
    if name == "MiniLMEmbeddingFunction":
        from subconscious_mcp.vectors import registered_embedding_function

        return registered_embedding_function()
    if name == "SubconsciousError":
        from subconscious_mcp.errors import SubconsciousError

        return SubconsciousError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
