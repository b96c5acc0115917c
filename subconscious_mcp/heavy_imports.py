"""How the large libraries are imported: one at a time, and told to keep to one thread.

The MCP SDK and Chroma share dependencies with import cycles, which two threads that import them
at once could see half made.
"""

from __future__ import annotations

import os
import threading

one_at_a_time = threading.RLock()
"""Held while the MCP SDK or Chroma is imported."""


def calm_numpy() -> None:
    """Keeps numpy's matrix products on the calling thread; acts before numpy is imported.

    A search multiplies one matrix by one vector, which memory bounds and not arithmetic. On two
    threads it gets no faster, and the second thread, which spins for its next product, takes a
    core from the model: a recall at 10,000 entries took 34 ms with it and 18 ms without.
    Source: measured on 2 cores under load, OpenBLAS of numpy 2.4. For processes of our own only:
    a program that imports this package decides for itself.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("MKL_NUM_THREADS", "1")
    os.environ.setdefault("VECLIB_MAXIMUM_THREADS", "1")
