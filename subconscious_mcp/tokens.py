"""tokens.json: who may ask over HTTP. Of a token it holds the hash and never the token.

A token is `smcp_<id>_<secret>`, the secret 256 random bits: nothing to guess, so one hash of it is enough.
The file is replaced whole, and a server reads it again when it was.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from subconscious_mcp.errors import InvalidArgument, StorageBusy, StorageDamaged, StorageError

TOKENS_FILE = "tokens.json"
USED_FILE = "tokens.used.json"
"""When each token was used last. Apart, so that a server never writes the file that commands change."""
USED_SECONDS = 60.0
"""How often it is written at most, and so how exact it is."""
PREFIX = "smcp"
_SHAPE = re.compile(rf"{PREFIX}_([0-9a-f]{{8}})_([A-Za-z0-9_-]{{43}})")
_NOBODY = hashlib.sha256(b"").hexdigest()
WRITE_SECONDS = 5.0
"""How long to wait for another command that changes the file."""
MAX_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class Token:
    """One token, as it is kept.

    Attributes:
        id: Eight hexadecimal digits, which stand in the token too.
        name: For people.
        sha256: Of the secret, in hexadecimal digits.
        namespace: Where its entries are; its holder can name no other.
        read_only: Only tools that change nothing.
        created_at: Seconds since the epoch.
        expires_at: Seconds since the epoch; None for never.
    """

    id: str
    name: str
    sha256: str
    namespace: str
    read_only: bool
    created_at: float
    expires_at: float | None

    def is_expired(self, now: float) -> bool:
        """Returns whether its time is over."""
        return self.expires_at is not None and self.expires_at <= now


def create(
    home: Path, name: str, *, namespace: str | None = None, read_only: bool = False, expires_days: float | None = None
) -> tuple[Token, str]:
    """Makes a token.

    Args:
        namespace: Its namespace; by default one that no other token and no project has.
        expires_days: Its lifetime; None for ever.

    Returns:
        What is kept of it, and the token itself, which is not kept.

    Raises:
        InvalidArgument: The name is none.
        StorageError: tokens.json cannot be read or written.
    """
    if not name.strip() or len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise InvalidArgument(f"NAME takes 1 to {MAX_NAME_CHARS} printable characters.")
    secret, now = secrets.token_urlsafe(32), time.time()
    with _changing(home) as tokens:
        token_id = secrets.token_hex(4)
        while any(token.id == token_id for token in tokens):
            token_id = secrets.token_hex(4)
        token = Token(
            id=token_id,
            name=name.strip(),
            sha256=_hash(secret),
            # With the id: two people may bear one name, and a project's folder too.
            namespace=namespace or f"{name.strip()}-{token_id}",
            read_only=read_only,
            created_at=round(now, 3),
            expires_at=None if expires_days is None else round(now + expires_days * 86_400, 3),
        )
        tokens.append(token)
    return token, f"{PREFIX}_{token_id}_{secret}"


def revoke(home: Path, token_id: str) -> bool:
    """Removes a token; returns whether there was one of that id.

    Raises:
        StorageError: tokens.json cannot be read or written.
    """
    with _changing(home) as tokens:
        kept = [token for token in tokens if token.id != token_id]
        found = len(kept) < len(tokens)
        tokens[:] = kept
    return found


def listed(home: Path) -> list[Token]:
    """Returns the tokens, oldest first.

    Raises:
        StorageError: tokens.json cannot be read.
    """
    path = home / TOKENS_FILE
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return [_token(one) for one in raw["tokens"]]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise StorageDamaged(f"{path} is damaged.", "Remove it and create the tokens again.") from None


def last_used(home: Path) -> dict[str, float]:
    """Returns when tokens were used last, by id, in seconds since the epoch; nothing where that is not known."""
    try:
        raw = json.loads((home / USED_FILE).read_text(encoding="utf-8"))
        return {str(token_id): float(used) for token_id, used in raw.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


class TokenBook:
    """The tokens as a server uses them: read again whenever the file was replaced.

    Args:
        home: The folder of tokens.json.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._stamp: tuple[int, int, int] | None = None
        self._tokens: dict[str, Token] = {}
        self._used: dict[str, float] = {}
        self._written = 0.0

    def tokens(self) -> dict[str, Token]:
        """Returns the tokens by id.

        Raises:
            StorageError: tokens.json cannot be read. Then nobody can be let in.
        """
        stamp = self.stamp()
        if stamp != self._stamp:
            self._tokens = {}
            self._tokens = {token.id: token for token in listed(self._home)} if stamp is not None else {}
            self._stamp = stamp
        return self._tokens

    def exists(self) -> bool:
        """Returns whether there is a tokens.json, with tokens or without."""
        return self.stamp() is not None

    def find(self, text: str) -> Token | None:
        """Returns the token that `text` is, or None where it is none, or none any more.

        Raises:
            StorageError: See `tokens`.
        """
        match = _SHAPE.fullmatch(text)
        token = self.tokens().get(match[1]) if match is not None else None
        # As long for an id that there is not.
        given = _hash(match[2] if match is not None else "-")
        same = hmac.compare_digest(given, token.sha256 if token is not None else _NOBODY)
        now = time.time()
        if not same or token is None or token.is_expired(now):
            return None
        self._note_use(token, now)
        return token

    def _note_use(self, token: Token, now: float) -> None:
        self._used[token.id] = round(now, 3)
        if abs(now - self._written) < USED_SECONDS:
            return
        self._written = now
        # Another server of this home may have seen others; those that were revoked are left out.
        used = {one: when for one, when in {**last_used(self._home), **self._used}.items() if one in self._tokens}
        path, temporary = self._home / USED_FILE, self._home / f"{USED_FILE}.new"
        with suppress(OSError):
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(used, file)
            temporary.replace(path)

    def stamp(self) -> tuple[int, int, int] | None:
        """Returns what tells one version of the file from the next; None where there is none."""
        try:
            facts = (self._home / TOKENS_FILE).stat()
        except OSError:
            return None
        return facts.st_mtime_ns, facts.st_ino, facts.st_size


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _token(raw: Any) -> Token:
    expires_at = raw["expires_at"]
    return Token(
        id=str(raw["id"]),
        name=str(raw["name"]),
        sha256=str(raw["sha256"]),
        namespace=str(raw["namespace"]),
        # Only a clear no lets a token write.
        read_only=raw["read_only"] is not False,
        created_at=float(raw["created_at"]),
        expires_at=None if expires_at is None else float(expires_at),
    )


@contextmanager
def _changing(home: Path) -> Iterator[list[Token]]:
    """Gives the tokens to be changed, and puts them in the place of the old ones."""
    path, temporary = home / TOKENS_FILE, home / f"{TOKENS_FILE}.new"
    deadline = time.monotonic() + WRITE_SECONDS
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            try:
                # The new file is the lock as well: whoever made it is the one to change anything.
                handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                break
            except FileExistsError:
                if time.monotonic() > deadline:
                    raise StorageBusy(
                        f"Another command is changing {path}, or was killed at it.",
                        f"Remove {temporary} if none is.",
                    ) from None
                time.sleep(0.02)
    except OSError as error:
        raise StorageError(f"{temporary} cannot be written: {error.strerror or error}.") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            tokens = listed(home)
            yield tokens
            json.dump({"tokens": [asdict(token) for token in tokens]}, file, indent=1, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        # Only here: once it is replaced, the next command may have made its own.
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise StorageError(f"{path} cannot be written: {error.strerror or error}.") from None
        raise
