"""The inbox: context.db, where hooks leave episodes for the engine to ingest.

Hooks run at the end and the start of every session of an agent, so this module imports little and
waits for a bounded time only. A database that stays locked, or cannot be written, does not lose an
episode: it is spooled, a file of its own in `context.spool`, and read from there later.

The table `episodes` is for people as well: any SQLite client shows what was captured. Texts that
are deleted are overwritten (secure_delete, and a rollback journal instead of a write-ahead log).
"""

from __future__ import annotations

import json
import os
import time

try:
    # All of it that is used here; the rest of `sqlite3` loads `datetime`, which takes a hook 3 ms.
    import _sqlite3 as sqlite3
except ImportError:  # pragma: no cover - another implementation of Python
    import sqlite3  # type: ignore[no-redef]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

DATABASE_FILE = "context.db"
SPOOL_FOLDER = "context.spool"
WAIT_SECONDS = 0.6
"""How long a hook waits for a locked database before it spools: a session must not wait."""
ENGINE_WAIT_SECONDS = 10.0
"""The same for the engine, which has time: a hook or another program may have it."""
MOST_SPOOLED_BYTES = 1 << 20
_SCHEMA = """
CREATE TABLE IF NOT EXISTS episodes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL UNIQUE,
    ts TEXT NOT NULL,
    namespace TEXT NOT NULL,
    root TEXT,
    content TEXT NOT NULL,
    request TEXT NOT NULL,
    outcome TEXT NOT NULL,
    revision INTEGER NOT NULL DEFAULT 1,
    ingested INTEGER NOT NULL DEFAULT 0,
    moment TEXT NOT NULL DEFAULT ''
)
"""
_ADD_MOMENT = "ALTER TABLE episodes ADD COLUMN moment TEXT NOT NULL DEFAULT ''"
_INDEX = "CREATE INDEX IF NOT EXISTS episodes_project ON episodes (namespace, root, ts)"
_LEAVE = """
INSERT INTO episodes (session_id, ts, namespace, root, content, request, outcome, moment)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (session_id) DO UPDATE SET
    ts = excluded.ts, namespace = excluded.namespace, root = excluded.root, content = excluded.content,
    request = excluded.request, outcome = excluded.outcome, revision = revision + 1
WHERE (excluded.content, excluded.namespace, excluded.root) IS NOT (content, namespace, root)
"""
_SPOOLED = ("session_id", "ts", "namespace", "root", "request", "outcome", "moment")
_DAMAGED = ("not a database", "malformed", "no such column", "has no column")
_EMPTY = "no such table"
_ASIDE = ".damaged-"
_UNFINISHED_SECONDS = 3_600.0
_MOST_SALVAGED = 1_000_000
_OF_PROJECT = "WHERE namespace = ? AND root IS ? ORDER BY ts DESC LIMIT ?"
_COLUMNS = "session_id, ts, namespace, root, request, outcome, moment, id, revision, ingested"


class InboxError(OSError):
    """The database of the inbox is locked, damaged, or cannot be written.

    Attributes:
        damaged: Its file is no database, or not one of ours.
        empty: Its file has no table yet: whoever made it is not done, or was killed.
    """

    def __init__(self, error: sqlite3.Error) -> None:
        super().__init__(0, str(error))
        self.damaged = any(words in str(error) for words in _DAMAGED)
        self.empty = _EMPTY in str(error)


