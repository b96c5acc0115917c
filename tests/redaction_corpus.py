"""Secrets that must not survive redaction, and look-alikes that must stay as they are.

Every secret is made up: by a seeded generator or by hand. Prefixes of providers are put together at
run time, so that no scanner of repositories takes this file for a leak.
"""

from __future__ import annotations

import base64
import json
import random
import string
import urllib.parse
from typing import NamedTuple

_random = random.Random(20)
ALNUM = string.ascii_letters + string.digits
LOWER = string.ascii_lowercase + string.digits
URLSAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"
HEX = "0123456789abcdef"


class Secret(NamedTuple):
    """A text and what of it must go. `kept` must stay beside it: mostly the name."""

    shape: str
    text: str
    secret: str
    kept: str = ""


def some(alphabet: str, length: int) -> str:
    """Returns random characters that begin and end with a letter or digit, as tokens do."""
    plain = [c for c in alphabet if c.isalnum()]
    middle = [_random.choice(alphabet) for _ in range(length - 2)]
    return "".join([_random.choice(plain), *middle, _random.choice(plain)])


def jwt() -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims = part({"sub": some(LOWER, 12), "iat": 1700000000})
    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{claims}.{some(URLSAFE, 43)}"


def aws_secret() -> str:
    return some(BASE64, 20) + some(BASE64, 20)


def pem(kind: str, lines: int = 6) -> tuple[str, str]:
    """Returns a key block and a line of its body."""
    body = [some(BASE64, 64) for _ in range(lines)]
    dashes = "-" * 5
    return "\n".join(
        [f"{dashes}BEGIN {kind}{dashes}", *body, some(BASE64, 30) + "==", f"{dashes}END {kind}{dashes}"]
    ), body[1]


