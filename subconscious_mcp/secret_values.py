"""What the values and the names of secrets look like, and what looks like them and is none.

Pure functions on one word each, for `redaction`. Patterns are strings, compiled at their first use.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache, wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """As `re` does itself; but this cache is read in a fifth of the time."""
    return re.compile(pattern)


MARK = "[redacted]"
NEAR = 300
"""How far a rule looks around, in characters."""
FAR = 8192
"""How far a value may reach, in characters, where nothing closes it."""
_MAX_NAME = 100


def words(text: str) -> frozenset[str]:
    """Returns the words of a text; lists of words are easier to read and to change so."""
    return frozenset(text.split())


def remembered(decide: Callable[..., bool]) -> Callable[..., bool]:
    """Keeps what was decided on short values: the texts that take long say the same again and again."""
    cached = lru_cache(maxsize=1024)(decide)
    return wraps(decide)(lambda value, *more: (cached if len(value) <= NEAR else decide)(value, *more))


PREFIXES = words(
    "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- gldt- glrt- glrtr- glptt- glsoat- glcbt- glft- glimt- glagent- "
    "gloas- glffct- sk-ant- sk-proj- sk-svcacct- sk-admin- sk-None- sk-or- sk-lf- xoxb- xoxa- xoxp- xoxr- xoxs- "
    "xoxc- xoxd- xoxo- xoxe- xoxe. xapp- sk_live_ sk_test_ rk_live_ rk_test_ whsec_ pypi-AgE dckr_pat_ dckr_oat_ "
    "dop_v1_ doo_v1_ dor_v1_ shpat_ shpca_ shppa_ shpss_ shprt_ lin_api_ lin_oauth_ figd_ figdr_ sntrys_ sntryu_ "
    "glsa_ glc_ hvs. hvb. hvr. GOCSPX- ya29. dp.pt. dp.st. dp.sa. dp.ct. dp.scim. dp.audit. ops_eyJ AGE-SECRET-KEY-1 "
    "sbp_ sb_secret_ sq0atp- sq0csp- PMAK- pscale_tkn_ pscale_pw_ pscale_oauth_ tskey- NRAK- NRJS- NRII- NRIQ- "
    "CFPAT- HRKU- cfut_ cfat_ fm1r_ fm1a_ fm2_ nvapi- lsv2_pt_ lsv2_sk_ tgp_v1_ pcsk_ tvly- xkeysib- xsmtpsib- "
    "rubygems_ CCIPAT_ CCIPRJ_ bkua_ dt0c01. dt0s01. dt0s16. shippo_live_ shippo_test_ duffel_live_ duffel_test_ "
    "pat-na1- pat-eu1- api_org_ wandb_v1_ esecret_ apify_api_ p8e- AIza ATATT3 ATCTT3 ATBB AKCp "
    "access_token$production$ 1//0"
)
"""What stands before nothing but random characters."""
WORDY_PREFIXES = words(
    "sk- sk_ secret_ ntn_ xai- pplx- r8_ pul- fc- csk- sgp_ hf_ npm_ key- rnd_ gsk_ e2b_ jina_ squ_ sqp_ sqa_ nfp_ "
    "nfo_ nfu_ nfc_ nfb_ fo1_ re_ tfp_ rdme_ vcp_ vck_ vci_ vca_ vcr_ pnu_ PAT- phx_ cio EAAA LTAI dapi EZAK "
    "EZTK"
)
"""What ordinary names begin with too: only a long random run behind it makes it a secret."""
_NOTHING = words(
    "none null nil undefined true false yes no on off str string strings bytes bytearray int integer number bool "
    "boolean float double any unknown never void object array list dict map text varchar char uuid buffer optional "
    "required hidden masked redacted removed filtered omitted censored encrypted empty unset missing present absent "
    "set invalid valid expired disabled enabled value values val var variable foo bar baz sample default changeme "
    "change-me change_me changeit fixme tbd n/a na secretstr secretbytes base64 utf8 utf-8 bcrypt argon2 argon2id "
    "scrypt pbkdf2 md5 sha1 sha256 sha512 hs256 rs256 es256 ed25519 aes256 oauth oauth2 x509 rsa hex prompt stdin "
    "self this new await function lambda not async return include same-origin omit inherit"
)
"""What is written where a secret would stand and is none: types, states, algorithms, fillers.

