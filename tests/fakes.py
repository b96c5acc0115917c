"""Stand-ins for what is slow or moves: the embedder and the clock."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray


class FakeEmbedder:
    """A hashed bag of words: texts that share words are similar, equal texts are equal.

    Args:
        fingerprint: 12 hexadecimal digits; another one is another model.
        dimension: Length of the vectors.
    """

    def __init__(self, fingerprint: str = "fa4efa4efa4e", dimension: int = 384) -> None:
        self.fingerprint = fingerprint
        self.dimension = dimension
        self.max_tokens = 256
        self.fixed: dict[str, NDArray[np.float32]] = {}
        self.calls = 0

    def place(self, text: str, similarity: float, to: str) -> None:
        """Fixes the vector of `text` at exactly this cosine to that of `to`."""
        base = self.embed_query(to).astype(np.float64)
        other = self._word("another direction " + text).astype(np.float64)
        other -= (other @ base) * base
        other /= np.linalg.norm(other)
        vector = similarity * base + np.sqrt(1.0 - similarity**2) * other
        self.fixed[text] = vector.astype(np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        self.calls += 1
        if text in self.fixed:
            return self.fixed[text]
        words = re.findall(r"\w+|[^\w\s]", text.casefold()) or [""]
        vector = np.sum([self._word(word) for word in words], axis=0)
        return (vector / np.linalg.norm(vector)).astype(np.float32)

    def embed(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> NDArray[np.float32]:
        if progress is not None:
            progress(len(texts))
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return np.stack([self.embed_query(text) for text in texts])

    def _word(self, word: str) -> NDArray[np.float32]:
        seed = int.from_bytes(hashlib.sha256(f"{self.fingerprint} {word}".encode()).digest()[:8], "big")
        vector = np.random.default_rng(seed).standard_normal(self.dimension).astype(np.float32)
        return vector / np.linalg.norm(vector)


class Clock:
    """A clock that the test turns."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds
