"""The vector index: Chroma's persistent collections below one storage directory.

The index only finds. What it holds comes from the database, and whatever happens to its
files, `erase`, `open` and `add` make it again. So every failure of Chroma is one error,
`IndexUnreadable`, and none is worth more care than that.

Chroma is imported when the index is opened and not before: the import takes more than a second.

Traps of Chroma that this module keeps from its callers:
    - A call of Chroma holds Python's global lock until it returns. Adding 4,000 vectors in
      one call stops every thread of the process for four seconds, so `add` takes small steps.
    - Its settings are read from the environment and from a file `.env` in the current
      directory, under names as common as MIGRATIONS. The project that an agent works in could
      stop the import, or have traces sent to some address: see `_deaf`.
    - What a killed process leaves may be counted and listed, yet not found: see `missing`.
    - A client that failed to start stays in a cache of the class, and the next client of
      the same folder is given the same broken one.
    - A damaged HNSW file can end the whole process (C++ reads what it is told to): their
      headers and sizes are checked before Chroma sees them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from subconscious_mcp.errors import IndexUnreadable
from subconscious_mcp.heavy_imports import one_at_a_time
from subconscious_mcp.hnsw_files import REPAIR_HINT, blank_unused, check_segments, segments

if TYPE_CHECKING:
    from subconscious_mcp.embedding import MiniLMEmbeddingFunction

EF_SEARCH = 400
"""Candidates that a search keeps. On 71,500 embedded sentences recall@10 is 0.9998 from 100 on.
On 100,000 vectors in 3,000 tight clusters, which are harder, one search in 500 never reaches
its cluster with 300 or fewer (recall@10 0.998), and every one does with 400 (1.0): for the one
millisecond that it costs over 200, a search does not miss what is there. Source: measured, see
validation/."""

_MAX_NEIGHBORS = 32
"""Links of a vector. With Chroma's default of 16 some searches find nothing that is near (recall
0 for one query in 500, at 100 candidates); 32 takes a fifth longer to build and 10 % more disk.
Source: measured, see validation/."""

_EF_CONSTRUCTION = 100
"""Candidates while a vector is added, Chroma's default: 200 take 1.8 times the processor time to
build and gain nothing that `EF_SEARCH` does not. Source: measured, see validation/."""

_ADD_STEP = 64
"""Vectors added in one call of Chroma, during which no other thread of the process runs: about
60 ms, of which 10 ms are the same for a single vector. Source: measured, see validation/."""

_READ_STEP = 512
"""Vectors read in one call, about 30 ms."""

_PAGE = 20_000
"""Ids read in one call, about 0.1 s."""

_FILES = "chroma.sqlite3*"


class ChromaIndex:
    """The vector index in Chroma's persistent collections below one storage directory.

    Only one process may have it open: Chroma loses vectors when several share a folder.
    Safe to use from several threads, which take turns.

    Args:
        folder: The directory that holds `chroma.sqlite3` and a folder per collection. Other
            files in it are never touched.
        ef_search: Candidates that a search keeps; more finds more and takes longer. Acts on
            collections made from now on; `compact` makes all anew.
        embedding_function: Builds the Chroma embedding function under which collections are
            registered, so that other Chroma programs can query them by text. It is never
            called with a text here. None registers one that refuses texts.

    Raises:
        IndexUnreadable: By every method that touches files, whatever went wrong in Chroma.
    """

    def __init__(
        self,
        folder: Path,
        *,
        ef_search: int = EF_SEARCH,
        embedding_function: Callable[[], object] | None = None,
    ) -> None:
        self._folder = folder
        self._ef_search = ef_search
        self._make_function = embedding_function
        self._lock = threading.RLock()
        # Chroma's classes are used as Any: their types change between minor versions.
        self._client: Any = None
        self._function: Any = None
        self._opened: dict[str, Any] = {}

    def open(self) -> None:
        """Opens the index, creating it when there is none.

        Collections are read at their first use, which takes 25 ms for a small one (Chroma
        replays what it has not yet sorted in) and 0.3 s for 100,000 vectors. Some damage shows
        only then.

        Raises:
            IndexUnreadable: A file is damaged, locked or not allowed to be read.
        """
        with self._lock, _translated("opened"):
            if self._client is not None:
                return
            check_segments(self._folder)
            self._blank()
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                self._client = _persistent_client(self._folder)
                self._function = self._make_function() if self._make_function else _VectorsOnly()
                _register(type(self._function))
                self._client.list_collections()
            except BaseException:
                self._forget()
                raise
            self._restrict()

    def close(self) -> None:
        """Releases all files, so that the folder can be removed or opened elsewhere."""
        with self._lock, _translated("closed"):
            if self._client is not None:
                self._restrict()
            self._forget()
            self._blank()

    def erase(self) -> None:
        """Removes Chroma's files and nothing else; `open` then starts with an empty index.

        Raises:
            IndexUnreadable: A file could not be removed.
        """
        with self._lock, _translated("erased"):
            self._forget()
            for path in [*self._folder.glob(_FILES), *segments(self._folder)]:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)

    def collections(self) -> dict[str, int]:
        """Returns the number of vectors of each collection, by name."""
        return {name: self.count(name) for name in self.names()}

    def count(self, collection: str) -> int:
        """Returns the number of vectors of a collection; 0 when it is absent."""
        with self._lock, _translated("read"):
            place = self._find(collection)
            return 0 if place is None else int(place.count())

    def names(self) -> list[str]:
        """Returns the names of all collections, without reading any."""
        with self._lock, _translated("read"):
            self._require_open()
            return [str(found.name) for found in self._client.list_collections()]

    def metadata(self, collection: str) -> dict[str, str]:
        """Returns what `add` was given when it made the collection; empty when it is absent."""
        with self._lock, _translated("read"):
            found = self._find(collection)
            return dict(found.metadata or {}) if found is not None else {}

    def ids(self, collection: str) -> set[str]:
        """Returns the ids of all vectors of a collection; empty when it is absent.

        One page of 20,000 takes about 0.1 s, during which no other thread runs.
        """
        found: set[str] = set()
        offset = 0
        while True:
            with self._lock, _translated("read"):
                place = self._find(collection)
                if place is None:
                    return found
                page = place.get(include=[], limit=_PAGE, offset=offset)["ids"]
            found.update(page)
            offset += len(page)
            if len(page) < _PAGE:
                return found

    def missing(self, collection: str) -> set[str]:
        """Returns the ids that Chroma counts but does not find.

        A process that was killed can leave such ones. `add` mends them. Reads every vector,
        0.6 s for 10,000.
        """
        found: set[str] = set()
        left = [sorted(self.ids(collection))]
        while left:
            part = left.pop()
            for start in range(0, len(part), _READ_STEP):
                step = part[start : start + _READ_STEP]
                with self._lock:
                    if self._can_read(collection, step):
                        continue
                if len(step) == 1:
                    found.update(step)
                else:
                    left += [step[: len(step) // 2], step[len(step) // 2 :]]
        return found

    def _can_read(self, collection: str, ids: list[str]) -> bool:
        try:
            with _translated("read"):
                return len(self._find(collection).get(ids=ids, include=["embeddings"])["ids"]) == len(ids)
        except IndexUnreadable:
            return False

    def add(
        self,
        collection: str,
        ids: Sequence[str],
        vectors: NDArray[np.float32],
        metadata: Mapping[str, str],
    ) -> None:
        """Adds vectors; one whose id is known takes the place of the earlier one.

        It goes by steps of 64 vectors, about 50 ms each, between which other threads run. An
        error leaves the earlier steps done.

        Args:
            collection: Made when absent. 3 to 512 characters of [a-zA-Z0-9._-].
            ids: (n,), not empty strings.
            vectors: (n, d) float32, rows L2-normalised.
            metadata: What to write on the collection when it is made; not read afterwards.

        Raises:
            IndexUnreadable: Also when the collection holds vectors of another dimension.
        """
        if len(ids) != len(vectors):
            raise ValueError("as many vectors as ids are needed")
        for start in range(0, len(ids), _ADD_STEP):
            with self._lock, _translated("written"):
                place = self._find(collection)
                if place is None:
                    place = self._create(collection, metadata)
                # Chroma refuses an id that comes twice in one call. The last one counts.
                chosen = {name: start + i for i, name in enumerate(ids[start : start + _ADD_STEP])}
                rows = _with_direction(vectors[list(chosen.values())])
                place.upsert(ids=list(chosen), embeddings=rows)
            time.sleep(0)  # Lets a thread that waits for the lock have it.
        self._blank()

    def _blank(self) -> None:
        with self._lock, _translated("written"):
            for segment in segments(self._folder):
                blank_unused(segment)

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """Removes vectors from search; unknown ids are ignored. Their bytes go with `compact`."""
        for start in range(0, len(ids), _ADD_STEP):
            with self._lock, _translated("written"):
                place = self._find(collection)
                if place is None:
                    return
                place.delete(ids=list(ids[start : start + _ADD_STEP]))
            time.sleep(0)
        self._blank()

    def drop(self, collection: str) -> None:
        """Removes a whole collection, if there is one of that name."""
        with self._lock, _translated("written"):
            if self._find(collection) is not None:
                self._opened.pop(collection, None)
                self._client.delete_collection(collection)

    def query(self, collection: str, vector: NDArray[np.float32], k: int) -> list[str]:
        """Finds the ids of the vectors nearest to `vector`, nearest first.

        Args:
            collection: Its name; an absent one has no neighbours.
            vector: (d,) float32.
            k: How many at most.

        Returns:
            At most k ids. HNSW is approximate: of a thousand true neighbours, some two may lack.
        """
        with self._lock, _translated("searched"):
            place = self._find(collection)
            if place is None or k < 1:
                return []
            wanted = np.asarray(vector, dtype=np.float32)[np.newaxis]
            return list(place.query(query_embeddings=wanted, n_results=k, include=[])["ids"][0])

    def compact(self) -> None:
        """Writes all collections anew, after which no file holds a removed vector.

        Takes about two minutes for 100,000 vectors, holds them all in memory, and lets no other
        call in meanwhile. When it is interrupted the index lacks
        vectors, which the repair on the next start adds again from the database.
        """
        with self._lock:
            kept: list[tuple[str, list[str], NDArray[np.float32], dict[str, str]]] = []
            for name in self.collections():
                kept.append((name, *self._vectors(name), self.metadata(name)))
            self.erase()
            self.open()
            for name, ids, vectors, metadata in kept:
                self.add(name, ids, vectors, metadata)

    def _vectors(self, collection: str) -> tuple[list[str], NDArray[np.float32]]:
        ids: list[str] = []
        pages: list[NDArray[np.float32]] = []
        with _translated("read"):
            while True:
                page = self._find(collection).get(include=["embeddings"], limit=_PAGE, offset=len(ids))
                ids += page["ids"]
                if len(page["ids"]):
                    pages.append(np.asarray(page["embeddings"], dtype=np.float32))
                if len(page["ids"]) < _PAGE:
                    return ids, np.concatenate(pages) if pages else np.empty((0, 0), dtype=np.float32)

    def _find(self, name: str) -> Any:
        """Returns Chroma's object for a collection, None when there is no such collection."""
        self._require_open()
        if name not in self._opened:
            from chromadb.errors import NotFoundError

            try:
                place = self._client.get_collection(name, embedding_function=self._function)
            except NotFoundError:
                return None
            # The oldest vector is one that only the HNSW files hold. Without them Chroma counts
            # it, does not find it, and says nothing.
            place.get(limit=1, include=["embeddings"])
            self._opened[name] = place
            self._blank()  # Chroma may have written what a killed process left to be sorted in.
        return self._opened[name]

    def _create(self, name: str, metadata: Mapping[str, str]) -> Any:
        self._opened[name] = self._client.get_or_create_collection(
            name,
            # Chroma refuses an empty mapping.
            metadata=dict(metadata) or None,
            embedding_function=self._function,
            configuration={
                "hnsw": {
                    "space": "cosine",
                    "ef_construction": _EF_CONSTRUCTION,
                    "max_neighbors": _MAX_NEIGHBORS,
                    "ef_search": self._ef_search,
                }
            },
        )
        return self._opened[name]

    def _require_open(self) -> None:
        if self._client is None:
            raise IndexUnreadable("The vector index is not open.", REPAIR_HINT)

    def _forget(self) -> None:
        """Stops Chroma for this folder, also when it never started well."""
        client, self._client = self._client, None
        self._opened.clear()
        self._function = None
        if client is not None:
            with contextlib.suppress(Exception):
                client.close()
        shared = _shared_systems()
        if shared is not None:
            system = shared._identifier_to_system.pop(str(self._folder), None)
            shared._identifier_to_refcount.pop(str(self._folder), None)
            if system is not None:
                with contextlib.suppress(Exception):
                    system.stop()

    def _restrict(self) -> None:
        """Lets only the owner read the files; Chroma makes them as the umask says."""
        if os.name != "posix":
            return
        with contextlib.suppress(OSError):
            for path in self._folder.glob(_FILES):
                path.chmod(0o600)
            for path in segments(self._folder):
                path.chmod(0o700)


