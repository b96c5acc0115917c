"""Who holds the words of a query, as a search of notes asks it: what tests look into the full-text index with."""

from __future__ import annotations

from collections.abc import Sequence

from subconscious_mcp import full_text, hybrid
from subconscious_mcp.database import Database
from subconscious_mcp.records import Filters, Holders, Kind, Namespace
from subconscious_mcp.store import Store


def terms_of(query: str) -> tuple[str, ...]:
    return hybrid.keyword_terms(query, full_text.words(query))


def keys_in_store(
    store: Store, space: Namespace, kinds: Sequence[Kind], query: str, k: int, *, now: float, filters: Filters
) -> list[int]:
    """Returns the keys of the k entries of a store that hold most of a query's words, the best first."""
    return _best(store.holders(space, kinds, terms_of(query), query, now=now, filters=filters), k)


def keys_in_database(
    database: Database, space: Namespace, kinds: Sequence[Kind], query: str, k: int, *, now: float, filters: Filters
) -> list[int]:
    """Returns the keys of the k entries of a memory.db that hold most of a query's words, the best first."""
    found, common = database.holders(space, kinds, terms_of(query), query, now=now, filters=filters)
    count = database.count(space, kinds, now)
    return _best(Holders(tuple(term for term, _ in found), tuple(keys for _, keys in found), tuple(common), count), k)


def _best(held: Holders, k: int) -> list[int]:
    return hybrid.best_by_words(hybrid.weigh(held.terms, held.keys, held.count), k)
