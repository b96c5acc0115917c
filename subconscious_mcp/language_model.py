"""The language model that writes summaries, where there is one: the client's own, or an endpoint that was configured.

Nothing is asked and nothing leaves this machine unless a client offers its model or `summary_url` is set. What a model
writes is a stranger's text: `cleaned` bounds it, and who asks decides what to do with it.
"""

from __future__ import annotations

import ipaddress
import json
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from subconscious_mcp.config import Config
from subconscious_mcp.errors import LanguageModelError

if TYPE_CHECKING:
    import httpx

ASK_SECONDS = 120.0
"""How long an answer may take: a small model on a processor writes ten words a second."""
CONNECT_SECONDS = 10.0
MAX_REPLY_BYTES = 1 << 20
"""Size above which a reply is refused. Source: own choice; a summary takes a hundredth."""
CHARS_PER_TOKEN = 2
"""For the number of tokens that a model may write: few languages have fewer characters in one, and a summary that is
cut is refused less often than one that is too long."""


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A model that can be asked.

    Attributes:
        where: `client` for the model behind an MCP client, `endpoint` for the one that was configured.
        ask: Returns what it writes to a prompt, of about as many characters as the second argument says at most;
            raises `LanguageModelError`.
    """

    where: str
    ask: Callable[[str, int], str]


def configured(config: Config) -> LanguageModel | None:
    """Returns the model behind `summary_url`, or None where it is not set."""
    url = config.summary_url
    if url is None:
        return None
    return LanguageModel("endpoint", lambda prompt, most: _ask_endpoint(config, url, prompt, most))


def cleaned(text: str, most: int) -> str:
    """Returns a model's text without control characters, surrogates and marks that turn the direction of writing.

    Raises:
        LanguageModelError: Nothing is left, or more than `most` characters.
    """
    kept = "".join(
        one if one == "\n" or unicodedata.category(one)[0] != "C" else " " if one in "\t\r" else "" for one in text
    ).strip()
    if not kept:
        raise LanguageModelError("The model wrote nothing.", "Try again, or another model.")
    if len(kept) > most:
        raise LanguageModelError(
            f"The model wrote {len(kept):,} characters where at most {most:,} are taken.",
            "Try again, or another model.",
        )
    return kept


def max_tokens(most: int) -> int:
    """Returns how many tokens a model may write for about `most` characters."""
    return max(64, most // CHARS_PER_TOKEN)


def is_loopback(host: str) -> bool:
    """Tells whether a host is this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _ask_endpoint(config: Config, url: str, prompt: str, most: int) -> str:
    import httpx

    parts = urlsplit(url)
    host = parts.hostname or ""
    address = url if parts.path.rstrip("/").endswith("/chat/completions") else f"{url.rstrip('/')}/chat/completions"
    body: dict[str, Any] = {"messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens(most)}
    if config.summary_model is not None:
        body["model"] = config.summary_model
    headers = {} if config.summary_api_key is None else {"Authorization": f"Bearer {config.summary_api_key}"}
    timeout = httpx.Timeout(ASK_SECONDS, connect=CONNECT_SECONDS)
    try:
        # No redirects, which could lead the notes elsewhere; and no proxy on the way to this machine.
        with (
            httpx.Client(timeout=timeout, follow_redirects=False, trust_env=not is_loopback(host)) as client,
            client.stream("POST", address, json=body, headers=headers) as reply,
        ):
            if reply.status_code != httpx.codes.OK:
                raise LanguageModelError(
                    f"The model at {host} refused with HTTP status {reply.status_code}.",
                    "Look at summary_url, summary_model and SUBCONSCIOUS_SUMMARY_API_KEY.",
                )
            return _content(_bounded(reply, host), host)
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        # Not the error's text, which may repeat a header.
        raise LanguageModelError(
            f"The model at {host} cannot be asked ({type(error).__name__}).",
            "Look at summary_url, and whether the server there runs.",
        ) from None


def _bounded(reply: httpx.Response, host: str) -> bytes:
    held = bytearray()
    for some in reply.iter_bytes():
        held += some
        if len(held) > MAX_REPLY_BYTES:
            raise LanguageModelError(f"The model at {host} replied with more than a megabyte.", "Try another model.")
    return bytes(held)


def _content(reply: bytes, host: str) -> str:
    try:
        content = json.loads(reply)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError):
        content = None
    if not isinstance(content, str):
        raise LanguageModelError(
            f"The reply of {host} is none of an OpenAI-compatible server.",
            "summary_url takes an address such as http://127.0.0.1:11434/v1.",
        )
    return content