def read_documents(
    folder: Path, prefix: str
) -> Iterator[tuple[str, int, list[tuple[str, str | None, dict[str, Any]]]]]:
    """Reads what another program keeps in Chroma: its documents and their metadata, without vectors.

    Args:
        folder: Where its chroma.sqlite3 lies. Chroma may change it, so it must be a copy.
        prefix: Only collections whose names begin with it.

    Yields:
        Name and size of a collection, and some of its documents as (id, text, metadata).

    Raises:
        IndexUnreadable: Chroma cannot read it.
    """
    index = ChromaIndex(folder)
    try:
        with _translated("read"):
            index._client = _persistent_client(folder)
            for found in sorted(index._client.list_collections(), key=lambda found: str(found.name)):
                if not found.name.startswith(prefix):
                    continue
                # Registered as one that refuses texts: Chroma's own function would fetch a model.
                place = index._client.get_collection(found.name, embedding_function=None)
                size, seen = int(place.count()), 0
                while seen < size:
                    page = place.get(include=["documents", "metadatas"], limit=_READ_STEP, offset=seen)
                    seen += len(page["ids"])
                    if not page["ids"]:
                        break
                    rows = zip(page["ids"], page["documents"], page["metadatas"], strict=True)
                    yield str(found.name), size, [(str(id_), text, dict(meta or {})) for id_, text, meta in rows]
    finally:
        index.close()


