"""Secrets that tell by themselves: tokens with a known beginning or form, and private keys.

Yields spans of a text, for `redaction`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from subconscious_mcp.secret_values import (
    HASH,
    PIECE,
    PREFIXES,
    WORDY_PREFIXES,
    compiled,
    has,
    has_letter_and_digit,
    is_abbreviated,
    is_spoken,
    is_yours,
    matches,
    mixture,
    words,
)

Span = tuple[int, int]

_LENGTHS = dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "npm_"), 36)
_LENGTHS |= {"github_pat_": 82, "glpat-": 20, "AIza": 35}
"""How many characters follow, where that is fixed: what is missing was wrapped to the next line."""
_BASE64 = words("fm1r_ fm1a_ fm2_ glc_ sntrys_ sntryu_ ATATT3 ATCTT3")
_SHAPES = (
    ("^eyJ", r"eyJ(?:[\w-]{6,}\.[\w-]{4,}(?:\.[\w-]*){0,3}|(?:hbGci|0eXAi|raWQi|lbmMi)[\w-]{6,})"),  # JSON web tokens
    ("~-us[0-9]", r"[0-9a-f]{32}-us[0-9]{1,2}"),  # Mailchimp
    ("~-[0-9a-f]{8}-[0-9a-f]{8}", r"[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}(?![\w-])"),  # Mailgun
    (r"~:[\w-]{35}", r"(?:bot)?[0-9]{8,12}:(?![0-9a-f]+\b)[\w-]{35}(?![\w-])"),  # Telegram
    (r"~:AA[\w-]{10}", r"(?:bot)?[0-9]{6,12}:AA[\w-]{10,}"),  # the same, cut
    (r"~\.[\w-]{6,7}\.[\w-]{20}", r"[MNO][\w-]{22,27}\.[\w-]{6,7}\.[\w-]{20,}"),  # Discord
    ("^mfa.", r"mfa\.[\w-]{40,}"),
    (".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{10,}"),  # Terraform Cloud
    ("^pat", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{16,}"),  # Airtable
    ("^key", r"key[A-Za-z0-9]{14}(?![A-Za-z0-9])"),  # the same, older
    ("^AKIA", r"AKIA(?:[A-Z0-9]{16}(?![A-Za-z0-9])|(?=[A-Z]*[0-9])[A-Z0-9]{6,})"),
    ("^ASIA", r"ASIA[A-Z2-7]{16}(?!\w)"),  # AWS
    ("^SK", r"SK[0-9a-f]{20,32}(?![A-Za-z0-9])"),  # Twilio
    ("^SG.", r"SG\.[\w-]{16,}(?:\.[\w-]+)?"),  # SendGrid
    (r"~Q~[\w~.-]{20}", r"[\w~.-]{3}[0-9]Q~[\w~.-]{20,}"),  # Azure
    ("^v1.0-", r"v1\.0-[0-9a-f]{24}-[0-9a-f]{40,}"),  # Cloudflare
    ("NRAL", r"[0-9a-f]{36}NRAL"),  # New Relic
    ("^IQoJb3JpZ2lu", r"IQoJb3JpZ2lu[\w+/=%-]{20,}"),  # AWS sessions
    ("^FwoGZXIvYXdz", r"FwoGZXIvYXdz[\w+/=%-]{20,}"),
    ("^LS0tLS1CRUdJTi", r"LS0tLS1CRUdJTi(?!BDRVJU|BQVUJM)[A-Za-z0-9+/]{20,}={0,2}"),  # a key block in base64
)
"""Tokens that are known by their form, each with its sign (see `signed`)."""


def signed(sign: str, pattern: str, text: str) -> Iterator[re.Match[str]]:
    """Yields the matches of a pattern, if its sign is in the text.

    A sign is what must be in the text: `^` and what every match begins with; or `~` and a pattern
    that begins with a plain character, so that it is looked for fast; or plain texts with `&` between.
    """
    if sign.startswith("~"):
        if has(sign[1:], text):
            yield from compiled(pattern).finditer(text)
        return
    first, *others = sign.split("&")
    if not all(other in text for other in others):
        return
    if not first.startswith("^"):
        if first in text:
            yield from compiled(pattern).finditer(text)
        return
    start = text.find(first[1:])
    while start >= 0:
        found = compiled(pattern).match(text, start)
        if found is not None:
            yield found
        start = text.find(first[1:], start + 1 if found is None else max(start + 1, found.end()))


def shaped_tokens(text: str) -> Iterator[Span]:
    """Yields the tokens of providers, and bare secret keys of AWS."""
    for prefix in PREFIXES | WORDY_PREFIXES:
        yield from _prefixed(text, prefix)
    for sign, pattern in _SHAPES:
        for found in signed(sign, r"(?a)(?<![A-Za-z0-9])" + pattern, text):
            doubtful = sign == "^key" and (found[0].isalpha() or found[0].islower())
            if not doubtful and not is_abbreviated(found[0]) and not _is_inside_base64(text, found.start()):
                yield found.span()
    yield from _aws_secrets(text)


def _prefixed(text: str, prefix: str) -> Iterator[Span]:
    start = text.find(prefix)
    while start >= 0:
        end = start + len(prefix)
        body = compiled(r"[A-Za-z0-9_\-]{1,99}").match(text, end)
        inside = (start > 0 and matches("[A-Za-z0-9]", text[start - 1])) or _is_inside_base64(text, start)
        if body is not None and not inside and _is_body(body[0], prefix):
            parts = (
                r"[A-Za-z0-9_\-+/=]+" if prefix in _BASE64 else r"[A-Za-z0-9_\-]+(?:[.~+/=$][A-Za-z0-9_\-]{6,})*={0,2}"
            )
            whole = compiled(parts).match(text, end)
            end = whole.end() if whole is not None else body.end()
            more = compiled(r"\r?\n[ \t>|#*\"'+]*([A-Za-z0-9_\-]+)").match(text, end)
            if more is not None and len(body[0]) + len(more[1]) == _LENGTHS.get(prefix):
                end = more.end()
            yield start, end
        start = text.find(prefix, end)


def _is_inside_base64(text: str, start: int) -> bool:
    """Returns whether what begins here is a part of a long run of base64, as of an image."""
    before = text[max(0, start - 14) : start]
    return before[-1:] in ("+", "/") and matches("[A-Za-z0-9+/]{14}", before) and mixture(before) > 0.2


def _is_body(body: str, prefix: str) -> bool:
    body = compiled(r"(?:api|oat|admin|sid)\d\d-|v\d-").sub("", body, count=1)
    if len(set(body)) < 5 or is_yours(body):
        return False
    run = max(compiled(r"[A-Za-z0-9]+").findall(body), key=len, default="")
    if prefix not in WORDY_PREFIXES:
        return len(body) >= 6 and (len(run) >= 20 or has("[0-9]", body) or mixture(body) > 0.3)
    # Without a separator, or in common words, the prefix alone says little.
    least = 16 if prefix.isalnum() or prefix in ("sk-", "sk_", "key-", "re_", "secret_") else 8
    mixed = has_letter_and_digit(run) and not (matches(PIECE, run) and is_spoken(run))
    if prefix.isalnum():
        return mixed and len(run) >= least
    return len(run) >= least and (mixed or mixture(run) > 0.35 or len(run) >= 30)


def _aws_secrets(text: str) -> Iterator[Span]:
    """Yields bare secret keys of AWS: forty characters of base64 with nothing else to tell them by."""
    pattern = r"(?<![A-Za-z0-9+/_.~@%$-])[A-Za-z0-9/+]{40}(?![A-Za-z0-9+/=_@-]|\.\w)"
    for found in compiled(pattern).finditer(text):
        value = found[0]
        mixed = mixture(value)
        known = has("[a-z]", value) and has("[A-Z]", value) and (has("[0-9]", value) or mixed >= 0.5)
        if not known or mixed < 0.36 or matches(HASH, value):
            continue
        # Not the first or the last line of wrapped base64, nor what an image begins with.
        before, after = text[max(0, found.start() - 64) : found.start()], text[found.end() : found.end() + 64]
        if not has(r"[A-Za-z0-9+/]{48}\r?\n[ \t]*$|base64,$", before) and not has(
            r"^\r?\n[ \t]*[A-Za-z0-9+/]{48}", after
        ):
            yield found.span()


# --- private keys -------------------------------------------------------------------------------

_ENDING = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_ARMOR = r"(?:[\s\"'>|#*]*[A-Z][A-Za-z]+(?:-[A-Z][A-Za-z]+)?: [^\n\\]{0,200}(?:\\n)?)*"
_BODY = r"(?:=(?! [^=-])|[A-Za-z0-9+/\s\"'\\,|>#*.…:;_→│]|\n-(?!-)){0,16000}"
_BETWEEN = r"(?:\\r|\\n|[\s\"'>|#*+,-]|(?<=\s)[0-9]{1,5}[ \t]*[\t→|│:])*"
"""What stands between the lines of a block: quotes, marks of comments and of differences, numbers of lines."""
_KEY_SIGNS = ("IBAA", "IBAD", "MC4C", "MHcC", "MHQC", "MIGH", "MIGk", "b3Bl")
_KEY_STARTS = (
    r"(?<![A-Za-z0-9+/])(?:MII[A-Za-z0-9+/]{3}IBA[AD]|MC4CAQAwBQYDK2V|MHcCAQEEI|MHQCAQEEI|MIGHAgEAMBMGBy|MIGkAgEBBD"
    r"|b3BlbnNzaC1rZXktdjE)(?=[A-Za-z0-9+/]{8})"
)
"""How the base64 of private keys begins, in the formats PKCS 1, PKCS 8, SEC 1 and OpenSSH."""


def key_blocks(text: str) -> Iterator[Span]:
    """Yields private keys: whole blocks, and what is left of one that was cut."""
    for found in compiled("-{4,5} ?BEGIN" + _ENDING).finditer(text) if "PRIVATE KEY" in text else ():
        whole = compiled(_ARMOR + _BODY + "-{4,5} ?END" + _ENDING).match(text, found.end())
        yield found.start(), whole.end() if whole is not None else _end_of_cut(text, found.end())
    done = 0
    for found in compiled(_KEY_STARTS).finditer(text) if any(sign in text for sign in _KEY_SIGNS) else ():
        if found.start() >= done:
            done = _end_of_cut(text, found.start())
            yield found.start(), done
    if "Private-" in text:  # PuTTY
        lines = r"Private-(?:Lines: *\d+\s+((?:[A-Za-z0-9+/=]+\s*)+?)(?=Private-MAC|\Z|\n\n)|MAC: *([0-9a-f]{16,}))"
        yield from (found.span(found.lastindex or 0) for found in compiled(lines).finditer(text))
    if '"kty"' in text:  # JSON web keys
        members = r"\"(?:d|p|q|dp|dq|qi|k)\"\s{0,9}:\s{0,9}\"([A-Za-z0-9_-]{16,})\"?"
        yield from (found.span(1) for found in compiled(members).finditer(text))


def _end_of_cut(text: str, start: int) -> int:
    """Returns the end of a block that has none: behind its last line of base64."""
    lines = compiled(_ARMOR + "(?:" + _BETWEEN + r"[A-Za-z0-9+/]{16,}={0,2}(?![A-Za-z0-9_(.]))*").match(text, start)
    end = lines.end() if lines is not None else start
    last = compiled(_BETWEEN + r"([A-Za-z0-9+/]{6,}={0,2})(?![A-Za-z0-9_(.])").match(text, end)
    if last is not None and (has("[0-9+/]", last[1]) or mixture(last[1]) > 0.3):
        return last.end()
    return end