`changeme` is among them: a word that everybody knows hides nothing."""
VARIABLES = words(
    "value val x y s t p v k args arg data input output expected actual result res raw other new old current cur "
    "prev next item line node obj user config request req response resp env environ text str match default token key "
    "secret password passwd pwd pass pw credential credentials auth tok passphrase creds username split keyfile "
    "certfile parts found entry"
)
PROSE = words(
    "a an the is are was be been must should can cannot could may might will would do does not no and or to for from "
    "in into of on off with without by as at if when that this it its your you my our we please has have had which "
    "who via flag option argument parameter value instead before after required takes reads uses used than then so "
    "but authentication reset rotation manager field fields only support options flags arguments parameters requires "
    "needs expects accepts given provided missing also both policy pairs"
)
_FILLER = r"[*•●xX.#?_~\-…·=\s]*"
_LEFT_OUT = r"\*{3,}|•{3,}|●{3,}|x{4,}|X{4,}|\.{3,}|…+"
_YOURS = ("your", "insert", "replace", "enter", "put", "add", "example", "placeholder", "dummy", "todo", "change")
_REFERENCE = (
    r"\$\{+[^}]*\}+|\$\([\s\S]*|\$(?:env:)?[A-Za-z_]\w*(?:(?:\.|->)\w+|\[[^\]]*\])*|\$[0-9@*]|\{+[^}]*\}+|<[^<>]*>?"
    r"|\[[^\]]*\]|#\{[\s\S]*\}|`[\s\S]*|%\w+%|%[sdrvq](?:\W+%[sdrvq])*|%\(\w+\)[sd]|@[\w.]+@|@[\w.]+\([\s\S]*"
    r"|!(?:Ref|Sub|GetAtt|ImportValue|secret|vault|env|env_var|include)\b[\s\S]*|:[a-z]+:[a-z]*:?|#[0-9a-fA-F]{3,8}"
    r"|(?:op|vault|ref\+\w+|arn|env|file|ssm|keyvault|secretsmanager|sops):[\s\S]*|projects/[^/]+/secrets/[\s\S]*"
    r"|[a-zA-Z][\w+.-]*://[\s\S]*|[\^~]\d+(?:\.\d+)*"
)
_PATH = (
    r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w.@ /\\+-]*|[\w.@/\\-]+\.(?:pem|key|crt|cer|json|txt|env|p12|pfx|jks|ppk|pub|ya?ml"
    r"|toml|ini|cfg|conf|py|js|ts|go|rb|sh|md|asc|gpg|db|log|html?)"
)
HASH = r"(?:0x)?[0-9a-fA-F]{6,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_DIGEST = r"(?:sha\d+|SHA\d+|md5|h1|blake\w+)[-:=]"
_NUMBER = r"v?[0-9][0-9.,:_/xTZ+-]*[a-zA-Z%]{0,3}"
_WORD = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+"
PIECE = r"[A-Z]?[a-z]*(?:[A-Z][a-z]*|[0-9]{1,2}[A-Z][a-z]+)*[0-9]{0,2}|[A-Z]+[a-z]*[0-9]{0,2}|[0-9]+"


def matches(pattern: str, value: str) -> bool:
    """Returns whether a whole value is of a pattern."""
    return compiled(pattern).fullmatch(value) is not None


def has(pattern: str, value: str) -> bool:
    """Returns whether a pattern is anywhere in a value."""
    return compiled(pattern).search(value) is not None


def is_masked(value: str) -> bool:
    """Returns whether nothing but a mark is there."""
    return MARK in value and not value.replace(MARK, "").strip(" \t\r\n\"'`,;:.&=")


@remembered
def is_nothing(value: str) -> bool:
    """Returns whether a value is empty, a filler, a type, or a reference to where the secret is."""
    bare = value.strip(" \t\r\n\"'`,;")
    if not bare or bare.lower().rstrip(".!?") in _NOTHING or is_masked(value):
        return True
    if len(bare) > NEAR:
        return False
    if len(bare) < 4 and not any(map(str.isalnum, bare)):
        return True
    return matches(_FILLER, bare) or is_yours(bare) or is_reference(bare) or is_abbreviated(bare)


def is_reference(value: str) -> bool:
    """Returns whether a value only tells where the secret is: `${TOKEN}`, `op://vault/token`."""
    if value[0] not in "$%{<[#`@!^~:" and ":" not in value and not value.startswith("projects/"):
        return False
    return matches(_REFERENCE, value.rstrip("."))


def is_yours(value: str) -> bool:
    """Returns whether a value only says what belongs there: `your-token-here`, `required|min:8`."""
    if value.startswith(("required|", "nullable|", "sometimes|", "string|")):
        return True
    parts = value.lower().replace("-", " ").replace("_", " ").split()
    if not parts or not all(part.isalpha() and part.isascii() for part in parts):
        return False
    return parts[0].startswith(_YOURS) or parts[-1] in ("here", "placeholder", "example", "value")


def is_abbreviated(value: str) -> bool:
    """Returns whether a value is a secret of which next to nothing is left: `sk-ant-...`."""
    shown = compiled(_LEFT_OUT).sub("", value)
    if shown == value:
        return False
    prefix = max((known for known in PREFIXES if shown.startswith(known)), key=len, default="")
    return len(shown) - len(prefix) < 8


def mixture(value: str) -> float:
    """Returns how often the kind of character changes, 0..1: about 0.65 in random base64, 0.3 in CamelCase."""
    return (len(compiled(r"[a-z]+|[A-Z]+|[0-9]+|[^a-zA-Z0-9]+").findall(value)) - 1) / max(len(value) - 1, 1)


def has_letter_and_digit(value: str) -> bool:
    """Returns whether a value holds one of each."""
    return has(r"[0-9]", value) and has(r"[A-Za-z]", value)


def is_slug(value: str) -> bool:
    """Returns whether a value is made of words and numbers, as the names of things are."""
    pieces = compiled(r"[-_/\\.: @,()\[\]]+").split(value[:64])
    return all(matches(PIECE, piece) and is_spoken(piece) for piece in pieces)


def is_spoken(value: str) -> bool:
    """Returns whether letters and their cases change as in words and in CamelCase, not at random."""
    if len(value) < 8:
        return True
    humps = compiled(_WORD).findall(value)
    upper = len(compiled("[A-Z]").findall(value)) / len(value)
    if 0.3 <= upper <= 0.85 and len(compiled("[a-z][A-Z]").findall(value)) > 1:
        return False
    if any(has("[b-df-hj-np-tv-xz]{5}", hump) for hump in humps) or sum(len(hump) < 3 for hump in humps) > 2:
        return False
    return value.isalpha() or mixture(value) < 0.45


def is_path(value: str) -> bool:
    """Returns whether a value is the name of a file."""
    return matches(_PATH, value) and mixture(value) < 0.45


def is_random(value: str) -> bool:
    """Returns whether a value is nothing that people name things with."""
    if has(r"[\[\](){}<>\\|^]", value):
        return False  # a regular expression, a template
    if " " in value:
        return len(value) >= 20 and mixture(value) > 0.45
    if len(value) < 6 or matches(_NUMBER, value) or compiled(_DIGEST).match(value) or is_path(value):
        return False
    if is_basic(value):
        return True
    return not is_slug(value) and (has_letter_and_digit(value) or (len(value) >= 12 and len(set(value)) > 8))


def is_basic(value: str) -> bool:
    """Returns whether a value is base64 of `user:password`."""
    bare = value.rstrip("=")
    if not 8 <= len(bare) <= FAR or not matches(r"[A-Za-z0-9+/]+", bare):
        return False
    import binascii

    try:
        plain = binascii.a2b_base64(bare + "=" * (-len(bare) % 4))
    except ValueError:
        return False
    return re.fullmatch(rb"[\x20-\x7e]*:[\x20-\x7e]*", plain) is not None


def is_prose(value: str) -> bool:
    """Returns whether a value is a piece of a sentence."""
    spoken = compiled(r"[a-z']{2,}|a").findall(value.lower())
    if " " not in value.strip() or has(r"[A-Za-z][0-9]|[0-9][A-Za-z]", value):
        return False
    return len(spoken) > 1 and not (PROSE | VARIABLES).isdisjoint(spoken)


# --- names --------------------------------------------------------------------------------------

# How sure a name makes that its value is secret, from sure downwards; of the last three the value has parts.
PASSWORD, SURE, GUESSED, LIKELY, RANDOM, MAYBE = "password", "sure", "guessed", "likely", "random", "maybe"
NONE = ""
HEADER, COOKIE, PAIR = "header", "cookie", "pair"
ARGUMENTS = (PASSWORD, SURE, GUESSED, LIKELY, RANDOM, MAYBE)
_BEHIND = words(
    "base prod production dev development staging stage test testing live old new primary secondary value plain raw "
    "b64 base64 hex enc encoded local default main plaintext text"
)
"""Words that may follow the secret word: SECRET_KEY_BASE, TOKEN_PROD."""
_HARMLESS = words(
    "public publishable primary foreign sort partition cache hot arrow row group index lookup dict map object json "
    "sorting unique composite natural surrogate idempotency i18n translation locale message react list column field "
    "eos bos pad unk sep mask cls stop special next prev previous first last current cur page continuation cancel "
    "cancellation end start begin per max min num cost price each one single image audio text word input output "
    "completion prompt reasoning total count pagination cursor sync change routing shard hash range aggregate config "
    "feature metric tag label shortcut keyboard any no non not bypass by on press modifier query pub gpg pgp"
)
"""Kinds of keys and tokens that are no secrets: PRIMARY_KEY, next_token."""
_SECRET_KINDS = words(
    "api access secret private account auth encryption signing master shared service webhook ssh rsa session app "
    "application client consumer license licence deploy deployment admin root user bot refresh id bearer security "
    "personal registry github gitlab npm pypi slack discord telegram aws azure gcp google openai anthropic stripe "
    "hmac jwt fernet decryption encrypt decrypt signature subscription ingest integration project server db redis "
    "mongo mysql postgres oauth oauth2 csrf xsrf device push vault login identity management ec dsa ed25519 "
    "instrumentation sas cloudflare heroku datadog dd twilio sendgrid mailgun sentry hf huggingface docker dockerhub "
    "ci cd circle travis jenkins sonar codecov nuget twine cargo rubygems tf vercel netlify supabase linear notion "
    "figma airtable jira confluence atlassian shopify square paypal notary upload publish read write authorization "
    "authentication authenticity remember reset verification invite"
)
_OF_KEYS_DOUBTFUL = words(
    "id shared registry root client server session device login read write publish upload identity user"
)
"""What makes a token a secret, but a key may be one of a dictionary too."""
_JOINED_NAMES = ("apikey", "authtoken", "accesstoken", "bearertoken", "secretkey", "accesskey", "privatekey", "secret")
_PASSWORDS = ("password", "passwd", "passphrase", "passwort", "passcode", "kennwort", "mnemonic", "pwd")
_PASSES = words("storepass keypass dbpass userpass smtppass rootpass adminpass ldappass ftppass sshpass requirepass")
_GIVEN = words("dockerconfigjson credential credentials cred creds auth pat jwt passwords secrets apikeys passkey")
_OTHER_GRADES = {
    **dict.fromkeys(("sig", "signature"), MAYBE),
    **dict.fromkeys(words("salt sid session sessionid otp pin sessid phpsessid jsessionid"), RANDOM),
    "pass": GUESSED,
    "authorization": HEADER,
    "cookie": COOKIE,
    "cookies": COOKIE,
}


@lru_cache(maxsize=1024)
def grade_of(name: str) -> str:
    """Returns how sure a name makes that its value is secret."""
    parts = [word.lower() for word in compiled(_WORD).findall(name[-_MAX_NAME:].removeprefix("-D").lstrip("-"))]
    while len(parts) > 1 and (parts[-1].isdigit() or parts[-1] in _BEHIND):
        parts.pop()
    if not parts:
        return NONE
    if name in ("PWD", "OLDPWD"):
        return SURE  # mostly a folder, which a path tells
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if (
        last.endswith(_PASSWORDS)
        or (before and last in ("pass", "pw"))
        or last in ("psk", "bindpw", "rootpw", "dbpw")
        or last in _PASSES
        or (before in ("seed", "recovery") and last in ("phrase", "words"))
    ):
        return PASSWORD
    stem = compiled("(?:key|token)$").sub("", last)
    if last.endswith(_JOINED_NAMES) or (stem != last and stem in _SECRET_KINDS):
        return SURE
    if last in ("token", "key", "tokens", "keys"):
        if last.endswith("s") or before in _HARMLESS:
            return LIKELY if before in _SECRET_KINDS else NONE
        if last == "key" and before in _OF_KEYS_DOUBTFUL:
            return LIKELY
        return SURE if before in _SECRET_KINDS else MAYBE if parts == ["key"] else LIKELY
    if last in _GIVEN or (before == "auth" and last == "ident"):
        return LIKELY
    if last in ("name", "field", "variable"):
        return NONE if before else PAIR
    return _OTHER_GRADES.get(last, NONE)


@remembered
def tells(value: str, grade: str) -> bool:
    """Returns whether a literal value of a name of this grade is a secret."""
    bare = value.strip(" \t\r\n\"'`")
    if is_nothing(bare):
        return False
    if grade == MAYBE:
        return len(bare) >= 16 and is_random(bare) and not matches(HASH, bare) and mixture(bare) > 0.25
    if grade == GUESSED and len(bare) >= 6 and " " not in bare and has_letter_and_digit(bare):
        return not is_path(bare) and not has(r"^[0-9.]+[a-z]*$", bare)
    if grade in (LIKELY, RANDOM, GUESSED):
        many_uses = grade == RANDOM and (len(bare) < 12 or ("-" in bare and matches(HASH, bare)))
        return is_random(bare) and not many_uses
    if is_prose(bare):
        return False
    if grade == PASSWORD:
        several = has(r"\w[-_. ]\w|[a-z][A-Z]", bare)
        if bare.startswith(("./", "../", "~/")) and is_path(bare):
            return False
        return bare.lower() not in ("password", "passwd", "pwd") and not (several and is_name(bare))
    return len(bare) >= 3 and not is_name(bare) and not is_path(bare)


def is_name(value: str) -> bool:
    """Returns whether a value is the name of a secret, not one."""
    return matches(r"[A-Za-z_ .:-]+", value) and grade_of(value) in (*ARGUMENTS, HEADER)
