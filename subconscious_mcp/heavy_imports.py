"""Large libraries are imported in the background, one at a time.

The MCP SDK and Chroma share dependencies with import cycles, which two threads that import them
at once could see half made.
"""

from __future__ import annotations

import threading

one_at_a_time = threading.RLock()
"""Held while the MCP SDK or Chroma is imported."""