def registered_embedding_function() -> type[MiniLMEmbeddingFunction]:
    """Returns the public embedding function after telling Chroma of it.

    From then on any Chroma client of this process opens the index's collections by themselves.
    """
    from subconscious_mcp.embedding import MiniLMEmbeddingFunction

    _register(MiniLMEmbeddingFunction)
    return MiniLMEmbeddingFunction


def _register(function: type) -> None:
    from chromadb.utils import embedding_functions

    # Chroma's own types do not know that it is called in other ways than as a decorator.
    cast(Any, embedding_functions).register_embedding_function(function)


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turns whatever Chroma raises into `IndexUnreadable`.

    A panic of its Rust code comes as pyo3_runtime.PanicException, which is no Exception.
    """
    try:
        yield
    except (IndexUnreadable, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as error:
        reason = " ".join(str(error).split())[:200]
        raise IndexUnreadable(
            f"The vector index could not be {what} ({type(error).__name__}: {reason}).", REPAIR_HINT
        ) from error


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Keeps the environment, and `.env` in the current directory, from Chroma's settings.

    Chroma builds default settings while it is imported, so that a project's `.env` with a word
    like MIGRATIONS, or one that is not UTF-8, would stop even the import. Settings of other
    libraries, built meanwhile by another thread, are left as they are.
    """
    with one_at_a_time:
        from pydantic_settings import BaseSettings

        plain_init = BaseSettings.__init__
        plain_sources = BaseSettings.__dict__["settings_customise_sources"]

        def is_chroma(settings: type) -> bool:
            return settings.__module__.partition(".")[0] == "chromadb"

        def deaf_init(self: Any, *args: Any, **values: Any) -> None:
            if is_chroma(type(self)):
                values.setdefault("_env_file", None)
            plain_init(self, *args, **values)

        # pydantic tells its own __init__ from a user's by this mark, and calls the latter slower.
        deaf_init.__dict__.update(plain_init.__dict__)

        def deaf_sources(cls: Any, settings_cls: Any, init_settings: Any, **others: Any) -> Any:
            if is_chroma(settings_cls):
                return (init_settings,)
            return plain_sources.__get__(None, cls)(settings_cls, init_settings, **others)

        patched = cast(Any, BaseSettings)
        patched.__init__ = deaf_init
        patched.settings_customise_sources = classmethod(cast(Any, deaf_sources))
        try:
            yield
        finally:
            patched.__init__ = plain_init
            patched.settings_customise_sources = plain_sources


