"""Namespaces in memory.db, and the names and roots that lead to one since others were merged into it."""

from __future__ import annotations

import time

from subconscious_mcp.errors import InvalidArgument, StorageError
from subconscious_mcp.namespaces import short_hash
from subconscious_mcp.records import Namespace
from subconscious_mcp.rows import Rows, as_namespace, root_as_stored


class NamespaceRows(Rows):
    """The part of a database that knows namespaces."""

    def namespace(self, name: str, root: str | None) -> Namespace:
        """Returns the namespace of a project, registering it at first sight.

        A derived namespace is found by its root. Where its name is taken, by another root or
        by a name that was asked for, it gets one of its own, so that two never share data.

        Args:
            name: The name that was asked for or derived.
            root: The project's folder for a derived name, else None.
        """
        with self._write_lock:
            found = self.find_namespace(name, root)
            if found is not None:
                return found
            own, number = name, 1
            while root is not None and self.find_namespace(own, None) is not None:
                # Somebody may have asked for the very name with the hash.
                own = f"{name}-{short_hash(root)}" + (f"-{number}" if number > 1 else "")
                number += 1
            with self.transaction() as write:
                write.execute(
                    "INSERT INTO namespaces (name, root, created_at) VALUES (?, ?, ?)",
                    (own, root_as_stored(root), time.time()),
                )
            registered = self.find_namespace(own, root)
            if registered is None:  # pragma: no cover - the insert above would have raised
                raise StorageError(f"The namespace {own!r} could not be registered.")
            return registered

    def find_namespace(self, name: str, root: str | None) -> Namespace | None:
        """Returns the namespace of a root, or that of a name where there is none; None if it is not known."""
        # Whoever asks for a name gets what bears it, a project's namespace too.
        column, wanted = ("name", name) if root is None else ("root", root_as_stored(root))
        rows = self._read(
            f"SELECT key, name, root FROM namespaces WHERE {column} = ? UNION ALL SELECT n.key, n.name, n.root"
            f" FROM merged m JOIN namespaces n ON n.key = m.namespace WHERE m.{column} = ?",
            (wanted, wanted),
        )
        return as_namespace(*rows[0]) if rows else None

    def rename_namespace(self, namespace: Namespace, name: str) -> None:
        """Gives a namespace another name.

        Raises:
            InvalidArgument: Another namespace bears it.
        """
        with self._write_lock:
            known = self.find_namespace(name, None)
            if known is not None and known.key != namespace.key:
                raise InvalidArgument(
                    f"There is a namespace {name!r} already.", "Merge the two, or choose another name."
                )
            with self.transaction() as write:
                write.execute("DELETE FROM merged WHERE name = ? AND root IS NULL", (name,))
                write.execute("UPDATE merged SET name = NULL WHERE name = ?", (name,))
                write.execute("UPDATE namespaces SET name = ? WHERE key = ?", (name, namespace.key))

    def merge_namespaces(self, source: Namespace, into: Namespace) -> int:
        """Moves all entries of a namespace into another, which then serves its project too.

        Returns:
            How many entries were moved.
        """
        if source.key == into.key:
            raise InvalidArgument("A namespace cannot be merged into itself.")
        with self.transaction() as write:
            keys = (into.key, source.key)
            moved = write.execute("UPDATE entries SET namespace = ? WHERE namespace = ?", keys).rowcount
            write.execute("UPDATE recalls SET namespace = ? WHERE namespace = ?", keys)
            write.execute(
                "UPDATE namespaces SET last_hit_at = (SELECT max(last_hit_at) FROM namespaces WHERE key IN (?, ?))"
                " WHERE key = ?",
                (source.key, into.key, into.key),
            )
            write.execute("UPDATE merged SET namespace = ? WHERE namespace = ?", (into.key, source.key))
            write.execute("DELETE FROM namespaces WHERE key = ?", (source.key,))
            write.execute(
                "INSERT INTO merged (name, root, namespace) VALUES (?, ?, ?)",
                (source.name, root_as_stored(source.root), into.key),
            )
        return moved

    def namespaces(self) -> list[tuple[Namespace, int]]:
        """Returns every namespace with its number of stored entries, by name."""
        rows = self._read(
            "SELECT n.key, n.name, n.root, (SELECT count(*) FROM entries e WHERE e.namespace = n.key) "
            "FROM namespaces n ORDER BY n.name"
        )
        return [(as_namespace(key, name, root), count) for key, name, root, count in rows]

    def namespaces_by_kind(self) -> list[tuple[Namespace, dict[str, int]]]:
        """Returns every namespace, by name, with its number of stored entries of each kind."""
        found = [(namespace, dict[str, int]()) for namespace, _ in self.namespaces()]
        counts = {namespace.key: kinds for namespace, kinds in found}
        for key, kind, count in self._read("SELECT namespace, kind, count(*) FROM entries GROUP BY namespace, kind"):
            if key in counts:
                counts[key][kind] = count
        return found

    def namespace_of(self, entry_id: str) -> Namespace | None:
        """Returns the namespace that an entry is in, or None where there is no such entry."""
        rows = self._read(
            "SELECT n.key, n.name, n.root FROM entries e JOIN namespaces n ON n.key = e.namespace WHERE e.id = ?",
            (entry_id,),
        )
        return as_namespace(*rows[0]) if rows else None

    def merged(self, namespace: Namespace) -> list[tuple[str | None, str | None]]:
        """Returns the names and roots that lead to a namespace since others were merged into it."""
        rows = self._read("SELECT name, root FROM merged WHERE namespace = ? ORDER BY rowid", (namespace.key,))
        return [(name, as_namespace(0, "", root).root) for name, root in rows]

    def add_merged(self, namespace: Namespace, name: str | None, root: str | None) -> bool:
        """Lets a name and a root lead to a namespace, unless one of them leads somewhere already."""
        with self._write_lock:
            if (name is not None and self.find_namespace(name, None)) or (root and self.find_namespace("", root)):
                return False
            with self.transaction() as write:
                write.execute(
                    "INSERT INTO merged (name, root, namespace) VALUES (?, ?, ?)",
                    (name, root_as_stored(root), namespace.key),
                )
        return True