class Episode:
    """One captured exchange of a session. Not a dataclass: importing those takes a hook 8 ms.

    Attributes:
        session_id: The session's identity; a session has one episode.
        ts: When it was captured, UTC, `2026-11-30T03:52:45.123Z`.
        namespace: The project's derived name, or the one that was asked for.
        root: The project's folder; None where the name was asked for.
        request: What the user asked, redacted and bounded.
        outcome: What came of it, redacted and bounded.
        moment: When, as `moment` tells it: orders the episodes of a session whatever the clock says.
        number: Its row in the inbox; 0 before it has one.
        revision: Grows each time that the session's episode is replaced.
        ingested: The revision that became an entry; 0 for none.
    """

    __slots__ = (
        "ingested", "moment", "namespace", "number", "outcome", "request", "revision", "root", "session_id", "ts"
    )  # fmt: skip

    def __init__(
        self,
        *,
        session_id: str,
        ts: str,
        namespace: str,
        root: str | None,
        request: str,
        outcome: str,
        moment: str = "",
        number: int = 0,
        revision: int = 1,
        ingested: int = 0,
    ) -> None:
        self.session_id = session_id
        self.ts = ts
        self.namespace = namespace
        self.root = root
        self.request = request
        self.outcome = outcome
        self.moment = moment
        self.number = number
        self.revision = revision
        self.ingested = ingested

    @property
    def content(self) -> str:
        """The exchange as one text, for people."""
        return f"{self.request} → {self.outcome}"

    def is_same(self, other: Episode) -> bool:
        """Returns whether the other is the same revision of the same session's."""
        mine, theirs = (
            (each.number, each.session_id, each.revision, each.ts, each.request, each.outcome) for each in (self, other)
        )
        return mine == theirs


def timestamp(seconds: float | None = None) -> str:
    """Returns a time, now by default, as episodes bear it: UTC, to the millisecond, sortable."""
    at = time.time() if seconds is None else seconds
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at * 1000) % 1000:03d}Z"


def moment() -> str:
    """Returns now as the boot of the machine and the time since then, which no setting of the clock changes.

    Where the boot has no known name (it has on Linux), the part before the colon is empty.
    """
    return f"{_boot()}:{time.monotonic_ns():020d}"


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read(64).decode("ascii", "ignore").replace("-", "").strip()
    except OSError:
        return ""


def is_later(ts: str, moment: str, other_ts: str, other_moment: str) -> bool:
    """Returns whether an episode was captured later than the other of its session, or at the same time.

    Within one boot by the time since then. Otherwise the one of this boot is the later one. Where no
    boot is known either clock may tell: that serves the one that comes now.
    """
    (boot, _, since), (other_boot, _, other_since) = moment.partition(":"), other_moment.partition(":")
    if boot == other_boot:
        return since >= other_since if boot else ts >= other_ts or since > other_since
    now = _boot()
    return boot == now if now in (boot, other_boot) else ts >= other_ts


def seconds_of(ts: str) -> float:
    """Returns the seconds since the epoch of an episode's time; now where it is none."""
    import calendar

    try:
        return calendar.timegm(time.strptime(ts[:19], "%Y-%m-%dT%H:%M:%S")) + float(f"0{ts[19:-1] or '.0'}")
    except ValueError:
        return time.time()