def _persistent_client(folder: Path) -> Any:
    """Starts Chroma in a folder, with settings that nothing outside this module can change."""
    with _deaf():
        import chromadb
        from chromadb.config import Settings

        # Chroma 1.5.9 sends no telemetry whatever this says; earlier ones did. Without an
        # address for OpenTelemetry, its tracing does nothing.
        sealed = Settings(anonymized_telemetry=False)
    return chromadb.PersistentClient(path=str(folder), settings=sealed)


def _shared_systems() -> Any:
    """Returns the class in which Chroma keeps its running systems by path, None before the import.

    `clear_system_cache` is public, but also forgets the clients of other folders.
    """
    module = sys.modules.get("chromadb.api.shared_system_client")
    return getattr(module, "SharedSystemClient", None)


class _VectorsOnly:
    """The embedding function of collections that are searched by vectors alone.

    Without any, Chroma registers its default, which downloads a model at the first text.
    """

    def __call__(self, input: Any) -> Any:  # noqa: A002 - Chroma compares the name
        raise ValueError("this collection is searched by vectors, not by texts")

    def embed_query(self, input: Any) -> Any:  # noqa: A002
        return self(input)

    @staticmethod
    def name() -> str:
        return "subconscious_vectors_only"

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> _VectorsOnly:
        return _VectorsOnly()

    def get_config(self) -> dict[str, Any]:
        return {}

    def default_space(self) -> str:
        return "cosine"

    def supported_spaces(self) -> list[str]:
        return ["cosine"]

    def is_legacy(self) -> bool:
        return False

    @staticmethod
    def validate_config(config: dict[str, Any]) -> None:
        """Takes any."""

    def validate_config_update(self, old_config: dict[str, Any], new_config: dict[str, Any]) -> None:
        """Takes any."""


def _with_direction(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Puts an axis in the place of a vector without direction (zeros, or not finite).

    Such a one is damage from elsewhere. Left as it is, the index would look damaged, be built
    again from the same vector, and look damaged again.
    """
    rows = np.array(vectors, dtype=np.float32)
    bad = ~(np.isfinite(rows).all(axis=1) & rows.any(axis=1))
    rows[bad] = np.eye(1, rows.shape[1], dtype=np.float32)
    return rows
