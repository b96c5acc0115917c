"""Examines a storage directory and its surroundings, and mends what can be mended.

The database is the truth, so nearly everything is mended from it: the index is built anew,
missing vectors are embedded from their texts, a damaged model is installed again. Of a damaged
database every readable entry is copied into a fresh one, and the damaged file is kept.
"""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from subconscious_mcp import __version__, database, model_files, restoring, salvage
from subconscious_mcp.config import Resolved
from subconscious_mcp.echo_log import EchoLog
from subconscious_mcp.embedding import Embedder
from subconscious_mcp.errors import (
    IndexUnreadable,
    ModelError,
    StorageDamaged,
    StorageError,
    SubconsciousError,
)
from subconscious_mcp.local_store import LocalStore
from subconscious_mcp.opening import load_embedder, open_store
from subconscious_mcp.storage_lock import StorageLock

LOW_SPACE_BYTES = 200_000_000
"""Room for a model's download and some growth."""

State = Literal["ok", "mended", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at.

    Attributes:
        state: `problem` needs `--repair` or a person; `warning` is worth knowing.
        hint: What to do; empty where nothing is to be done.
    """

    check: str
    state: State
    detail: str
    hint: str = ""


class Doctor:
    """Examines what the settings point at.

    Args:
        resolved: The settings.
        repair: Mend what can be mended.
        compact: Let deleted vectors leave the index's files, and free pages the database.
        progress: Told of a model's download.
        embedded: Told how many of how many entries are embedded again.
        store: The storage directory where this process has it open already; left open.
    """

    def __init__(
        self,
        resolved: Resolved,
        *,
        repair: bool = False,
        compact: bool = False,
        progress: model_files.Progress | None = None,
        embedded: Callable[[int, int], None] | None = None,
        store: LocalStore | None = None,
    ) -> None:
        self._resolved = resolved
        self._config = resolved.config
        self._repair = repair
        self._compact = compact
        self._progress = progress
        self._embedded = embedded
        self._store = store
        self._salvaged: tuple[int, int, Path] | None = None

    def examine(self) -> Iterator[Finding]:
        """Yields the findings one by one, mending on the way where that was asked for."""
        yield from self._versions()
        yield from self._settings()
        yield from self._disk()
        model = yield from self._model()
        yield from self._storage(model)

    def _versions(self) -> Iterator[Finding]:
        parts = [f"subconscious-mcp {__version__}", f"Python {platform.python_version()}"]
        for name in ("mcp", "chromadb", "onnxruntime", "tokenizers"):
            parts.append(f"{name} {metadata.version(name)}")
        yield Finding("versions", "ok", ", ".join(parts))

    def _settings(self) -> Iterator[Finding]:
        for warning in self._resolved.warnings:
            yield Finding("settings", "warning", warning)
        if not self._resolved.warnings:
            file = self._resolved.config_file
            yield Finding("settings", "ok", str(file) if file.exists() else f"defaults ({file} is not there)")

    def _disk(self) -> Iterator[Finding]:
        folder = self._config.storage_dir
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        free = shutil.disk_usage(folder).free
        if free < LOW_SPACE_BYTES:
            room = f"{free / 1e6:.0f} MB free for {self._config.storage_dir}"
            yield Finding("disk", "warning", room, "Free some space.")
        else:
            yield Finding("disk", "ok", f"{free / 1e9:.1f} GB free for {self._config.storage_dir}")

    def _model(self) -> Generator[Finding, None, Embedder | None]:
        """Yields what the model is; returns the embedder, or None where there is none."""
        name = self._config.embedding_model
        try:
            status = model_files.verify(name, self._config.models_dir)
            if not status.installed and self._repair:
                model_files.install(name, self._config.models_dir, progress=self._progress)
                yield Finding("model", "mended", f"{name} was installed in {status.folder}")
            elif not status.installed:
                yield Finding("model", "problem", status.problem, model_files.INSTALL_HINT + ".")
                return None
            else:
                yield Finding("model", "ok", f"{name}, {len(status.files)} files verified by sha256 in {status.folder}")
            return load_embedder(self._config)
        except (ModelError, StorageError) as error:
            yield Finding("model", "problem", error.message, error.hint)
            return None

    def _storage(self, embedder: Embedder | None) -> Iterator[Finding]:
        folder = self._config.storage_dir
        if not folder.exists():
            yield Finding("storage", "ok", f"{folder} is not there yet; the first write makes it")
            return
        try:
            store = self._store or self._opened()
        except SubconsciousError as error:
            check = "memory.db" if isinstance(error, StorageDamaged) else "storage"
            yield Finding(check, "problem", error.message, error.hint)
            return
        try:
            # One part that cannot be looked at does not hide the others.
            yield from _guarded("memory.db", self._database(store))
            yield from _guarded("full text", self._full_text(store))
            if embedder is not None:
                yield from _guarded("vectors", self._vectors(store, embedder))
                yield from _guarded("index", self._index(store, embedder))
            for path in sorted(folder.glob("echo_log*.jsonl")):
                yield from _guarded(path.name, self._echo_log(path))
            for path in restoring.kept_aside(folder):
                yield Finding(
                    "restore",
                    "warning",
                    f"{path} holds what a restore replaced, and what you forgot since",
                    "Delete that folder when you need it no more.",
                )
        finally:
            if store is not self._store:
                store.close()

    def _opened(self) -> LocalStore:
        command = "subconscious-mcp doctor"
        try:
            store = open_store(self._config, command)
        except StorageDamaged:
            if not self._repair:
                raise
            self._set_aside()
            return open_store(self._config, command)
        if self._repair and store.database.problems():
            store.close()
            self._set_aside()
            return open_store(self._config, command)
        return store

    def _set_aside(self) -> None:
        """Copies what can be read of the damaged database into a new one, and keeps the damaged file.

        The new one is whole before it takes the place of the other: whoever is killed here finds
        either of them, never an empty one.
        """
        folder = self._config.storage_dir
        lock = StorageLock(folder, "subconscious-mcp doctor --repair")
        try:
            damaged = folder / database.DATABASE_FILE
            workshop = folder / "memory.salvage"
            shutil.rmtree(workshop, ignore_errors=True)
            workshop.mkdir(mode=0o700)
            fresh = database.Database(workshop)
            try:
                copied, lost = salvage.salvage(damaged, fresh)
            finally:
                fresh.close()
            kept = _unused(folder / f"memory.damaged-{time.strftime('%Y%m%d-%H%M%S')}.db")
            for suffix in ("-wal", ""):
                _copy(damaged.with_name(damaged.name + suffix), kept.with_name(kept.name + suffix))
            for suffix in ("-wal", "-shm"):
                damaged.with_name(damaged.name + suffix).unlink(missing_ok=True)
            (workshop / database.DATABASE_FILE).replace(damaged)
            shutil.rmtree(workshop, ignore_errors=True)
            self._salvaged = (copied, lost, kept)
        except OSError as error:
            raise StorageError(
                f"{folder} could not be repaired: {error.strerror or error}.", "Mend that and try again."
            ) from error
        finally:
            lock.release(clean=False)

    def _database(self, store: LocalStore) -> Iterator[Finding]:
        if self._salvaged is not None:
            copied, lost, kept = self._salvaged
            yield Finding(
                "memory.db",
                "mended",
                f"{copied} entries copied into a new file, {lost} rows unreadable; the damaged file is {kept}",
            )
        problems = store.database.problems()
        if problems:
            yield Finding(
                "memory.db",
                "problem",
                f"{len(problems)} faults, the first: {problems[0]}",
                "Run `subconscious-mcp doctor --repair`; it keeps the damaged file.",
            )
            return
        if self._compact:
            store.database.compact()
        size = store.database.path.stat().st_size / 1e6
        spaces = store.database.namespaces()
        count = sum(entries for _, entries in spaces)
        yield Finding("memory.db", "ok", f"{count} entries in {len(spaces)} namespaces, {size:.1f} MB")

    def _full_text(self, store: LocalStore) -> Iterator[Finding]:
        able = store.database.full_text
        if len(able.tables) < 2:
            lack = "parts of words" if able.tables else "words"
            yield Finding(
                "full text",
                "warning",
                f"this Python's SQLite cannot index {lack}; notes are found by meaning all the same",
                "A Python with SQLite 3.34 or later and FTS5 can.",
            )
        damaged = store.database.full_text_problems()
        if damaged and self._repair:
            store.database.rebuild_full_text()
            yield Finding("full text", "mended", "it did not agree with the entries and was made anew")
        elif damaged:
            yield Finding(
                "full text",
                "problem",
                "it does not agree with the entries, so words may not find what holds them",
                "Run `subconscious-mcp doctor --repair`, which makes it anew.",
            )
        elif able.tables:
            yield Finding("full text", "ok", "the words of every note are in it")

    def _vectors(self, store: LocalStore, embedder: Embedder) -> Iterator[Finding]:
        damaged = store.database.count_damaged_vectors(embedder.fingerprint, embedder.dimension)
        if damaged and self._repair:
            store.database.drop_damaged_vectors(embedder.fingerprint, embedder.dimension)
        missing = store.count_unembedded(embedder.fingerprint) + (0 if self._repair else damaged)
        if not missing:
            yield Finding("vectors", "ok", f"every entry is embedded by model {embedder.fingerprint}")
        elif self._repair:
            done = store.embed_missing(embedder.fingerprint, embedder.embed, self._embedded)
            yield Finding("vectors", "mended", f"{done} entries were embedded again")
        else:
            yield Finding(
                "vectors",
                "problem",
                f"{missing} entries are not embedded by model {embedder.fingerprint}",
                "They are at the next start, or now by `subconscious-mcp doctor --repair`.",
            )

    def _index(self, store: LocalStore, embedder: Embedder) -> Iterator[Finding]:
        store.prepare_index(embedder.fingerprint, embedder.dimension)
        try:
            missing, strangers = store.index_differences()
        except IndexUnreadable as error:
            if not self._repair:
                yield Finding("index", "problem", error.message, error.hint)
                return
            added, _ = store.rebuild_index()
            yield Finding("index", "mended", f"it could not be read and was built anew with {added} vectors")
            return
        if (missing or strangers) and self._repair:
            added, removed = store.bring_index_up_to_date()
            yield Finding("index", "mended", f"{added} vectors added, {removed} removed")
        elif missing or strangers:
            yield Finding(
                "index",
                "warning",
                f"it lacks {missing} vectors and has {strangers} too many; searches are exact all the same",
                "The server mends that when it is idle, `subconscious-mcp doctor --repair` now.",
            )
        else:
            yield Finding("index", "ok", "it holds the vectors of memory.db, all and only")
        if self._compact:
            store.bring_index_up_to_date()
            store.index.compact()
            yield Finding("index", "mended", "deleted vectors have left its files")

    def _echo_log(self, path: Path) -> Iterator[Finding]:
        log = EchoLog(path, self._config.echo_log_max_bytes)
        damaged = sum(line is None for line in log.lines())
        if damaged and self._repair:
            log.drop_damaged()
            yield Finding(path.name, "mended", f"{damaged} damaged lines removed")
        elif damaged:
            yield Finding(path.name, "warning", f"{damaged} damaged lines, which reports pass over")
        else:
            yield Finding(path.name, "ok", f"{path.stat().st_size / 1e6:.1f} MB")


def _guarded(check: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except SubconsciousError as error:
        yield Finding(check, "problem", error.message, error.hint)


def _unused(path: Path) -> Path:
    number = 1
    candidate = path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return candidate


def _copy(source: Path, target: Path) -> None:
    """Gives a file a second name, or copies it where the file system has no such thing."""
    if not source.exists():
        return
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
