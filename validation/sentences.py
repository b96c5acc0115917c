"""Task sentences for benchmarks: combined from word lists of our own, as many distinct ones as asked for."""

from __future__ import annotations

import random

VERBS = (
    """add archive audit automate back up benchmark build cache check clean up clone compare compile compress
configure containerise convert copy debug decode delete deploy diagnose document download enable encrypt estimate
export extract fix format generate harden import index inspect install integrate investigate lint list load log merge
migrate mirror mock monitor move normalise optimise package parse patch plan port profile prune publish query rebuild
refactor rename render replace reproduce reset resize restart restore review rewrite rotate sanitise scale schedule
seed simplify split squash summarise sync tag test throttle trace translate trim tune uninstall update upgrade
upload validate verify visualise wrap""".replace("\n", " ")
    .replace("back up", "back_up")
    .replace("clean up", "clean_up")
    .split()
)
THINGS = """access log|access token|admin panel|alert rule|api gateway|audit trail|auth middleware|backup job|batch job|billing
page|branch protection|browser cache|build pipeline|calendar feed|cart total|certificate|changelog|chat widget|checkout
form|ci runner|cli flag|cloud bucket|cluster node|code owner file|column index|comment thread|config file|connection pool|container
image|cookie banner|crash report|cron schedule|csv export|currency table|customer record|dashboard|data lake|database
migration|deadlock|dependency graph|design token|disk quota|dns zone|docker network|email template|error page|event
queue|exchange rate|feature flag|file upload|firewall rule|font bundle|foreign key|game loop|geo lookup|git hook|graph
query|health check|heap dump|html report|http proxy|image thumbnail|incident report|inventory count|invoice|json
schema|kernel module|key vault|language pack|launch script|ledger|license header|link checker|load test|login flow|mail
server|map tile|memory leak|message broker|metric label|mobile build|model weight|money transfer|newsletter|notebook|null
check|oauth scope|object store|onboarding guide|order status|package lock|page title|parser|password policy|payment
webhook|pdf invoice|permission matrix|phone number field|plugin|poll loop|price list|print layout|profile picture|pull
request|push notification|query plan|race condition|rate limit|read replica|redirect|refund|regex|release note|report
filter|retry policy|robot account|role binding|rollback script|route table|rss feed|sales forecast|search index|secret|session
store|settings screen|shell alias|shipping label|signup form|sitemap|socket timeout|spell checker|spreadsheet|sql
view|ssh key|stack trace|static site|status page|stock level|storage class|style guide|subscription|support ticket|survey|svg
icon|symlink|syntax tree|system clock|table partition|task queue|tax rule|telemetry event|terraform state|test fixture|text
encoding|thread pool|time zone|tooltip|translation file|type stub|unit test|upload limit|url shortener|usage
report|user table|vault policy|vector index|video player|virtual machine|voice prompt|vpn tunnel|warehouse report|weather
feed|webhook|websocket|wiki page|worker process|xml feed|yaml anchor""".replace("\n", " ").split("|")
PLACES = """in production|on staging|for the mobile app|in the billing service|for the admin team|on the build server|in
the data warehouse|for the partner portal|behind the load balancer|in the staging cluster|for enterprise customers|on the
edge nodes|in the legacy monolith|for the new tenant|in the test environment|on every developer laptop|for the german
market|in the archive bucket|on the windows runner|for the support desk|in the payment module|on the reporting
database|for the public api|in the desktop client|on the raspberry pi|for the internal wiki|in the login service|on the
gpu machine|for the weekly report|in the sandbox account""".replace("\n", " ").split("|")
REASONS = """because it fails at night|before the next release|without downtime|after the upgrade to version 3|so that it
takes less memory|as the auditors asked|since users complain|with a dry run first|and write down the steps|using only the
standard library|in less than an hour|for python 3.12|when the disk is almost full|so that old links keep working|with
tests for the edge cases|and tell the on-call engineer|under heavy load|after the security review|with a rollback
plan|while keeping the old format|for accessibility|to cut the monthly bill|despite the flaky network|once the freeze is
over|and measure the difference""".replace("\n", " ").split("|")
OPENINGS = ("", "", "how do I ", "what is the best way to ", "please ", "can you ", "help me ", "I need to ")


def sentences(count: int, seed: int = 7) -> list[str]:
    """Returns `count` distinct sentences, the same for the same seed."""
    chance = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        verb = chance.choice(VERBS).replace("_", " ")
        parts = [f"{chance.choice(OPENINGS)}{verb} the {chance.choice(THINGS).strip()}"]
        if chance.random() < 0.8:
            parts.append(chance.choice(PLACES).strip())
        if chance.random() < 0.6:
            parts.append(chance.choice(REASONS).strip())
        found[" ".join(" ".join(parts).split())] = None
    return list(found)