class Inbox:
    """The inbox of one storage directory. Opens the database for each call and closes it again.

    Args:
        folder: The storage directory; made with mode 0700 when something is left.
        wait_seconds: How long to wait for a locked database.
    """

    def __init__(self, folder: str, wait_seconds: float = WAIT_SECONDS) -> None:
        self.folder = folder
        self.path = os.path.join(folder, DATABASE_FILE)
        self.spool = os.path.join(folder, SPOOL_FOLDER)
        self._wait_seconds = wait_seconds

    # --- what hooks do

    def leave(self, episode: Episode) -> str:
        """Keeps an episode; it is on the disk when this returns.

        Returns:
            `kept`, or `spooled` where the database is locked or cannot be written.

        Raises:
            OSError: It could not be spooled either.
        """
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        try:
            self._keep([episode])
        except InboxError:
            self._put_aside(episode)
            return "spooled"
        return "kept"

    def recent(self, namespace: str, root: str | None, limit: int) -> list[Episode]:
        """Returns a project's newest episodes, one for each session, those that are still spooled included.

        A database that cannot be read has none: a session must start.
        """
        found = {episode.session_id: episode for episode in self._read_or_nothing(namespace, root, limit)}
        for episode in self._spooled():
            if (episode.namespace, episode.root) == (namespace, root):
                known = found.get(episode.session_id)
                if known is None or is_later(episode.ts, episode.moment, known.ts, known.moment):
                    found[episode.session_id] = episode
        return sorted(found.values(), key=lambda episode: episode.ts, reverse=True)[:limit]

    def _read_or_nothing(self, namespace: str, root: str | None, limit: int) -> list[Episode]:
        if not os.path.exists(self.path):
            return []
        try:
            return self._select(_OF_PROJECT, (namespace, _as_stored(root), limit))
        except InboxError:
            return []

    def count(self, namespace: str, root: str | None) -> int:
        """Returns how many episodes of a project there are; 0 where the database cannot be read."""
        if not os.path.exists(self.path):
            return 0
        try:
            with _Connection(self.path, self._wait_seconds) as connection:
                query = "SELECT count(*) FROM episodes WHERE namespace = ? AND root IS ?"
                return int(connection.execute(query, (namespace, _as_stored(root))).fetchone()[0])
        except InboxError:
            return 0

    # --- what the engine and the commands do

    def state(self) -> tuple[Any, ...]:
        """Returns something that changes whenever the inbox does, without opening it."""
        return tuple(_state_of(path) for path in (self.path, self.spool))

    def take_in_spooled(self) -> int:
        """Moves spooled episodes into the database; returns how many.

        Raises:
            InboxError: The database is still locked; they stay where they are.
        """
        taken = 0
        for path in self._spool_files():
            try:
                episode = _episode_in(path)
            except OSError:
                # Taken away meanwhile, or not readable now.
                continue
            if episode is not None:
                self._keep([episode], from_file=path)
                taken += 1
            _unlink(path)
        for path in self._spool_files(ending=".new"):
            # What a killed hook began; one that lives is done within seconds.
            changed = _state_of(path)
            if changed is not None and not 0 <= time.time() - changed[0] / 1e9 < _UNFINISHED_SECONDS:
                _unlink(path)
        return taken

    def take_in_damaged(self, *, forget: bool = False) -> int:
        """Copies what can be read of databases that were put aside as damaged; returns how many episodes.

        A copy that was read as a whole is deleted. One that was not is kept for whoever can read more of
        it, until something is forgotten: that may be in it.

        Args:
            forget: Delete them in any case.

        Raises:
            InboxError: The database is locked; they stay where they are.
        """
        taken = 0
        for path in self._damaged_files():
            found, whole = _salvaged(path)
            if found:
                self._keep(found)
                taken += len(found)
            if whole or forget:
                for ending in ("", "-journal", "-wal", "-shm"):
                    _unlink(path + ending)
        return taken

    def _damaged_files(self) -> list[str]:
        try:
            names = sorted(os.listdir(self.folder))
        except OSError:
            return []
        own = [name for name in names if name.startswith(f"{DATABASE_FILE}{_ASIDE}")]
        return [os.path.join(self.folder, name) for name in own if not name.endswith(("-journal", "-wal", "-shm"))]

    def pending(self, limit: int, *, after: int = 0) -> list[Episode]:
        """Returns episodes that are not ingested as they are now, oldest first.

        Args:
            after: Only those whose number is greater.

        Raises:
            InboxError: The database is locked or damaged.
        """
        return self._select("WHERE ingested < revision AND id > ? ORDER BY id LIMIT ?", (after, limit))

    def mark_ingested(self, episode: Episode) -> bool:
        """Notes that an episode, as it is here, is an entry; returns False where it was removed or replaced meanwhile.

        Of an inbox that is gone as a whole nothing was removed.
        """
        if not os.path.exists(self.path):
            return True
        try:
            with _Connection(self.path, self._wait_seconds) as connection:
                connection.execute("BEGIN IMMEDIATE")
                row = connection.execute(f"SELECT {_COLUMNS} FROM episodes WHERE id = ?", (episode.number,)).fetchone()
                # Compared as they are read: what another program wrote may be no text. The time too: in an
                # inbox that was deleted and made again numbers and revisions start anew.
                if row is None or not _episode(row).is_same(episode):
                    return False
                connection.execute("UPDATE episodes SET ingested = revision WHERE id = ?", (episode.number,))
                return True
        except InboxError as error:
            if error.empty:
                return False
            raise

    def listed(self, namespace: str | None, root: str | None, limit: int) -> list[Episode]:
        """Returns the newest episodes of a project, or of all where `namespace` is None."""
        self.take_in_spooled()
        self.take_in_damaged()
        if namespace is None:
            return self._select("ORDER BY ts DESC LIMIT ?", (limit,))
        return self._select(_OF_PROJECT, (namespace, _as_stored(root), limit))

    def find(self, number: int) -> Episode | None:
        """Returns the episode of a row, or None."""
        found = self._select("WHERE id = ?", (number,))
        return found[0] if found else None

    def remove(self, session_ids: Sequence[str]) -> int:
        """Deletes episodes and overwrites their text, in the spool too; returns how many were in the database.

        Databases that were put aside go as a whole, after what can be read of them was copied.
        """
        self.take_in_damaged(forget=True)
        for session_id in session_ids:
            # Before the rows: `take_in_spooled` looks whether a file is still there before it makes one of it.
            for path in self._spool_files(_spool_prefix(session_id), ending=""):
                _unlink(path)
        return self._change("DELETE FROM episodes WHERE session_id = ?", [(session_id,) for session_id in session_ids])

    def rename(self, namespace: str, new: str) -> None:
        """Gives the episodes of a namespace that was asked for its new name."""
        self.take_in_spooled()
        self._change("UPDATE episodes SET namespace = ? WHERE namespace = ? AND root IS NULL", [(new, namespace)])

    # --- the database

    def _select(self, rest: str, parameters: Sequence[Any]) -> list[Episode]:
        if not os.path.exists(self.path):
            return []
        query = f"SELECT {_COLUMNS} FROM episodes {rest}"
        try:
            with _Connection(self.path, self._wait_seconds) as connection:
                return [_episode(row) for row in connection.execute(query, parameters)]
        except InboxError as error:
            if error.empty:
                return []
            raise

    def _change(self, query: str, parameters: Sequence[Sequence[Any]]) -> int:
        """Executes a query with each of `parameters`; returns how many rows it changed."""
        if not os.path.exists(self.path):
            return 0
        try:
            with _Connection(self.path, self._wait_seconds) as connection:
                connection.execute("BEGIN IMMEDIATE")
                return sum(connection.execute(query, each).rowcount for each in parameters)
        except InboxError as error:
            if error.empty:
                return 0
            raise

    def _keep(self, episodes: Sequence[Episode], *, from_file: str = "") -> None:
        """Writes episodes; those of a spooled file only if it is still there."""
        rows = [
            (e.session_id, e.ts, e.namespace, _as_stored(e.root), e.content, e.request, e.outcome, e.moment)
            for e in episodes
        ]
        opened = _identity(self.path)
        try:
            self._write(rows, from_file)
        except InboxError as error:
            if not error.damaged:
                raise
            # Not lost, but in nobody's way: what is captured from now on counts more. Another hook may
            # have put it aside already, and what is there now is not what was damaged.
            if _identity(self.path) == opened:
                os.replace(self.path, f"{self.path}{_ASIDE}{time.time_ns()}")
            self._write(rows, from_file)

    def _write(self, rows: Sequence[Sequence[Any]], from_file: str) -> None:
        if not os.path.exists(self.path):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        with _Connection(self.path, self._wait_seconds) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_SCHEMA)
            connection.execute(_INDEX)
            if from_file and not os.path.exists(from_file):
                # Forgotten, or replaced by a later one, since it was read.
                return
            if not any(column[1] == "moment" for column in connection.execute("PRAGMA table_info(episodes)")):
                connection.execute(_ADD_MOMENT)
            for row in rows:
                known = connection.execute("SELECT ts, moment FROM episodes WHERE session_id = ?", row[:1]).fetchone()
                # A later Stop of a session takes the earlier one's place; one that was spooled and comes late does not.
                if known is None or is_later(row[1], row[-1], *map(_as_text, known)):
                    connection.execute(_LEAVE, row)
                    connection.execute("UPDATE episodes SET moment = ? WHERE session_id = ?", (row[-1], row[0]))

    # --- the spool

    def _put_aside(self, episode: Episode) -> None:
        """Writes an episode into a file of its own, and removes what its session has spooled before.

        Every file has a name of its own: `take_in_spooled` may be at an earlier one just now, and removes that.
        """
        os.makedirs(self.spool, mode=0o700, exist_ok=True)
        # In the order of their times within a boot; another boot's are told apart when they are taken in.
        boot, _, since = episode.moment.partition(":")
        ts = "".join(c for c in episode.ts if c.isalnum())
        prefix = f"{_spool_prefix(episode.session_id)}{boot or 'x'}-"
        path = os.path.join(self.spool, f"{prefix}{since if boot else ts}-{os.getpid()}.json")
        facts = {name: getattr(episode, name) for name in _SPOOLED}
        try:
            with os.fdopen(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(json.dumps(facts).encode())
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{path}.new", path)
        except OSError:
            _unlink(f"{path}.new")
            raise
        for earlier in self._spool_files(prefix):
            if earlier < path:
                _unlink(earlier)

    def _spooled(self) -> Iterator[Episode]:
        for path in self._spool_files():
            try:
                episode = _episode_in(path)
            except OSError:
                continue
            if episode is not None:
                yield episode

    def _spool_files(self, prefix: str = "", ending: str = ".json") -> list[str]:
        """Returns the paths of spooled files, in their order; of one session where its prefix is given."""
        try:
            names = sorted(os.listdir(self.spool))
        except OSError:
            return []
        return [os.path.join(self.spool, name) for name in names if name.startswith(prefix) and name.endswith(ending)]


def translated(inbox: Inbox) -> _Translation:
    """Returns a context that tells what keeps an inbox from being used as this package's error.

    Raises:
        StorageError: An `OSError` came out of the block.
    """
    return _Translation(inbox)


class _Translation:
    # No generator: importing contextlib takes a hook a millisecond.
    def __init__(self, inbox: Inbox) -> None:
        self._path = inbox.path

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            from subconscious_mcp.errors import StorageError

            why = error.strerror or type(error).__name__
            hint = "Try again, or see which program has it open."
            raise StorageError(f"The inbox {self._path} cannot be used: {why}.", hint) from error


def count_memories(folder: str, namespace: str, root: str | None) -> int:
    """Returns how many live tasks are remembered of a project; 0 where that cannot be read.

    The one look that a hook takes at memory.db: read-only, beside the engine that owns it.
    """
    path = os.path.join(folder, "memory.db")
    if not os.path.exists(path):
        return 0
    of_project = "name = ?" if root is None else "root = ?"
    query = (
        "SELECT count(*) FROM entries WHERE kind = 'memory' AND (expires_at IS NULL OR expires_at > ?) AND namespace IN"
        f" (SELECT key FROM namespaces WHERE {of_project} UNION ALL SELECT namespace FROM merged WHERE {of_project})"
    )
    try:
        connection = sqlite3.connect(f"file:{_quoted(path)}?mode=ro", timeout=0.05, uri=True)
        try:
            wanted = namespace if root is None else _as_stored(root)
            return int(connection.execute(query, (time.time(), wanted, wanted)).fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error:
        return 0


def _quoted(path: str) -> str:
    """Returns a path as a URI takes it; `urllib` takes a hook 4 ms."""
    return "".join(chr(c) if chr(c).isalnum() and c < 128 else f"%{c:02X}" for c in os.fsencode(path))


class _Connection:
    """A connection whose block is one transaction, and which is closed behind it."""

    def __init__(self, path: str, wait_seconds: float) -> None:
        self._path = path
        self._wait_seconds = wait_seconds

    def __enter__(self) -> sqlite3.Connection:
        try:
            self._connection = sqlite3.connect(self._path, timeout=self._wait_seconds, isolation_level=None)
        except sqlite3.Error as error:
            raise InboxError(error) from None
        try:
            # Another program's setting must not bring a write-ahead log that keeps deleted text.
            self._connection.execute("PRAGMA secure_delete = ON")
            # What another program wrote may be no text; one bad row must not hide the others.
            self._connection.text_factory = _as_text
            self._connection.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            self._connection.close()
            raise InboxError(error) from None
        return self._connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("COMMIT" if error is None else "ROLLBACK")
        except sqlite3.Error as failed:
            error = error or failed
        finally:
            self._connection.close()
        if isinstance(error, sqlite3.Error):
            raise InboxError(error) from None


def _spool_prefix(session_id: str) -> str:
    import hashlib

    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:32] + "-"


def _episode_in(path: str) -> Episode | None:
    """Returns the episode of a spooled file; None if it holds none.

    Raises:
        OSError: It cannot be read.
    """
    with open(path, "rb") as file:
        content = file.read(MOST_SPOOLED_BYTES)
    try:
        facts = json.loads(content)
        texts = [facts[name] for name in ("session_id", "ts", "namespace", "request", "outcome")]
        root, when = facts["root"], facts.get("moment", "")
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not all(isinstance(text, str) for text in (*texts, when)) or not (root is None or isinstance(root, str)):
        return None
    session_id, ts, namespace, request, outcome = texts
    return Episode(
        session_id=session_id, ts=ts, namespace=namespace, root=root, request=request, outcome=outcome, moment=when
    )


def _salvaged(path: str) -> tuple[list[Episode], bool]:
    """Returns the readable episodes of a damaged database, and whether that is all that it holds."""
    found: list[Episode] = []
    try:
        connection = sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True)
    except sqlite3.Error:
        return found, False
    connection.text_factory = _as_text
    try:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(episodes)")}
        query = f"SELECT {_COLUMNS if 'moment' in columns else _COLUMNS.replace('moment', chr(39) * 2)} FROM episodes"
        try:
            found = [_episode(row) for row in connection.execute(query)]
        except sqlite3.Error:
            # One by one: a page that cannot be read costs only what is on it.
            last = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'episodes'").fetchone()[0]
            for number in range(1, min(int(last), _MOST_SALVAGED) + 1):
                try:
                    row = connection.execute(f"{query} WHERE id = ?", (number,)).fetchone()
                except sqlite3.Error:
                    continue
                if row is not None:
                    found.append(_episode(row))
            return found, False
    except (sqlite3.Error, TypeError, ValueError):
        return found, False
    finally:
        connection.close()
    return found, True


def _as_text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _as_stored(root: str | None) -> str | bytes | None:
    """Returns a folder as SQLite takes it: as bytes where its name is not valid UTF-8."""
    if root is None:
        return None
    try:
        root.encode()
    except UnicodeEncodeError:
        return os.fsencode(root)
    return root


def _episode(row: Sequence[Any]) -> Episode:
    session_id, ts, namespace, root, request, outcome, when, number, revision, ingested = row
    return Episode(
        session_id=_as_text(session_id),
        ts=_as_text(ts),
        namespace=_as_text(namespace),
        root=os.fsdecode(root) if isinstance(root, bytes) else root,
        request=_as_text(request),
        outcome=_as_text(outcome),
        moment=_as_text(when),
        number=number,
        revision=revision,
        ingested=ingested,
    )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _state_of(path: str) -> tuple[int, int, int] | None:
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
