"""Who asks over HTTP: from an Authorization header to a user with a collection of its own."""

from __future__ import annotations

import logging
import threading
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from subconscious_mcp.config import Config
from subconscious_mcp.errors import ConfigError, StorageError
from subconscious_mcp.http_names import is_loopback
from subconscious_mcp.namespaces import DEFAULT
from subconscious_mcp.tokens import PREFIX, TokenBook

if TYPE_CHECKING:
    from subconscious_mcp.oauth import Subject, Verifier

log = logging.getLogger(__name__)

METADATA_PATH = "/.well-known/oauth-protected-resource"
LOCAL_USER = "local"
"""Who asks without a token where none is needed."""


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who may ask.

    Attributes:
        name: For the audit log and the rate limit; no two users have the same.
        namespace: Where the user's entries are.
        read_only: Only tools that change nothing.
        expires_at: When this must be proved again, in seconds since the epoch; None for never.
        token_id: Of one of our tokens, which may be revoked; else empty.
    """

    name: str
    namespace: str
    read_only: bool = False
    expires_at: float | None = None
    token_id: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why somebody may not ask, in the words of RFC 6750.

    Attributes:
        error: Empty where nothing was shown: then there is nothing wrong with it.
    """

    status: int
    error: str
    about: str


_NOTHING = Refusal(401, "", "A bearer token is needed.")
_INVALID = Refusal(401, "invalid_token", "The token is not valid here, or not any more.")
_NO_SCOPE = Refusal(403, "insufficient_scope", "The token has no scope of this server.")
_UNREADABLE = Refusal(503, "temporarily_unavailable", "The tokens cannot be read.")


