"""The schema of memory.db, as the steps that lead to it.

A step is never edited after its release: a change is a new step behind it. `PRAGMA
user_version` counts the steps that a file has seen.
"""

from __future__ import annotations

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    # 1: namespaces, entries, tags, vectors, recalls
    (
        """
        CREATE TABLE namespaces (
            key INTEGER PRIMARY KEY,
            name TEXT NOT NULL UNIQUE,
            root TEXT UNIQUE,
            created_at REAL NOT NULL,
            last_hit_at REAL
        )
        """,
        # AUTOINCREMENT: a key is never used twice, so a stale reference cannot meet another entry.
        """
        CREATE TABLE entries (
            key INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            namespace INTEGER NOT NULL REFERENCES namespaces (key),
            kind TEXT NOT NULL,
            task TEXT NOT NULL,
            answer TEXT NOT NULL,
            created_at REAL NOT NULL,
            expires_at REAL,
            tags TEXT NOT NULL DEFAULT '[]',
            source TEXT NOT NULL DEFAULT ''
        )
        """,
        # Covers what a search needs, so that reading 100,000 vectors touches no texts.
        "CREATE INDEX entries_set ON entries (namespace, kind, key, created_at, expires_at)",
        "CREATE INDEX entries_expiry ON entries (expires_at) WHERE expires_at IS NOT NULL",
        """
        CREATE TABLE tags (
            tag TEXT NOT NULL,
            entry INTEGER NOT NULL REFERENCES entries (key) ON DELETE CASCADE,
            PRIMARY KEY (tag, entry)
        ) WITHOUT ROWID
        """,
        "CREATE INDEX tags_entry ON tags (entry)",
        "CREATE TABLE fingerprints (key INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE)",
        # Several models may have embedded one entry; their vectors are never compared.
        """
        CREATE TABLE vectors (
            fingerprint INTEGER NOT NULL REFERENCES fingerprints (key),
            entry INTEGER NOT NULL REFERENCES entries (key) ON DELETE CASCADE,
            vector BLOB NOT NULL,
            PRIMARY KEY (fingerprint, entry)
        ) WITHOUT ROWID
        """,
        "CREATE INDEX vectors_entry ON vectors (entry)",
        """
        CREATE TABLE recalls (
            key INTEGER PRIMARY KEY AUTOINCREMENT,
            namespace INTEGER NOT NULL REFERENCES namespaces (key),
            at REAL NOT NULL,
            hit INTEGER NOT NULL
        )
        """,
        "CREATE INDEX recalls_namespace ON recalls (namespace, key)",
    ),
    # 2: which request wrote what, so that one that is sent again to another engine is done once
    (
        """
        CREATE TABLE requests (
            request TEXT PRIMARY KEY,
            entry_id TEXT NOT NULL,
            at REAL NOT NULL
        ) WITHOUT ROWID
        """,
        "CREATE INDEX requests_at ON requests (at)",
    ),
    # 3: the names and roots of namespaces that were merged into another
    (
        """
        CREATE TABLE merged (
            name TEXT UNIQUE,
            root TEXT UNIQUE,
            namespace INTEGER NOT NULL REFERENCES namespaces (key)
        )
        """,
    ),
    # 4: feedback on the answers of entries. `query` is a hash: what was asked is nobody's to read here
    (
        """
        CREATE TABLE feedback (
            key INTEGER PRIMARY KEY AUTOINCREMENT,
            entry INTEGER NOT NULL REFERENCES entries (key) ON DELETE CASCADE,
            query TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            similarity REAL NOT NULL,
            correct INTEGER NOT NULL,
            kept_back INTEGER NOT NULL,
            at REAL NOT NULL,
            UNIQUE (entry, query)
        )
        """,
    ),
    # 5: notes. An archived entry is kept and no longer returned; the full-text index, which is derived from the
    # entries and made where a file is opened (`full_text_index`), notes here that deleted words are still in it
    (
        "ALTER TABLE entries ADD COLUMN archived_at REAL",
        "ALTER TABLE entries ADD COLUMN superseded_by TEXT NOT NULL DEFAULT ''",
        "DROP INDEX entries_set",
        "CREATE INDEX entries_set ON entries (namespace, kind, key, created_at, expires_at, archived_at)",
        "CREATE INDEX entries_recent ON entries (namespace, kind, created_at, key, expires_at, archived_at)",
        """
        CREATE INDEX entries_source ON entries (namespace, kind, source, created_at, key, expires_at, archived_at)
        WHERE kind IN ('note', 'fact', 'chunk')
        """,
        "CREATE TABLE full_text_state (stale INTEGER NOT NULL)",
        "INSERT INTO full_text_state (stale) VALUES (0)",
    ),
    # 6: what consolidations archived, and the entry that stands for it. The survivor by its id: when it is forgotten,
    # the others can still be had back
    (
        """
        CREATE TABLE consolidated (
            key INTEGER PRIMARY KEY AUTOINCREMENT,
            entry INTEGER NOT NULL UNIQUE REFERENCES entries (key) ON DELETE CASCADE,
            survivor TEXT NOT NULL,
            made INTEGER NOT NULL,
            run TEXT NOT NULL
        )
        """,
        "CREATE INDEX consolidated_survivor ON consolidated (survivor, run)",
    ),
)