TOKENS: dict[str, str] = {
    "Anthropic": "sk-" + "ant-api03-" + some(URLSAFE, 93) + "AA",
    "Anthropic OAuth": "sk-" + "ant-oat01-" + some(URLSAFE, 93),
    "OpenAI": "sk-" + some(ALNUM, 48),
    "OpenAI project": "sk-" + "proj-" + some(URLSAFE, 120),
    "OpenAI service account": "sk-" + "svcacct-" + some(URLSAFE, 60),
    "OpenRouter": "sk-" + "or-v1-" + some(HEX, 64),
    "GitHub classic": "gh" + "p_" + some(ALNUM, 36),
    "GitHub OAuth": "gh" + "o_" + some(ALNUM, 36),
    "GitHub user": "gh" + "u_" + some(ALNUM, 36),
    "GitHub server": "gh" + "s_" + some(ALNUM, 36),
    "GitHub refresh": "gh" + "r_" + some(ALNUM, 36),
    "GitHub fine-grained": "github" + "_pat_" + some(ALNUM, 22) + "_" + some(ALNUM, 59),
    "GitLab": "gl" + "pat-" + some(URLSAFE, 20),
    "GitLab deploy": "gl" + "dt-" + some(URLSAFE, 20),
    "GitLab runner": "gl" + "rt-" + some(URLSAFE, 20),
    "Bitbucket": "AT" + "BB" + some(ALNUM, 32),
    "Atlassian": "AT" + "ATT3xFfGF0" + some(URLSAFE, 170) + "=" + some(HEX, 8).upper(),
    "Slack bot": "xox" + "b-" + some("0123456789", 12) + "-" + some("0123456789", 12) + "-" + some(ALNUM, 24),
    "Slack user": "xox" + "p-" + some("0123456789", 12) + "-" + some("0123456789", 12) + "-" + some(HEX, 32),
    "Slack app": "xa" + "pp-1-A" + some(ALNUM, 10).upper() + "-" + some("0123456789", 13) + "-" + some(HEX, 64),
    "Slack refresh": "xox" + "e-1-" + some(ALNUM, 140),
    "AWS key id": "AK" + "IA" + some(string.ascii_uppercase + "234567", 16),
    "AWS temporary key id": "AS" + "IA" + some(string.ascii_uppercase + "234567", 16),
    "AWS secret key": aws_secret(),
    "AWS session": "IQoJb3" + "JpZ2lu" + some(BASE64, 300),
    "JSON web token": jwt(),
    "Stripe": "sk_" + "live_" + some(ALNUM, 24),
    "Stripe test": "sk_" + "test_" + some(ALNUM, 99),
    "Stripe restricted": "rk_" + "live_" + some(ALNUM, 24),
    "Stripe webhook": "wh" + "sec_" + some(ALNUM, 32),
    "npm": "np" + "m_" + some(ALNUM, 36),
    "PyPI": "py" + "pi-AgEIcHlwaS5vcmc" + some(URLSAFE, 140),
    "crates.io": "ci" + "o" + some(ALNUM, 32),
    "RubyGems": "ruby" + "gems_" + some(HEX, 48),
    "Docker Hub": "dckr" + "_pat_" + some(URLSAFE, 27),
    "DigitalOcean": "dop" + "_v1_" + some(HEX, 64),
    "Heroku": "HR" + "KU-" + some(URLSAFE, 60),
    "Google API": "AI" + "za" + some(URLSAFE, 35),
    "Google OAuth secret": "GOC" + "SPX-" + some(URLSAFE, 28),
    "Google access": "ya" + "29." + some(URLSAFE, 120),
    "Google refresh": "1/" + "/0" + some(URLSAFE, 60),
    "Hugging Face": "h" + "f_" + some(ALNUM, 34),
    "SendGrid": "S" + "G." + some(URLSAFE, 22) + "." + some(URLSAFE, 43),
    "Telegram": some("123456789", 10) + ":" + "AA" + some(URLSAFE, 33),
    "Discord": "M" + some(ALNUM, 25) + "." + some(ALNUM, 6) + "." + some(URLSAFE, 38),
    "Twilio": "S" + "K" + some(HEX, 32),
    "Azure client secret": some(ALNUM, 3) + "8" + "Q~" + some(ALNUM + "_.-", 34),
    "Mailgun": "ke" + "y-" + some(HEX, 32),
    "Mailchimp": some(HEX, 32) + "-us" + "12",
    "Square": "sq0" + "atp-" + some(URLSAFE, 22),
    "Shopify": "shp" + "at_" + some(HEX, 32),
    "Braintree": "access" + "_token$production$" + some(LOWER, 16) + "$" + some(HEX, 32),
    "Linear": "lin" + "_api_" + some(ALNUM, 40),
    "Notion": "nt" + "n_" + some(ALNUM, 46),
    "Notion older": "sec" + "ret_" + some(ALNUM, 43),
    "Figma": "fig" + "d_" + some(URLSAFE, 40),
    "Airtable": "pa" + "t" + some(ALNUM, 14) + "." + some(HEX, 64),
    "New Relic": "NR" + "AK-" + some(ALNUM, 27).upper(),
    "Sentry": "snt" + "rys_" + "eyJ" + some(ALNUM, 60) + "=_" + some(BASE64, 43),
    "Grafana": "gl" + "sa_" + some(ALNUM, 32) + "_" + some(HEX, 8),
    "Databricks": "da" + "pi" + some(HEX, 32),
    "Vault": "hv" + "s." + some(URLSAFE, 90),
    "Terraform Cloud": some(ALNUM, 14) + ".atlas" + "v1." + some(ALNUM, 67),
    "Pulumi": "pu" + "l-" + some(HEX, 40),
    "Doppler": "dp" + ".pt." + some(ALNUM, 43),
    "1Password": "op" + "s_" + "eyJ" + some(URLSAFE, 200),
    "age": "AGE-" + "SECRET-KEY-1" + some("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "Perplexity": "pp" + "lx-" + some(ALNUM, 48),
    "Groq": "gs" + "k_" + some(ALNUM, 52),
    "xAI": "xa" + "i-" + some(ALNUM, 80),
    "Replicate": "r" + "8_" + some(ALNUM, 37),
    "Supabase": "sb" + "p_" + some(HEX, 40),
    "Netlify": "nf" + "p_" + some(ALNUM, 36),
    "Fly": "fo" + "1_" + some(URLSAFE, 43),
    "Postman": "PM" + "AK-" + some(HEX, 24) + "-" + some(HEX, 34),
    "Brevo": "xkey" + "sib-" + some(HEX, 64) + "-" + some(ALNUM, 16),
    "PlanetScale": "pscale" + "_pw_" + some(URLSAFE, 43),
    "Tailscale": "ts" + "key-auth-" + some(ALNUM, 12) + "-" + some(ALNUM, 32),
}
"""Tokens that tell by themselves, one of each provider."""

PASSWORDS = (
    "hunter2-" + some(LOWER, 6),
    "S3cr3t!Pa55",
    "tr0ub4dor&3",
    some(ALNUM, 16),
    some(ALNUM + "!#%*+?^~", 20),
    "Zq9$kL2m",
)

_SHA1, _SHA256, _MD5 = some(HEX, 40), some(HEX, 64), some(HEX, 32)
_FRAMES = (
    "{}",
    "the key is {}.",
    "({})",
    '"{}"',
    "`{}`",
    "<{}>",
    "key={}",
    "\x1b[32m{}\x1b[0m",
    "before {}, after",
    "『{}』を使う",
    "用{}登录",
    "{}\n",
    'print("x\\n{}\\n")',
    "x%3D{}%26y%3D1",
)


def _tokens() -> list[Secret]:
    cases = []
    for number, (provider, token) in enumerate(TOKENS.items()):
        for frame in (
            _FRAMES[0],
            _FRAMES[1 + number % (len(_FRAMES) - 1)],
            _FRAMES[1 + (number * 7 + 3) % (len(_FRAMES) - 1)],
        ):
            cases.append(Secret(f"token of {provider}", frame.format(token), token))
    return cases


_ASSIGNMENTS: tuple[tuple[str, str, str], ...] = (
    ("shell", "API_KEY={}", "API_KEY="),
    ("shell, exported", "export DB_PASSWORD={}", "export DB_PASSWORD="),
    ("shell, double quotes", 'export SECRET_KEY="{}"', "SECRET_KEY="),
    ("shell, single quotes", "AUTH_TOKEN='{}'", "AUTH_TOKEN="),
    ("shell, inline", "PGPASSWORD={} psql -h db.internal app", "psql -h db.internal app"),
    ("shell, traced", "+ MYSQL_PWD={}\n+ mysql -u root", "mysql -u root"),
    ("shell, comment", "# OLD_API_TOKEN={}", "# OLD_API_TOKEN="),
    ("shell, CRLF", "A=1\r\nCLIENT_SECRET={}\r\nB=2\r\n", "\r\nB=2\r\n"),
    ("shell, default", "${{DB_PASSWORD:-{}}}", "DB_PASSWORD:-"),
    ("shell, separated", "TOKEN={}; curl https://example.com", "curl https://example.com"),
    ("fish", "set -gx GITHUB_TOKEN {}", "GITHUB_TOKEN"),
    ("csh", "setenv API_SECRET {}", "API_SECRET"),
    ("Windows", "set DB_PASSWORD={}", "DB_PASSWORD="),
    ("Windows, kept", "setx API_KEY {}", "API_KEY"),
    ("PowerShell", '$env:API_KEY = "{}"', "API_KEY"),
    ("PowerShell secure", 'ConvertTo-SecureString "{}" -AsPlainText -Force', "-AsPlainText"),
    ("Dockerfile ENV", "ENV DB_PASSWORD={}", "ENV DB_PASSWORD"),
    ("Dockerfile ENV, blank", "ENV API_TOKEN {}", "ENV API_TOKEN"),
    ("Dockerfile ARG", "ARG NPM_TOKEN={}", "ARG NPM_TOKEN"),
    ("JSON", '{{"user": "bob", "password": "{}", "port": 1}}', '"port": 1'),
    ("JSON, nested", '{{"db": {{"auth": {{"client_secret":"{}"}}}}}}', "client_secret"),
    ("JSON, in a string", '{{"body": "{{\\"apiKey\\": \\"{}\\"}}"}}', "apiKey"),
    ("JSON, twice in a string", '"{{\\\\\\"access_token\\\\\\": \\\\\\"{}\\\\\\"}}"', "access_token"),
    ("JSON, pretty", '{{\n  "secretAccessKey":\n    "{}"\n}}', "secretAccessKey"),
    ("JSON, cut", '{{"refresh_token": "{}', "refresh_token"),
    ("name and value", '{{"name": "DB_PASSWORD", "value": "{}"}}', "DB_PASSWORD"),
    ("name and value, YAML", "env:\n  - name: API_SECRET\n    value: {}\n", "API_SECRET"),
    ("YAML", "db:\n  password: {}\n  port: 5432\n", "port: 5432"),
    ("YAML, quoted", "api_key: '{}'", "api_key"),
    ("YAML, literal block", "private_key: |\n  {}\nnext: 1\n", "next: 1"),
    ("YAML, folded block", "  secret: >-\n    {}\n  next: 1\n", "next: 1"),
    ("TOML", 'auth_token = "{}"', "auth_token"),
    ("TOML, long string", 'signing_key = """{}"""', "signing_key"),
    ("INI", "[db]\npassword = {}\n", "password"),
    ("properties", "spring.datasource.password={}", "spring.datasource.password="),
    ("Python", 'API_KEY = "{}"', "API_KEY"),
    ("Python, typed", 'password: str = "{}"', "password: str"),
    ("Python, argument", 'connect(host="db", password="{}")', 'host="db"'),
    ("Python, item", 'os.environ["SECRET_KEY"] = "{}"', "SECRET_KEY"),
    ("Python, bytes", "SECRET_KEY = b'{}'", "SECRET_KEY"),
    ("JavaScript", "const apiSecret = `{}`;", "apiSecret"),
    ("TypeScript", 'const accessToken: string = "{}";', "accessToken"),
    ("Go", 'apiKey := "{}"', "apiKey"),
    ("Ruby", ':password => "{}",', ":password"),
    ("Java", 'String dbPassword = "{}";', "dbPassword"),
    ("XML", "<password>{}</password>", "</password>"),
    ("XML attribute", '<add key="ApiSecret" value="{}" />', "ApiSecret"),
    ("header X-Api-Key", "X-Api-Key: {}", "X-Api-Key:"),
    ("header Authorization Bearer", "Authorization: Bearer {}", "Authorization: Bearer"),
    ("header Authorization token", "authorization: token {}", "token"),
    ("header in curl", "curl -H 'Authorization: Bearer {}' https://api.example.com", "https://api.example.com"),
    ("header in JSON", '{{"Authorization": "Bearer {}"}}', "Bearer"),
    ("header X-Vault-Token", "-H 'X-Vault-Token: {}'", "X-Vault-Token"),
    ("header Cookie", "Cookie: session={}; theme=dark", "Cookie: session="),
    ("header Set-Cookie", "Set-Cookie: sid={}; Path=/; HttpOnly", "; Path=/; HttpOnly"),
    ("query", "https://api.example.com/v1/x?page=2&access_token={}&sort=asc", "&sort=asc"),
    ("query, first", "GET /callback?token={} HTTP/1.1", "HTTP/1.1"),
    ("query, encoded", "next=https%3A%2F%2Fx.example%2F%3Fapi_key%3D{}%26b%3D1", "%26b%3D1"),
    ("flag", "tool --password {} --verbose", "--verbose"),
    ("flag, equals", "tool --token={} run", "run"),
    ("flag, quoted", 'tool --api-key "{}" run', "run"),
    ("flag, next line", "tool \\\n  --client-secret \\\n  {}\n", "--client-secret"),
    ("flag of mysql", "mysql -u root -p{} app", "mysql -u root -p"),
    ("flag of sshpass", "sshpass -p {} ssh host", "ssh host"),
    ("flag of curl", "curl -u admin:{} https://example.com", "curl -u admin:"),
    ("flag --user", "curl --user 'admin:{}' https://example.com", "https://example.com"),
    ("system property", "java -Ddb.password={} -jar x.jar", "-jar x.jar"),
    ("connection string ADO", "Server=db;User Id=sa;Password={};Encrypt=true", ";Encrypt=true"),
    ("connection string libpq", "host=db user=app password={} dbname=x", "dbname=x"),
    ("connection string JDBC", "jdbc:mysql://db/x?user=app&password={}", "user=app"),
    ("connection string Azure", "AccountName=x;AccountKey={}==;EndpointSuffix=core.windows.net", "EndpointSuffix"),
    ("netrc", "machine api.example.com login bob password {}", "login bob password"),
    ("netrc, lines", "machine api.example.com\n  login bob\n  password {}\n", "login bob"),
    ("npmrc", "//registry.example.org/:_authToken={}", "_authToken="),
    ("pypirc", "[pypi]\nusername = __token__\npassword = {}\n", "username = __token__"),
    ("aws configure", "aws configure set aws_secret_access_key {}", "aws_secret_access_key"),
    ("SQL", "ALTER USER app WITH PASSWORD '{}';", "ALTER USER app"),
    ("SQL, identified", "CREATE USER x IDENTIFIED BY '{}';", "CREATE USER x"),
    ("piped", "echo {} | docker login -u bob --password-stdin", "docker login -u bob"),
    ("Helm", "helm install --set auth.password={} x", "helm install"),
    ("kubectl", "kubectl create secret generic x --from-literal=password={}", "--from-literal=password="),
    ("Markdown", "**Password**: {}", "**Password**"),
    ("escaped quotes", 'sh -c "PASSWORD=\\"{}\\" run"', "run"),
    ("HTML entities", "password=&quot;{}&quot;", "password="),
    ("Chinese name", "密码：{}", "密码"),
)
"""Places of a value, which stands at the braces, and what stays beside it."""


def _assigned() -> list[Secret]:
    cases = []
    # What a shell or a URL would have to quote stands in quotes only.
    plain = [value for value in PASSWORDS if value.isalnum() or value.startswith("hunter2-")]
    for number, (shape, text, kept) in enumerate(_ASSIGNMENTS):
        for value in (plain[number % len(plain)], plain[(number + 1) % len(plain)], some(HEX, 32)):
            cases.append(Secret(shape, text.format(value), value, kept))
        if any(f"{quote}{{}}{quote}" in text for quote in "\"'"):
            value = PASSWORDS[number % len(PASSWORDS)]
            cases.append(Secret(shape, text.format(value), value, kept))
    return cases


def _urls() -> list[Secret]:
    value = some(ALNUM, 14)
    encoded = urllib.parse.quote("p@ss/" + value, safe="")
    userinfo = f"postgres://app:{value}@db.internal:5432/app?sslmode=require"
    return [
        Secret("URL", userinfo, value, "@db.internal:5432/app?sslmode=require"),
        Secret("URL, short", "postgres://user:pass@host", ":pass@", "postgres://user:"),
        Secret("URL, quoted", f'DATABASE_URL="{userinfo}"', value, "postgres://app:"),
        Secret("URL, no user", f"redis://:{value}@cache:6379/0", value, "redis://:"),
        Secret("URL, encoded password", f"amqp://u:{encoded}@mq/v", value, "amqp://u:"),
        Secret("URL, at sign", f"mysql://u:p@{value}@db/x", value, "mysql://u:"),
        Secret("URL, slash", f"mongodb+srv://u:{value}/x@cluster.example.net/db", value, "mongodb+srv://u:"),
        Secret("URL, digits", "postgres://u:5432123@db/x", "5432123", "postgres://u:"),
        Secret("URL, encoded", urllib.parse.quote(userinfo, safe=""), value),
        Secret("URL, escaped slashes", userinfo.replace("/", "\\/"), value),
        Secret(
            "URL, token", f"git clone https://{value}{value}@git.example.com/x.git", value, "@git.example.com/x.git"
        ),
        Secret(
            "URL, token name", f"https://oauth2:{value}@gitlab.example.com/x.git", value, "@gitlab.example.com/x.git"
        ),
        Secret("URL of pip", f"pip install --index-url https://__token__:{value}@pypi.example.com/simple x", value),
        Secret("URL of JDBC", f"jdbc:oracle:thin:scott/{value}@db:1521/orcl", value, "scott/"),
        Secret("login", f"proxy app:{value}@proxy.internal:3128", value, "@proxy.internal:3128"),
        Secret("pgpass", f"db.internal:5432:app:bob:{value}", value, "db.internal:5432:app:bob:"),
        Secret("pgpass, any", f"*:*:*:bob:{value}\n", value, "*:*:*:bob:"),
        Secret(
            "webhook Slack", f"https://hooks.slack.com/services/T0{some(ALNUM, 7)}/B0{some(ALNUM, 7)}/{value}", value
        ),
        Secret("webhook Discord", f"https://discord.com/api/webhooks/123456789012345678/{value}-{value}", value),
        Secret(
            "webhook Teams", f"https://x.webhook.office.com/webhookb2/{value}@{value}/IncomingWebhook/{value}", value
        ),
        Secret("SAS", f"https://x.blob.core.windows.net/c?sv=2022&sig={value}{value}%3D&se=1", value, "sv=2022"),
        Secret("bot URL", f"https://api.telegram.org/bot{TOKENS['Telegram']}/getMe", TOKENS["Telegram"], "/getMe"),
    ]


def _blocks() -> list[Secret]:
    cases = []
    for kind in ("RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ", ""):
        block, line = pem(f"{kind}PRIVATE KEY")
        cases.append(Secret(f"key block {kind or 'PKCS8'}", f"before\n{block}\nafter", line, "after"))
        cut = block[: block.index(line) + 40]
        cases.append(Secret(f"key block {kind or 'PKCS8'}, cut", f"before\n{cut}", line[:40], "before"))
        one_line = block.replace("\n", "\\n")
        cases.append(
            Secret(f"key block {kind or 'PKCS8'}, JSON", f'{{"key": "{one_line}\\n", "x": 1}}', line, '"x": 1')
        )
    block, line = pem("PGP PRIVATE KEY BLOCK")
    armored = block.replace("-----\n", "-----\nVersion: GnuPG v2\nComment: none\n\n", 1)
    cases.append(Secret("key block PGP", armored, line))
    block, line = pem("RSA PRIVATE KEY")
    locked = block.replace("-----\n", "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\n", 1)
    indented = "\n".join("    " + each for each in block.split("\n"))
    account = json.dumps({"type": "service_account", "private_key_id": some(HEX, 40), "private_key": block + "\n"})
    putty = f"PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n{some(BASE64, 48)}\nPrivate-MAC: {some(HEX, 64)}\n"
    encoded = base64.b64encode(block.encode()).decode()
    return [
        *cases,
        Secret("key block, locked", locked, line),
        Secret("key block, indented", f"key: |\n{indented}\nnext: 1", line, "next: 1"),
        Secret("key block, quoted lines", "\n".join("> " + each for each in block.split("\n")), line),
        Secret("key block, blanks", block.replace("\n", " "), line),
        Secret("key block, CRLF", block.replace("\n", "\r\n"), line),
        Secret("key block, code", "\n".join(f'"{each}\\n" +' for each in block.split("\n")), line),
        Secret("key block, base64", f"tls.key: {encoded}", encoded),
        Secret("key without its first line", "MII" + "EvQIBADANBgkqhkiG9w0BAQEFAASC" + line, line),
        Secret("service account", account, line, "service_account"),
        Secret("PuTTY", putty, putty.split("\n")[2], "Private-Lines: 1"),
        Secret(
            "JSON web key",
            json.dumps({"kty": "RSA", "n": some(URLSAFE, 40), "d": line.replace("/", "_").replace("+", "-")}),
            line[:20].replace("/", "_").replace("+", "-"),
        ),
    ]


def _various() -> list[Secret]:
    secret = aws_secret()
    value = some(ALNUM, 18)
    basic = base64.b64encode(f"bob:{value}".encode()).decode()
    token = TOKENS["GitHub classic"]
    return [
        Secret("AWS secret, prompt", f"AWS Secret Access Key [None]: {secret}", secret),
        Secret("AWS secret, file", f"[default]\naws_secret_access_key = {secret}\n", secret, "aws_secret_access_key"),
        Secret("AWS secret, bare", f"use {secret} with it", secret, "with it"),
        Secret("Basic", f"Authorization: Basic {basic}", basic, "Authorization: Basic"),
        Secret("Basic, bare", f"send Basic {basic} along", basic, "along"),
        Secret("docker config", json.dumps({"auths": {"ghcr.io": {"auth": basic}}}), basic, "ghcr.io"),
        Secret("npmrc, older", f"_auth={basic}", basic, "_auth="),
        Secret("Digest", f'Authorization: Digest username="bob", response="{some(HEX, 32)}", x="{value}"', value),
        Secret("AWS signature", f"Authorization: AWS4-HMAC-SHA256 Credential=x/y, Signature={value}", value),
        Secret("Bearer, bare", f"as Bearer {value}", value),
        Secret("Bearer, header of requests", f'headers={{"Authorization": f"Bearer {value}"}}', value),
        Secret("requests", f'requests.get(url, auth=("bob", "{value}"))', value, "requests.get"),
        Secret("call", f'HTTPBasicAuth("bob", "{value}")', value, "HTTPBasicAuth"),
        Secret("tuple", f'("API_KEY", "{value}")', value, "API_KEY"),
        Secret("comparison", f'if password == "{value}":', value, "if password =="),
        Secret("table", f"| API_KEY | {value} |", value, "API_KEY"),
        Secret("list", f'"api_keys": ["{value}", "{value}x"]', value, "api_keys"),
        Secret("openssl", f"openssl rsa -passin pass:{value} -in key.pem", value, "-in key.pem"),
        Secret("redis-cli", f"redis-cli -h cache -a {value} ping", value, "ping"),
        Secret("twine", f"twine upload -u __token__ -p {value} dist/*", value, "dist/*"),
        Secret("docker login", f"docker login -u bob -p {value} ghcr.io", value, "ghcr.io"),
        Secret("wrapped", token[:20] + "\n" + token[20:], token[20:]),
        Secret("wrapped, shell", token[:20] + "\\\n" + token[20:], token[20:]),
        Secret("cut", f"it printed {token[:16]}", token[:16]),
        Secret("cut, marked", f"it printed {token[:16]}…", token[:16]),
        Secret("cut web token", TOKENS["JSON web token"][:60], TOKENS["JSON web token"][20:60]),
        Secret("joined quotes", f"export TOKEN='{value}'\"{value[::-1]}\"", value[::-1]),
        Secret("passphrase", 'passphrase: "correct horse battery staple"', "correct horse"),
        Secret("passphrase, YAML", "passphrase: correct horse battery staple\n", "battery staple"),
        Secret("passphrase, words", "mnemonic = 'abandon ability able about above absent'", "ability able"),
        Secret("word", "DB_PASSWORD=letmein", "letmein", "DB_PASSWORD="),
        Secret("word, YAML", "db:\n  password: letmein\n", "letmein", "password:"),
        Secret("word, quoted", 'password = "letmein"', "letmein", "password"),
        Secret("word, URL", "https://example.com/login?user=x&password=letmein", "letmein", "user=x"),
        Secret("digits", "password=73920164", "73920164", "password="),
        Secret("symbols", "DB_PASSWORD=p@ss;w0rd&x!", "w0rd", "DB_PASSWORD="),
        Secret("Laravel", f"APP_KEY=base64:{some(BASE64, 43)}=", "base64:", "APP_KEY="),
        Secret("Rails", f"SECRET_KEY_BASE={_MD5}{_SHA256}", _SHA256, "SECRET_KEY_BASE="),
        Secret("long", f"GCP_KEY={some(BASE64, 3000)}{value}", value, "GCP_KEY="),
    ]


SECRETS: tuple[Secret, ...] = (*_tokens(), *_assigned(), *_urls(), *_blocks(), *_various())

_UUID = "550e8400-e29b-41d4-a716-446655440000"
_IMAGE = "data:image/png;base64,iVBORw0KGgo" + some(BASE64, 400) + "=="
_CERTIFICATE = pem("CERTIFICATE")[0]

LOOK_ALIKES: tuple[str, ...] = (
    # Hashes and ids.
    f"commit {_SHA1}",
    _SHA1,
    f"git show {_SHA1[:7]}",
    f"{_SHA1[:12]} Mend the token parser",
    f"cherry-picked from {_SHA1}, see {_SHA1[:10]}",
    f"sha256:{_SHA256}",
    f"image@sha256:{_SHA256}",
    f"{_SHA256}  model.safetensors",
    f"md5 = {_MD5}",
    f'"integrity": "sha512-{some(BASE64, 86)}=="',
    f'integrity="sha384-{some(BASE64, 64)}"',
    f"--hash=sha256:{_SHA256}",
    f"h1:{some(BASE64, 43)}=",
    f"SHA256:{some(BASE64, 43)} bob@host (ED25519)",
    f"id: {_UUID}",
    f"session_id={_UUID}",
    f'{{"sessionId": "{_UUID}", "key": "{_UUID}"}}',
    f'etag: W/"{_MD5}"',
    f"cache_key={_SHA256}",
    "req_011CSHoEeqs5C35K2UUqR7Fy",
    "toolu_01A09q90qw90lq917835lq9",
    "msg_01XFDUDYJgAACzvnptvVoYEL",
    "chatcmpl-9XyZaBcDeFgHiJkLmNoPqRsTuVwXy",
    "cus_NffrFeUfNV2Hib and pi_3MtwBwLkdIwHu7ix28a3tqPa",
    "pk_" + "live_" + some(ALNUM, 24),
    "arn:aws:iam::123456789012:role/deploy",
    "arn:aws:secretsmanager:us-east-1:123456789012:secret:prod/db-AbCdEf",
    "0x52908400098527886E0F7030069857D2E4169EE7",
    "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnVy1r",
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ" + some(BASE64, 300) + " bob@host",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + some(BASE64, 43) + " bob@host",
    _IMAGE,
    f'<img src="{_IMAGE}">',
    _CERTIFICATE,
    pem("PUBLIC KEY")[0],
    pem("PGP PUBLIC KEY BLOCK")[0],
    "\n".join(some(BASE64, 64) for _ in range(4)) + "\n" + some(BASE64, 40),
    # Code.
    "token = get_token()",
    "token = await client.get_token(scope)",
    "token = tokens[0]",
    "token, rest = text.split()",
    "if token == expected:",
    'if token == "(":',
    "password: str",
    "password: str | None = None",
    "password: Optional[str] = None",
    "password: SecretStr",
    "password: string;",
    "password?: string",
    "password = None",
    'password = ""',
    "password = input()",
    'password = getpass.getpass("Password: ")',
    'secret_key=os.environ["X"]',
    'SECRET_KEY = os.environ.get("SECRET_KEY")',
    'API_KEY = os.getenv("API_KEY", "")',
    "const apiKey = process.env.API_KEY;",
    "apiKey: process.env.OPENAI_API_KEY,",
    "api_key=settings.API_KEY",
    "self.token = token",
    "this.password = password;",
    "client = Client(api_key=api_key, token=token)",
    "def login(user, password):",
    "def login(user: str, password: str) -> Token:",
    "return jsonify(token=token.decode())",
    'headers = {"Authorization": f"Bearer {token}"}',
    'headers["Authorization"] = "Bearer " + token',
    "`Authorization: Bearer ${token}`",
    'print("password: " + password)',
    'print(f"token: {token}")',
    'logger.info("token=%s", token)',
    "max_tokens=256",
    "max_tokens: 4096,",
    '"max_tokens": 1024, "total_tokens": 1312',
    "tokenizer=AutoTokenizer.from_pretrained(name)",
    "tokenizer = tiktoken.get_encoding('cl100k_base')",
    'pad_token="<pad>", eos_token="</s>"',
    "primary_key=id",
    "PRIMARY KEY (id), FOREIGN KEY (user_id) REFERENCES users(id)",
    "primary_key=True",
    "sort_key = 'created_at'",
    "next_token = response['NextToken']",
    "public_key = load_public_key(path)",
    "key = 'name'",
    "for key, value in config.items(): print(key, value)",
    "sorted(rows, key=lambda row: row.name)",
    "sorted(rows, key=len)",
    "monkey=banana",
    "PASSWORD_MIN_LENGTH=12",
    "TOKEN_EXPIRY=3600",
    "TOKEN_URL=https://auth.example.com/oauth/token",
    "PASSWORD_FILE=/run/secrets/db_password",
    "secret_name: db-credentials",
    "SSH_KEY=~/.ssh/id_ed25519",
    "ssl_key = /etc/ssl/private/server.key",
    "--key server.key --cert server.crt",
    "password_hash = hash_password(password)",
    "csrf_token = generate_csrf_token()",
    '<input type="password" name="password">',
    "CREATE TABLE users (password VARCHAR(255) NOT NULL, token TEXT)",
    'export PATH="$HOME/bin:$PATH"',
    "PWD=/home/bob/project",
    "sk-learn, scikit-learn and sk-" + "based-classifiers",
    "hf_hub_download and hf_transfer-0.1.9",
    "npm_config_registry and npm_package_version",
    "xai-sdk-1.2.0 pypi-attestations-0.0.22",
    # Placeholders and references.
    "API_KEY=<your-token>",
    "API_KEY=${API_KEY}",
    "API_KEY=$API_KEY",
    'API_KEY="$(cat key.txt)"',
    "TOKEN=`pass show token`",
    "PASSWORD=***",
    "password: ********",
    "PASSWORD=xxx",
    "api_key = 'xxxxxxxxxxxxxxxx'",
    "DB_PASSWORD=changeme",
    "DB_PASSWORD=[redacted]",
    "token: YOUR_TOKEN_HERE",
    'api_key="your-api-key"',
    "ANTHROPIC_API_KEY=sk-" + "ant-...",
    "OPENAI_API_KEY=sk-" + "xxxxxxxxxxxxxxxxxxxxxxxx",
    "ghp_" + "x" * 36,
    "Authorization: Bearer <token>",
    "Authorization: Bearer $TOKEN",
    "Authorization: Basic <credentials>",
    'password: "{{ vault_db_password }}"',
    "token: ${{ secrets.GITHUB_TOKEN }}",
    "password: op://vault/db/password",
    "password: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  3162\n",
    "set PASSWORD=%PASSWORD%",
    "postgres://app:$DB_PASSWORD@db/app",
    "postgres://app:${DB_PASSWORD}@db/app",
    "postgres://<user>:<password>@<host>/db",
    "tool --token <token> --password-stdin",
    "tool --password PASSWORD",
    # URLs, paths, versions.
    "https://example.com/a/b?x=1&page=2#top",
    "https://bob@example.com/x.git",
    "git@github.com:acme/app.git",
    "ssh://git@github.com/acme/app.git",
    "http://localhost:8080/@scope/pkg?next=/a",
    "https://registry.example.org:443/@types/node",
    "mailto:bob@example.com",
    "redis://cache:6379/0",
    "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
    "/usr/lib/python3.11/site-packages/pip/_internal/cli/main.py",
    "src/components/auth/TokenProvider.tsx:12:34",
    "C:\\Users\\bob\\AppData\\Local\\keys\\token.txt",
    "app/models/user_password_reset_token_v2/index",
    "AbstractSingletonProxyFactoryBean2Provider",
    "requests==2.32.3 urllib3>=2.0,<3",
    "docker run -p 8080:80 -e MODE=dev app",
    "ssh -p 22 bob@host",
    "mkdir -p build/keys && cp -p a b",
    "2024-01-01T12:30:45.123Z 12:30:45:678",
    "fe80:0000:0000:0000:0202:b3ff:fe1e:8329",
    "file.py:12:80:E501 line too long",
    # Prose.
    "The token is passed in the Authorization header.",
    "key: value pairs, secret santa, a key insight",
    "The secret: keep it simple.",
    "Password: must contain at least 8 characters",
    "Enter your password: ",
    "Basic authentication and Bearer authentication are supported.",
    "Basic understanding of Bearer tokens",
    "API key: required",
    "the --token flag is required",
    "the password policy says so; the password is hashed with bcrypt",
    "Cookie: a small piece of text",
    "machine learning login page password reset",
    "这个函数返回一个令牌，密钥保存在配置里。密码：请联系管理员",
    "パスワードを忘れた場合は、トークンを再発行してください。",
    "キー：値の組を返す。秘密は守る。",
    "token: opaque string",
    "| token | string | the access token |",
    "1 token = 4 characters; 1000 tokens = 750 words",
    'password authentication failed for user "app"',
    "feat(auth): rotate token keys (#123)",
)
