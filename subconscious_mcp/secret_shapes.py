"""Secrets that tell by themselves: by how they begin, by their form, by where they stand.

Yields spans of a text, for `redaction`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import takewhile

from subconscious_mcp.secret_values import (
    HASH,
    NEAR,
    PIECE,
    PREFIXES,
    PROSE,
    VARIABLES,
    WORDY_PREFIXES,
    compiled,
    has,
    has_letter_and_digit,
    is_abbreviated,
    is_basic,
    is_nothing,
    is_random,
    is_slug,
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
        # Its plain beginning first: where that is not, the pattern need not be compiled.
        plain = "".join(takewhile(lambda c: c not in r"\[(", sign[1:]))
        if plain in text and has(sign[1:], text):
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
    yield from _web_tokens(text)
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


@lru_cache(maxsize=512)
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


def _web_tokens(text: str) -> Iterator[Span]:
    """Yields JSON web tokens: whole ones, and what a cut left of a header that is surely one."""
    start = text.find("eyJ")
    while start >= 0:
        if start and matches("[A-Za-z0-9]", text[start - 1]):
            start = text.find("eyJ", start + 3)
            continue
        # What begins later in the same run of characters ends as this does, so that one look is enough.
        header = compiled(r"[A-Za-z0-9_-]+").match(text, start)
        end = header.end() if header is not None else start + 3
        rest = compiled(r"(?a)\.[\w-]{4,}(?:\.[\w-]*){0,3}").match(text, end)
        known = text.startswith(("hbGci", "0eXAi", "raWQi", "lbmMi"), start + 3)
        if end - start >= 9 and (rest is not None or known):
            end = rest.end() if rest is not None else end
            if not is_abbreviated(text[start:end]):
                yield start, end
        start = text.find("eyJ", end)


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
_ARMOR = r"(?:[\s\"'>|#*]*[A-Z][A-Za-z]+(?:-[A-Z][A-Za-z]+)?: [^\n\\]{0,200}(?:\\n|\n))*"
_BODY = r"(?:=(?! [^=-])|[A-Za-z0-9+/\s\"'\\,|>#*.…:;_→│]|\n-(?!-)){0,16000}"
_BETWEEN = r"(?:\\r|\\n|[\s\"'>|#*+,-]|(?<=\s)[0-9]{1,5} *[\t→|│:])*"
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
        lines = r"Private-(?:Lines: *\d+[ \t]*\r?\n((?:[A-Za-z0-9+/=]+(?:\r?\n|\Z))+)|MAC: *([0-9a-f]{16,}))"
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


# --- places where only secrets stand ------------------------------------------------------------


def _is_given(value: str) -> bool:
    return not is_nothing(value) and value not in ("PASSWORD", "PASS")


def _is_mixed(value: str) -> bool:
    return (has_letter_and_digit(value) or is_random(value)) and not is_nothing(value)


def _is_argument(value: str) -> bool:
    return not is_nothing(value) and value.lower() not in VARIABLES | PROSE


def _is_bearer(value: str) -> bool:
    bare = value.rstrip(".:,")
    return not is_nothing(bare) and (is_random(bare) or (has_letter_and_digit(bare) and not is_slug(bare)))


_URL_REST = r"([^\s\"'<>`)\],;?]+)"
_PLACES = (
    # A password in a URL, also one that holds a slash or a question mark; a token instead of a user.
    (
        "^://&@",
        r"://[^\s/?#:@\"'<>`]*:((?!\d+[/?#])[^\s/?#\"'<>`]*|(?!\d{1,5}[/?#])[^\s\"'<>@`]{1,128})@(?=[\w\[${.-])",
        _is_given,
    ),
    ("^://&@", r"(?:(?<=http)|(?<=https))://([^\s/?#:@\"'<>`]{16,})@(?=[\w\[${.-])", is_random),
    ("^://", r"://[^\s/?#:@\"'<>`]+:(?!\d+[/?#\s])([^\s/?#@\"'<>`]{4,})(?=\s|\Z)", _is_mixed),
    (r"~@[\w.-]{1,253}:\d\d", r"(?<![\w/.:@-])[\w.-]{1,64}:([^\s:@/\"'<>`]{6,128})@[\w.-]{1,253}:\d{2,5}\b", _is_mixed),
    ("~@[tu][cn][pi]x?\\(", r"(?<![\w/.:@-])[\w.-]{1,64}:([^\s@/\"'<>`]{1,128})@(?:tcp|unix)\(", _is_given),
    ("^jdbc:oracle", r"jdbc:oracle:\w+:[^\s/@]+/(\"[^\"]+\"|[^\s@\"']+)@", _is_given),
    ("^sqlplus", r"sqlplus\s+(?:-\w\s+)?[^\s/@]+/(\"[^\"]+\"|[^\s@\"']+)", _is_given),
    ("^hooks.slack", r"hooks\.slack\.com/\w+/(?:T\w+/B\w+/)?" + _URL_REST, _is_given),
    ("^hooks.zapier", r"hooks\.zapier\.com/hooks/catch/" + _URL_REST, _is_given),
    ("^/hooks/", r"/hooks/([a-z0-9]{26})(?![a-z0-9])", _is_given),
    ("^.com/api/", r"(?<=discord|cordapp)\.com/api/(?:v\d+/)?webhooks/\d*/?" + _URL_REST, _is_given),
    ("^webhook", r"webhook\.office\.com/webhookb2/" + _URL_REST, _is_given),
    ("^outlook.office", r"outlook\.office(?:365)?\.com/webhook/" + _URL_REST, _is_given),
    ("^earer", r"(?<=\b[Bb])earer(?:[ \t]+|\+)([A-Za-z0-9._~+/=:%|-]{6,})", _is_bearer),
    ("^BEARER", r"BEARER[ \t]+([A-Za-z0-9._~+/=:%|-]{6,})", _is_bearer),
    ("^asic", r"(?<=\b[Bb])asic(?:[ \t]+|\+)([A-Za-z0-9+/=_-]{6,})", is_basic),
    ("^uth", r"(?<=[Aa])uth(?:[ \t]*=[ \t]*)?\(\s*([\"'])[^\"'\n]*\1\s*,\s*([\"'])([^\"'\n]+)\2", _is_given),
    # .netrc on one line and on several; .pgpass; what a program reads from standard input.
    (
        "^machine&passw",
        r"machine\s+\S+(?:\s+(?:login|account|user|port)\s+\S+){0,3}\s+(?:password|passwd)\s+(\S+)",
        _is_argument,
    ),
    ("^default&password", r"default\s+login\s+\S+\s+password\s+(\S+)", _is_argument),
    ("^login&password", r"(?<![^\s])login[ \t]+\S+[ \t]*\r?\n[ \t]*password[ \t]+(\S+)[ \t]*(?=\r?\n|\Z)", _is_given),
    (
        r"~:(?:\d{4,5}|\*):",
        r"(?<![^\s\"'=(`])[\w.*\\/-]{1,253}:(?:\d{4,5}|\*):[^\s:\"']{1,63}:[^\s:\"']{1,63}:((?:\\.|[^\s:\\\"'])+)"
        r"(?=[\s\"'`)]|\Z)",
        _is_given,
    ),
    (
        r"~\|[^|\n]{0,99}(?:-S\b|-std|chp|--with-t|--std)",
        r"\b(?:echo|printf)(?:[ \t]+-\w+|[ \t]+[\"']%s(?:\\n)?[\"'])?[ \t]+[\"']?([^\s|;&\"']{1,300})[\"']?[ \t]*\|"
        r"[ \t]*[^|\n]{0,80}?(?:-S\b|--password-stdin|chpasswd|--with-token|--stdin)",
        _is_given,
    ),
    ("<<<", r"(?:-S\b|--password-stdin|--with-token)[^\n]{0,80}?<<<[ \t]*[\"']?([^\s\"']+)", _is_given),
    ("^net user", r"net user \S+ ([^\s/*]\S*)", _is_mixed),
    ("^/p:", r"(?<=[ \t])/p:([^\s=]+)(?!\S)", _is_mixed),
    ("^密", r"密[码碼钥鑰][ \t]*(?:[:：=＝]|是|为)[ \t]*([!-~]{6,})", _is_mixed),
    ("^パスワード", r"パスワード[ \t]*(?:[:：=＝]|は)[ \t]*([!-~]{6,})", _is_mixed),
)
"""Places, each with its sign (see `signed`) and what the value there must be."""


def places(text: str) -> Iterator[Span]:
    """Yields what stands where only a secret stands: in a URL, a header, a file of passwords."""
    for sign, pattern, holds in _PLACES:
        for found in signed(sign, pattern, text):
            if holds(found[found.lastindex or 0]):
                yield found.span(found.lastindex or 0)


_TOOLS = (
    "curl",
    "http",
    "mysql",
    "mariadb",
    "sshpass",
    "redis-cli",
    "mongo",
    "twine",
    "ldap",
    "sqlcmd",
    "zip",
    "openssl",
    "smbclient",
    "lftp",
)
_WITH_LOGIN = ("docker", "podman", "nerdctl", "registry", "skopeo", "az", "oc", "argocd")
_LETTERS = {"curl": "uU", "http": "a", "redis-cli": "a", "sqlcmd": "P", "zip": "P", "openssl": ""}
_LETTERS |= {"smbclient": "U", "lftp": "u"}
_BEHIND_USER = {"curl": ":", "http": ":", "smbclient": "%", "lftp": ","}
_SHORT = (
    r"(?<=[ \t])-([A-Za-z])([= \t]*)([\"']?)([^\s\"']+)\3|(?<=[ \t])--(?:proxy-)?user[= ]([\"']?)([^\s\"']+)\5"
    r"|\bpass:([^\s\"']+)"
)


def commands(text: str) -> Iterator[Span]:
    """Yields the values of short flags that mean a password to a known command only."""
    for tool in _TOOLS + _WITH_LOGIN if " -" in text or "pass:" in text else ():
        done = start = 0
        while (start := text.find(tool, max(start, done))) >= 0:
            origin, start = start, start + len(tool)
            called = compiled(r"[ \t]+login[ \t]" if tool in _WITH_LOGIN else r"\w*[ \t]").match(text, start)
            if called is None or (origin and matches(r"[\w-]", text[origin - 1])):
                continue
            done = text.find("\n", called.end(), called.end() + 4 * NEAR)
            done = done if done >= 0 else called.end() + 4 * NEAR
            for flag in compiled(_SHORT).finditer(text, called.end() - 1, done):
                yield from _short_flag(text, flag, tool)


def _short_flag(text: str, flag: re.Match[str], tool: str) -> Iterator[Span]:
    start, end = flag.span(4 if flag[1] else flag.lastindex or 0)
    if flag[1] and flag[1] not in _LETTERS.get(tool, "pw"):
        return
    if flag[2] and tool in ("mysql", "mariadb") and not has_letter_and_digit(flag[4]):
        return  # `-p database`
    if tool in _BEHIND_USER or flag[6]:
        # `user:password`; a user alone is none.
        user, sign, _ = text[start:end].partition(_BEHIND_USER.get(tool, ":"))
        start += len(user) + len(sign)
    if not is_nothing(text[start:end]) and text[start] != "-":
        yield start, end
