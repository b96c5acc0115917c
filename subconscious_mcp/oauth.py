"""OAuth 2.1, the resource server's side: is this access token one of the issuer's, and for this server?

The issuer's keys are fetched from the issuer alone, and kept. Only signatures that need a private key are
taken; the token's issuer, audience and times must be right. The only module that imports PyJWT.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jwt

from subconscious_mcp.errors import ConfigError
from subconscious_mcp.http_names import is_loopback

log = logging.getLogger(__name__)

# RFC 7518 and RFC 8037; no HMAC, whose key would be the public one, and no "none".
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
READ_SCOPE = "memory:read"
WRITE_SCOPE = "memory:write"
"""Scopes of an access token. Whoever may write may read."""
LEEWAY_SECONDS = 30
"""How far the clocks of issuer and server may be apart."""
KEYS_SECONDS = 3600.0
"""How long keys are used before they are fetched again."""
REFETCH_SECONDS = 60.0
"""Least time between two fetches, whatever keys the tokens name."""
FETCH_SECONDS = 5.0
MAX_FETCHED_BYTES = 256 * 1024
MAX_KEYS = 64
MAX_TOKEN_CHARS = 16_384


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom an access token stands for.

    Attributes:
        name: The issuer's id of the user.
        namespace: Of that user's entries; made from issuer and id, so no two users have the same.
        scopes: What the token allows.
        expires_at: Seconds since the epoch.
    """

    name: str
    namespace: str
    scopes: frozenset[str]
    expires_at: float


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def fetch(url: str) -> Any:
    """Returns the JSON behind an address; follows no redirect.

    Raises:
        OSError: Nobody answers, or not with 200.
        ValueError: It is no JSON, or too much of it.
    """
    opener = urllib.request.build_opener(_NoRedirects)
    with opener.open(urllib.request.Request(url, headers={"Accept": "application/json"}), timeout=FETCH_SECONDS) as got:  # noqa: S310
        content = got.read(MAX_FETCHED_BYTES + 1)
    if len(content) > MAX_FETCHED_BYTES:
        raise ValueError("too large")
    return json.loads(content)


class Verifier:
    """Checks access tokens. Safe to call from several threads; the first call, and some later ones, fetch keys.

    Args:
        issuer: The authorization server, as its tokens name it.
        audience: This server, as its tokens name it.
        jwks_url: Where the issuer's keys are; by default where its metadata says, on the issuer's own host.
        clock: Returns seconds that only grow.

    Raises:
        ConfigError: An address is neither https nor on this machine.
    """

    def __init__(
        self,
        issuer: str,
        audience: str,
        jwks_url: str | None = None,
        *,
        fetch: Callable[[str], Any] = fetch,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, url in (("oauth_issuer", issuer), ("oauth_jwks_url", jwks_url)):
            if url is not None and not _is_safe(url):
                raise ConfigError(f"{name} takes an https address.", "Plain http is taken on this machine only.")
        self._issuer = issuer
        self._audience = audience
        self._jwks_url = jwks_url
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched: float | None = None
        self._tried: float | None = None

    def verify(self, token: str) -> Subject | None:
        """Returns whom a token stands for, or None where it must not be taken."""
        try:
            if len(token) > MAX_TOKEN_CHARS:
                return None
            header = jwt.get_unverified_header(token)
            key = self._key(header.get("kid"))
            if key is None or header.get("alg") not in ALGORITHMS:
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                issuer=self._issuer,
                audience=self._audience,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
            # The kind says why; the message may repeat a claim.
            log.info("An access token was refused: %s.", type(error).__name__)
            return None
        return self._subject(claims)

    def _subject(self, claims: dict[str, Any]) -> Subject | None:
        name = claims["sub"]
        if not isinstance(name, str) or not name.strip():
            return None
        # `scope` as RFC 9068 has it; some issuers send a list, under `scp`.
        given = claims.get("scope", claims.get("scp", ""))
        scopes = given.split() if isinstance(given, str) else given if isinstance(given, list) else []
        digest = hashlib.sha256(f"{self._issuer}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()
        return Subject(name, f"oauth-{digest[:32]}", frozenset(map(str, scopes)), float(claims["exp"]))

    def _key(self, key_id: Any) -> jwt.PyJWK | None:
        key, now = self._known(key_id), self._clock()
        if key is not None and self._fetched is not None and now - self._fetched < KEYS_SECONDS:
            return key
        # Who is not the one to fetch goes on with what there is: an issuer that is slow, and tokens that name keys
        # without end, must not hold up the others. Only the first ones wait, when there is nothing yet.
        if not self._lock.acquire(blocking=self._tried is None or self._fetched is None):
            return key
        try:
            if self._tried is None or now - self._tried >= REFETCH_SECONDS:
                self._tried = now
                self._fetch_keys(now)
            return self._known(key_id)
        finally:
            self._lock.release()

    def _known(self, key_id: Any) -> jwt.PyJWK | None:
        if key_id is None and len(self._keys) == 1:
            # An issuer with one key need not name it.
            return next(iter(self._keys.values()))
        return self._keys.get(key_id) if isinstance(key_id, str) else None

    def _fetch_keys(self, now: float) -> None:
        try:
            found = self._fetch(self._jwks_url or self._discovered())
            keys = {}
            for raw in list(found["keys"])[:MAX_KEYS]:
                if raw.get("use", "sig") != "sig" or raw.get("kty") == "oct":
                    continue
                try:
                    keys[str(raw.get("kid", ""))] = jwt.PyJWK(raw)
                except (jwt.PyJWTError, ValueError, TypeError, KeyError):
                    # A kind of key that is not known here must not cost the others.
                    continue
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            # What is there is used on: the issuer may be away for a while.
            log.warning("The keys of %s cannot be fetched: %s.", self._issuer, type(error).__name__)
            return
        self._keys, self._fetched = keys, now

    def _discovered(self) -> str:
        """Returns where the issuer's metadata says that its keys are."""
        parts = urllib.parse.urlsplit(self._issuer)
        origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
        # RFC 8414 puts the name before the issuer's path, OpenID Connect behind it.
        for url in (
            f"{origin}/.well-known/oauth-authorization-server{path}",
            f"{origin}{path}/.well-known/openid-configuration",
        ):
            try:
                found = self._fetch(url)
                if found["issuer"] != self._issuer:
                    continue
                keys_url = str(found["jwks_uri"])
            except (OSError, ValueError, TypeError, KeyError):
                continue
            keys = urllib.parse.urlsplit(keys_url)
            if (keys.scheme, keys.netloc) == (parts.scheme, parts.netloc):
                return keys_url
            log.warning("The keys of %s lie on another host; set oauth_jwks_url to take them.", self._issuer)
        raise ValueError("no metadata")


def _is_safe(url: str) -> bool:
    parts = urllib.parse.urlsplit(url)
    if not parts.hostname:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))