class Access:
    """Decides who may ask, by the settings and the tokens. Safe to call from several threads.

    Args:
        config: The server's settings.

    Raises:
        ConfigError: The settings contradict each other.
    """

    def __init__(self, config: Config) -> None:
        self._mode = config.http_auth
        self._local = User(LOCAL_USER, config.namespace or DEFAULT)
        self._book = TokenBook(config.home)
        self._lock = threading.Lock()
        self._tokens_seen = False
        self._oauth: Verifier | None = None
        self.issuer = config.oauth_issuer if self._mode in ("auto", "oauth") else None
        self.audience = config.oauth_audience
        if self._mode == "oauth" and self.issuer is None:
            raise ConfigError("http_auth is oauth, and there is no oauth_issuer.", "Set SUBCONSCIOUS_OAUTH_ISSUER.")
        if self.issuer is not None:
            if self.audience is None:
                raise ConfigError(
                    "oauth_issuer needs oauth_audience: tokens for other servers must not be taken.",
                    "Set SUBCONSCIOUS_OAUTH_AUDIENCE to this server's address as its clients know it.",
                )
            from subconscious_mcp.oauth import Verifier

            self._oauth = Verifier(self.issuer, self.audience, config.oauth_jwks_url)

    @property
    def is_required(self) -> bool:
        """Whether a token must be shown.

        Once it must, it must for the life of the process: the last token that is revoked must not open the door.
        """
        if self._mode == "none":
            return False
        self._tokens_seen = self._tokens_seen or self._book.exists()
        return self._tokens_seen or self._mode == "token" or self._oauth is not None

    def door(self) -> str:
        """Returns who is let in, for the line that a server begins with."""
        if not self.is_required:
            why = "http_auth is none" if self._mode == "none" else "there is no token"
            return f"for everybody on this machine: {why}"
        if self._mode == "oauth":
            return "with a token of the issuer"
        try:
            with self._lock:
                there = bool(self._book.tokens())
        except StorageError as error:
            # An issuer's tokens do not stand in the file.
            who = "nobody can get in" if self._oauth is None else "only tokens of the issuer count"
            return f"but {who}: {error}"
        if there or self._oauth is not None:
            return "with a token"
        return "but nobody can get in: there is no token yet. Run `subconscious-mcp token create NAME`."

    def may_wait(self, authorization: list[str]) -> bool:
        """Returns whether `who` may wait for the issuer."""
        return self._oauth is not None and bool(authorization) and not self._is_ours(_bearer(authorization[0]))

    def refuse_open_door(self, host: str) -> None:
        """Makes sure that an address other machines can reach is not open to whoever asks.

        Raises:
            ConfigError: It would be.
        """
        if is_loopback(host):
            return
        if self._mode == "none":
            raise ConfigError(
                f"http_auth is none, and {host} is not this machine's own address.",
                "Listen on 127.0.0.1, or set http_auth to auto.",
            )
        if self._oauth is None and not self._book.tokens():
            raise ConfigError(
                f"Whoever reaches {host} could read and change the memory: there is no token.",
                "Run `subconscious-mcp token create NAME` first, or set oauth_issuer, or listen on 127.0.0.1.",
            )

    def who(self, authorization: list[str]) -> User | Refusal:
        """Returns who asks.

        Args:
            authorization: The values of the Authorization headers.
        """
        if not self.is_required:
            return self._local
        if not authorization:
            return _NOTHING
        token = _bearer(authorization[0])
        if len(authorization) > 1 or not token:
            return _INVALID
        return self._by_token(token) if self._is_ours(token) else self._by_oauth(token)

    def _is_ours(self, token: str) -> bool:
        return self._oauth is None or (self._mode != "oauth" and token.startswith(f"{PREFIX}_"))

    def _by_token(self, text: str) -> User | Refusal:
        try:
            with self._lock:
                token = self._book.find(text)
        except StorageError as error:
            log.error("%s", error)
            return _UNREADABLE
        if token is None:
            return _INVALID
        return User(f"{token.name} ({token.id})", token.namespace, token.read_only, token.expires_at, token.id)

    def _by_oauth(self, token: str) -> User | Refusal:
        assert self._oauth is not None
        subject = self._oauth.verify(token)
        return _INVALID if subject is None else _user_of(subject)

    def stamp(self) -> object:
        """Returns something that is another one whenever the tokens were changed."""
        return self._book.stamp()

    def is_revoked(self, user: User) -> bool:
        """Returns whether a user's token is not there any more."""
        if not user.token_id:
            return user.name == LOCAL_USER and self.is_required
        try:
            with self._lock:
                return user.token_id not in self._book.tokens()
        except StorageError:
            return True

    def metadata(self, url: str) -> dict[str, object] | None:
        """Returns what RFC 9728 lets clients ask: who gives tokens for this server. None without OAuth.

        Args:
            url: Where the server listens.
        """
        if self.issuer is None:
            return None
        from subconscious_mcp.oauth import READ_SCOPE, WRITE_SCOPE

        return {
            "resource": self.resource(url),
            "authorization_servers": [self.issuer],
            "scopes_supported": [READ_SCOPE, WRITE_SCOPE],
            "bearer_methods_supported": ["header"],
        }

    def resource(self, url: str) -> str:
        """Returns the server's address as clients know it: the audience where that is one, else `url`."""
        audience = self.audience or ""
        return audience if urllib.parse.urlsplit(audience).scheme in ("http", "https") else url

    def challenge(self, url: str) -> list[str]:
        """Returns what clients that were refused are told of the issuer; nothing without OAuth.

        Args:
            url: Where the server listens.
        """
        if self.issuer is None:
            return []
        from subconscious_mcp.oauth import READ_SCOPE, WRITE_SCOPE

        parts = urllib.parse.urlsplit(self.resource(url))
        metadata = f"{parts.scheme}://{parts.netloc}{METADATA_PATH}{parts.path.rstrip('/')}"
        return [f'scope="{READ_SCOPE} {WRITE_SCOPE}"', f'resource_metadata="{metadata}"']


def _bearer(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    return token if scheme.lower() == "bearer" else ""


def _user_of(subject: Subject) -> User | Refusal:
    from subconscious_mcp.oauth import READ_SCOPE, WRITE_SCOPE

    if not subject.scopes & {READ_SCOPE, WRITE_SCOPE}:
        return _NO_SCOPE
    read_only = WRITE_SCOPE not in subject.scopes
    return User(f"oauth {subject.name}", subject.namespace, read_only, subject.expires_at)
