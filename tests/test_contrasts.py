"""Each kind of contrast: pairs that raise it, and pairs of one meaning that raise nothing of weight."""

from __future__ import annotations

import random
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subconscious_mcp import antonyms, lexicon
from subconscious_mcp.contrasts import WINDOW, contrasts
from subconscious_mcp.records import Contrast
from subconscious_mcp.stems import akin, stem

WEIGHTY = 0.5

DIFFERENT = {
    "number": """
        Set the timeout to 30 seconds | Set the timeout to 300 seconds
        Scale the web tier to 3 replicas | Scale the web tier to five replicas
        Keep the last 10 backups | Keep the last 100 backups
        Raise the limit to 1,000 requests | Raise the limit to 10,000 requests
        Allow two retries | Allow four retries
        Bake the cake with three eggs | Bake the cake with one egg
        Listen on port 8080 | Listen on port 8081
        Use a 5% sample | Use a 50% sample
        Charge a fee of $20 | Charge a fee of $25
        Reserve 2 GB for the cache | Reserve 4 GB for the cache
        Rotate the logs after 7 days | Rotate the logs after 14 days
        Split the file into 1.5 MB parts | Split the file into 2.5 MB parts
        Compute sha256 of the archive | Compute sha512 of the archive
    """,
    "version": """
        Upgrade to Python 3.12 | Upgrade to Python 3.10
        Install Node 18 on the runner | Install Node 20 on the runner
        Migrate the plugin to v2 | Migrate the plugin to v3
        Does 1.2.3 fix the leak? | Does 1.2.4 fix the leak?
        Pin numpy to 1.26.4 | Pin numpy to 2.0.1
        Move the cluster to Kubernetes 1.29 | Move the cluster to Kubernetes 1.31
        Compile it with Java 17 | Compile it with Java 21
        Release notes of version 4.1 | Release notes of version 4.10
        Support TLS 1.2 | Support TLS 1.3
        Which drivers work with Postgres 14? | Which drivers work with Postgres 16?
        Test against Django 4.x | Test against Django 5.x
    """,
    "identifier": """
        Summarize ticket OPS-42 | Summarize ticket OPS-43
        Why did build 9f8e7d6c5 break? | Why did build 1a2b3c4d5 break?
        Review pull request #12 | Review pull request #21
        Ping 10.0.0.1 from the bastion | Ping 10.0.0.2 from the bastion
        Open https://example.org/a | Open https://example.org/b
        Mail the report to ann@example.org | Mail the report to bob@example.org
        Is CVE-2024-1234 relevant for us? | Is CVE-2024-9876 relevant for us?
        Route 10.1.0.0/16 over the tunnel | Route 10.2.0.0/16 over the tunnel
        Restore 123e4567-e89b-12d3-a456-426614174000 | Restore 123e4567-e89b-12d3-a456-426614174999
        Close INFRA-7 as a duplicate | Close INFRA-9 as a duplicate
        Cherry-pick abc1234 onto main | Cherry-pick def5678 onto main
    """,
    "date": """
        Run the report for 2026-01-05 | Run the report for 2026-01-06
        Schedule the release for Monday | Schedule the release for Friday
        Book a room for March 3 | Book a room for March 4
        The window opens at 3pm | The window opens at 4pm
        Show the sales of January | Show the sales of July
        Start the job at 08:00 | Start the job at 20:00
        Run the backup daily | Run the backup weekly
        Plan the sprint for today | Plan the sprint for tomorrow
        Budget of 2024 | Budget of 2025
        Show the times in UTC | Show the times in PST
        Send the digest every hour | Send the digest every month
    """,
    "unit": """
        Wait 30 seconds | Wait 30 minutes
        Limit uploads to 10 MB | Limit uploads to 10 GB
        Show the size in megabytes | Show the size in gigabytes
        Cache entries for 5 hours | Cache entries for 5 days
        Transfer 100 USD | Transfer 100 EUR
        Drive 20 miles | Drive 20 km
        A retention of 2 weeks | A retention of 2 months
        Print the latency in ms | Print the latency in seconds
        Heat it to 40 °C | Heat it to 40 °F
        Lift 50 kg | Lift 50 pounds
        Convert the amount to euros | Convert the amount to yen
    """,
    "quoted": """
        Search the log for "disk full" | Search the log for "out of memory"
        Rename the title to "Weekly report" | Rename the title to "Monthly review"
        What does 'broken pipe' mean? | What does 'bad gateway' mean?
        Add the label "needs triage" | Add the label "good start"
        Replace the banner with “We are hiring” | Replace the banner with “Office closed”
        Fix the message `no such table` | Fix the message `no such column`
        Reply with "thank you all" | Reply with "see you soon"
        Filter rows whose state is "new york" | Filter rows whose state is "new jersey"
        Translate "good evening" | Translate "excuse me"
        Grep for 'panic at startup' | Grep for 'timeout at login'
        Tag it "alpha" | Tag it "omega"
    """,
    "path": """
        Edit /etc/nginx/nginx.conf | Edit /etc/hosts
        Explain what src/app/main.py does | Explain what src/app/models.py does
        Delete ~/cache/tmp | Delete ~/cache/build
        Parse config.yaml | Parse settings.yaml
        Copy C:\\data\\a.txt to the share | Copy C:\\data\\b.txt to the share
        Mount /dev/sda1 | Mount /dev/sdb1
        Add a test to test_login.py | Add a test to test_logout.py
        Why is /var/log/syslog so big? | Why is /var/log/kern.log so big?
        Ignore ./dist/ in git | Ignore ./node_modules/ in git
        Format README.md | Format CHANGELOG.md
        Open ../docs/index.rst | Open ../docs/usage.rst
    """,
    "flag": """
        Run the tool with --force | Run the tool with --dry-run
        What does git log --oneline do? | What does git log --graph do?
        Build with --no-cache | Build with --pull
        Call tar with -x | Call tar with -c
        Start the server with --verbose | Start the server with --quiet
        pip install --user requests | pip install --upgrade requests
        Explain ls -l | Explain ls -a
        Run rsync with --delete | Run rsync with --archive
        Use --jobs in make | Use --silent in make
        docker run --rm nginx | docker run --detach nginx
        git push --force origin main | git push origin main
    """,
    "code": """
        Refactor get_user to be async | Refactor get_order to be async
        Document parseConfig() | Document writeConfig()
        Where is MAX_RETRIES used? | Where is MIN_DELAY used?
        Add a docstring to Cache.evict | Add a docstring to Cache.insert_all
        Rename user_id in the model | Rename order_no in the model
        Why does os.rename raise? | Why does os.unlink raise?
        Mock fetch_page in the tests | Mock send_mail in the tests
        Set DATABASE_URL on the host | Set SENTRY_DSN on the host
        Make UserService thread safe | Make OrderQueue thread safe
        What does np.argmax return? | What does np.cumsum return?
        Inline compute_total() | Inline apply_discount()
    """,
    "name": """
        Deploy the service to staging | Deploy the service to production
        Connect the app to Postgres | Connect the app to MySQL
        Find hotels in Berlin | Find hotels in Munich
        Build the app for iOS | Build the app for Android
        Write a parser in Rust | Write a parser in Go lang
        Host the site on AWS | Host the site on Azure
        Send the summary to Slack | Send the summary to Discord
        Export the table as JSON | Export the table as CSV
        Ask Martha about the budget | Ask Jonas about the budget
        Paint the button red | Paint the button green
        Is the Falcon project done? | Is the Osprey project done?
        Are adults admitted to the pool? | Are toddlers admitted to the pool?
        Good books about gardening | Good websites about gardening
        Put the data on a slideshow | Put the data in a spreadsheet
        Compare offers for a student loan | Compare offers for a car loan
        Do I need a visa for Japan? | Do I need a visa for Brazil?
    """,
    "negation": """
        Why does the job start? | Why does the job not start?
        Cache the responses | Do not cache the responses
        I can log in to the portal | I can't log in to the portal
        Show users who have paid | Show users who haven't paid
        Restart the worker without draining it | Restart the worker, draining it
        Rows with an owner | Rows with no owner
        The build should fail on warnings | The build should not fail on warnings
        Retry the request when it times out | Never retry the request when it times out
        Send emails to inactive users | Don't send emails to inactive users
        The index is used | The index isn't used
        Include the header row | Don't include the header row
    """,
    "antonym": """
        Enable debug logging | Disable debug logging
        How do I start the service? | How do I stop the service?
        Add a column to the table | Remove a column from the table
        List open tickets | List closed tickets
        Sort the rows ascending | Sort the rows descending
        Encrypt the backup | Decrypt the backup
        Upgrade the driver | Downgrade the driver
        Turn the proxy on | Switch the proxy off
        Allow traffic from the office | Deny traffic from the office
        Increasing the pool size | Reduce the pool size
        Is the local branch clean? | Is the remote branch clean?
        Count valid addresses | Count invalid addresses
        Lock the account of a user | Unlock the account of a user
        Is the safety course optional? | Is the safety course compulsory?
        Recruit part-time tutors | Recruit full-time tutors
        May I park there during the market? | May I park there after the market?
        Which snacks should I avoid before a race? | Which snacks should I eat before a race?
        What are the symptoms of a sprain? | What are the causes of a sprain?
        Look after a mild rash | Look after a severe rash
        Cook with fresh beans | Cook with canned beans
        Get the first row | Get the last row
    """,
    "direction": """
        Copy the files from A to B | Copy the files from B to A
        Migrate the data from MySQL to Postgres | Migrate the data from Postgres to MySQL
        Convert JSON to YAML | Convert YAML to JSON
        Sync staging to production | Sync production to staging
        Download the dump to the server | Download the dump from the server
        Translate the page from German into French | Translate the page from French into German
        Replace tabs with spaces | Replace spaces with tabs
        Move 50 euros from checking to savings | Move 50 euros from savings to checking
        Merge develop into main | Merge main into develop
        Use tuples instead of lists | Use lists instead of tuples
        Convert celsius to kelvin | Convert kelvin to celsius
    """,
    "order": """
        Run migrations before restarting | Restart before running migrations
        Lint, then test | Test, then lint
        Back up the disk, then wipe it | Wipe the disk, then back it up
        Does the client call the server? | Does the server call the client?
        After the login, show the banner | After the banner, show the login
        Stop the queue before draining the pool | Drain the pool before stopping the queue
        The parent notifies the child | The child notifies the parent
        Compress and then encrypt the dump | Encrypt and then compress the dump
        Flush the cache after the deploy | Deploy after flushing the cache
        Does the worker poll the broker? | Does the broker poll the worker?
        Warm the cache, then open the gate | Open the gate, then warm the cache
    """,
    "scope": """
        Delete all logs | Delete only the logs of the proxy
        List all users except admins | List all users
        Export every table | Export a single table
        Restart all pods | Restart only the failed pods
        Remove files older than a month | Remove all files
        Keep at least three copies | Keep at most three copies
        Format the whole file | Format some of the file
        Send it to everyone | Send it to everyone except guests
        Back up only the schema | Back up everything
        Run each test | Run a few tests
        Show rows larger than the mean | Show all rows
    """,
    "modality": """
        Should we migrate to Kafka? | Migrate to Kafka
        Rotate the keys | Do we need to rotate the keys?
        Is it worth rewriting the parser? | Rewrite the parser
        Is the cache enabled? | Enable the cache
        Drop the old table | Is it safe to drop the old table?
        How do I split the monolith? | Should I split the monolith?
        Add an index to the table | Would you recommend adding an index to the table?
        Did we rotate the tokens? | Rotate the tokens
        Is it a good idea to squash commits? | Squash the commits
        Use a monorepo | Does it make sense to use a monorepo?
        Ought we to pin the versions? | Pin the versions
    """,
    "question": """
        Why does the job run at night? | When does the job run at night?
        Where is the config stored? | When is the config stored?
        Who owns the billing service? | Where is the billing service?
        How many workers are there? | How long do the workers live?
        When was the certificate renewed? | Who renewed the certificate?
        How much does a node cost? | How often does a node fail?
        Why was the branch deleted? | Who deleted the branch?
        Tell me when the lease ends | Tell me why the lease ends
        How long does the import take? | Why does the import take so much time?
        Where do the logs go? | When do the logs go?
        Do you know who approved it? | Do you know when they approved it?
    """,
}

THE_SAME = {
    "number": """
        Set the timeout to 30 seconds | Configure a 30-second timeout
        Use 1,000 rows | Use 1000 rows
        Allow two retries | Allow 2 retries
        Take a 5% sample | Take a sample of five percent
        Limit it to 10k requests | Limit it to 10 000 requests
        It takes 2 hours | It takes 120 minutes
        It took 1.5 million rows | It took 1,500,000 rows
        Wait half of it, 2h30m | Wait half of it, 150 minutes
        Which one is the fastest? | Which is fastest?
        Scale to twenty-five workers | Scale to 25 workers
        Pay $20 | Pay 20 dollars
        Keep it for a week | Keep it for one week
        1. Stop the job | Stop the job
    """,
    "version": """
        Upgrade to Python 3.12 | Upgrade to python v3.12
        Install Node 18 | Install node v18
        Use version 2.0 | Use version 2
        Pin it to 1.26.0 | Pin it to v1.26
        Python3.12 wheels | Wheels for Python 3.12
        Support TLS 1.3 | Support for TLS v1.3
        Move to Kubernetes 1.29 | Move to k8s 1.29
        Test release 4.1 | Test version 4.1
        Set up Java 17 | Install Java 17
        What is new in v2.3.0? | What's new in 2.3.0?
        IPv6 is on | IPv6 is enabled
    """,
    "identifier": """
        Summarize ticket OPS-42 | Give me a summary of OPS-42
        Review PR #12 | Review pull request 12
        Ping 10.0.0.1 | Send a ping to 10.0.0.1
        Open https://example.org/a/ | Open http://www.example.org/a
        Write to Ann@example.org | Write to ann@example.org
        Explain commit ABC1234 | Explain commit abc1234
        Close INFRA-7 please | Please close INFRA-7
        Look at issue #99. | Look at #99
        Is CVE-2024-1234 fixed? | Has CVE-2024-1234 been fixed?
        SHA-256 of the file | sha256 of the file
        Check RFC 7231 | Check RFC-7231
    """,
    "date": """
        The report of 2026-01-05 | The report of January 5 2026
        The release on Monday | The release on Mon
        A room for March 3rd | A room for 3 March
        It opens at 3pm | It opens at 15:00
        The sales of Sept 2025 | The sales of September 2025
        Back up the disk daily | Back up the disk every day
        At 8:00 am | At 08:00
        Deadline 2026/02/01 | Deadline 2026-02-01
        Due on Jan 7th | Due on January 7, 2026
        It may run in May | It might run in May
        At noon on Friday | On Friday at noon
    """,
    "unit": """
        Wait 90 seconds | Wait 1.5 minutes
        Limit uploads to 10 MB | Limit uploads to 10 megabytes
        A file of 2048 KB | A file of 2048 kilobytes
        It runs 24 hours | It runs one day
        Transfer 100 USD | Transfer $100
        Run 5 km | Run 5 kilometers
        Use 5 percent | Use 5%
        Cache it for 500 ms | Cache it for 0.5 s
        Lift 50 kg | Lift 50 kilograms
        A timeout of 30 | A timeout of 30 seconds
        A disk of 1 TB | A 1 terabyte disk
    """,
    "quoted": """
        Search the log for "disk full" | Search the log for 'disk full'
        Set "debug" to true | Set debug to true
        What does 'Broken pipe' mean? | What does "broken pipe" mean?
        Reply with “thanks a lot” | Reply with "thanks a lot"
        Explain `git rebase` | Explain git rebase
        Users' rights | The rights of users
        The customer's address | The customer’s address
        Call it "main" | Name it "main"
        Show the 'owner' column | Show the owner column
        Use the "default" profile | Use the default profile
        Rename "a" | Rename "a"
    """,
    "path": """
        Edit /etc/nginx/nginx.conf | Edit nginx.conf
        Explain src/app/main.py | Explain ./src/app/main.py
        Parse config.yaml | Parse Config.yaml
        Clean /tmp | Clean /tmp/
        Open README.md | Open the README.md file
        Read and/or write | Read or write
        Node.js streams | nodejs streams
        A client/server app | A client and server app
        Check `setup.cfg` | Check setup.cfg
        Run tests/test_a.py | Run the tests in tests/test_a.py
        List ~/notes | List the files in ~/notes
    """,
    "flag": """
        Run it with --force | Run it using --force
        Run it with -f | Run it with --force
        Explain git log --oneline | What does git log --oneline do?
        Build with --no-cache | Use --no-cache when building
        A read-only disk | A read only disk
        tar -x | tar -X
        Use `--verbose` | Use --verbose
        Pass --dry-run | Pass --dry_run
        A follow-up - with notes | A follow up with notes
        Sign-in with -v | Sign in with -v
        The add-on needs --yes | The addon needs --yes
    """,
    "code": """
        Refactor get_user | Refactor getUser
        Document parse_config() | Document parse_config
        Where is MAX_RETRIES used? | Where is max_retries used?
        Explain Cache.evict | Explain evict of Cache
        Rename the user_id field | Rename the user id field
        Use os.path.join | Use path.join from os
        Mock `fetch_page` | Mock fetch_page()
        The UserService class | The user service class
        GitHub actions | github actions
        A PostgreSQL table | A postgresql table
        Scholarships for an M.Sc | Scholarships for an MSc
        Can I enrol with a Ph.D? | Can I enrol with a PhD?
        Hash passwords, e.g. with salt | Hash passwords with salt
    """,
    "name": """
        Deploy to prod | Deploy to production
        Connect to Postgres | Connect to postgresql
        How do I use K8s? | How do I use Kubernetes?
        Write it in JavaScript | Write it in JS
        Host it on GCP | Host it on Google Cloud
        Restart The Server | restart the server
        ask martha | Ask Martha
        Train an ML model | Train a machine learning model
        Hotels in NYC | Hotels in New York
        Use TensorFlow | use tensorflow
        Export YAML | Export yml
        A recipe for Chinese dumplings | A recipe for dumplings from China
        Trains across Switzerland | Swiss trains
        Reset my MacBook | Reset my Mac laptop
        Do I need a visa for the USA? | Do I need a visa for the United States?
    """,
    "negation": """
        The switch is not disabled | The switch is enabled
        Why can't I log in? | Why am I unable to log in?
        The job doesn't start | The job won't start
        I'm not sure how to mount it | How do I mount it?
        Can't you restart it? | Can you restart it?
        Don't forget to lock the door | Remember to lock the door
        The file is not valid | The file is invalid
        Why doesn't the import work? | Why is the import not working?
        Check whether it runs or not | Check whether it runs
        It's not only fast | It is not only fast
        The key is no longer valid | The key isn't valid any longer
        The port is unavailable | The port is not available
        No, restart the worker | Restart the worker
    """,
    "antonym": """
        Enable debug logging | Turn on debug logging
        Start/stop the service | How do I start and stop the service?
        An open source licence | An open-source license
        The meeting on Monday | The Monday meeting
        It is close to the limit | It is near the limit
        Install the add-on | Install the addon
        Remove stop words | Delete the stopwords
        A start-up script | A startup script
        Increase the limit | Raise the limit
        Colour of the icon | Color of the icon
        Shut the VM down | Shut down the VM
        The process was cancelled | The process was canceled
        Redis takes less memory than Mongo | Mongo takes more memory than Redis
        Not enabled | Disabled
        Is the helmet mandatory? | Is the helmet compulsory?
        Offer guidance to interns | Offer advice to interns
    """,
    "direction": """
        Copy the files from A to B | Copy to B the files from A
        Convert JSON to YAML | How can JSON be converted to YAML?
        Migrate from MySQL to Postgres | Move from mysql to postgresql
        The difference between A and B | The difference between B and A
        Sync staging into production | Sync staging to production
        Compare lists with tuples | Compare tuples with lists
        How to upload it | Upload it
        Download the dump from the server | Fetch the dump from the server
        I want to go to Rome | I would like to travel to Rome
        Talk to the vendor | Speak to the vendor
        Merge develop into main | Merging develop into main
    """,
    "order": """
        Run migrations before restarting | Restart after running migrations
        Lint and test | Test and lint
        Before the restart, run the tests | Run the tests before the restart
        In the cache, find the key | Find the key in the cache
        The server is called by the client | The client calls the server
        Before you log in, read this | Read this before you log in
        The logs of the proxy | The proxy logs
        Add apples and pears | Add pears and apples
        First lint the code | Lint the code first
        Tomorrow restart the host | Restart the host tomorrow
        On port 80, serve the page | Serve the page on port 80
    """,
    "scope": """
        Delete all logs | Delete every log
        List the users | List all users
        Only the schema | The schema only
        Everything except admins | Everything excluding admins
        Restart all the pods | Restart all pods
        It's not only fast but small | It is fast and small
        A read-only file system | A readonly file system
        Each of the tests | All of the tests
        The entire file | The whole file
        All you need is a key | You need a key
        Show rows larger than the mean | Show the rows that are larger than the mean
    """,
    "modality": """
        Should we migrate to Kafka? | Is it a good idea to migrate to Kafka?
        How do I rotate the keys? | Rotate the keys
        Can you restart it? | Please restart it
        What should I do to mount a disk? | How do I mount a disk?
        I want to drop a table | Drop a table
        Is there a way to undo it? | How can I undo it?
        Is it possible to list them? | List them
        Could you please sort it? | Sort it
        We need to pin it | Pin it
        What is the best way to pin it? | How to pin it
        Do I need to pin it? | Do I have to pin it?
    """,
    "question": """
        Why does the job fail? | What is the reason the job fails?
        When does it start? | What time does it start?
        How many days does it take? | How long does it take?
        Where is the config stored? | Tell me where the config is stored
        Who owns the service? | Do you know who owns the service?
        How come it is slow? | Why is it slow?
        What happens when I restart? | What happens if I restart?
        Restart it when it hangs | Restart it if it hangs
        How do I sort a list? | What's the way to sort a list?
        Why is it slow? | Can you explain why it is slow?
        To rent a van, which papers do I need? | Which papers do I need to rent a van?
        How can we increase the number of visitors? | How do we get more visitors?
        What is the number of workers? | How many workers are there?
    """,
}

SUBSTITUTED = """
    How do I peel a mango? | How do I peel a papaya?
    Describe the pricing module | Describe the reporting module
    Write a poem about rivers | Write a poem about mountains
    Validate the invoice | Validate the passport
    Draw the login page | Draw the pricing page
    Tune the garbage collector | Tune the connection collector
    Summarize the budget meeting | Summarize the design meeting
    Estimate the effort of the audit | Estimate the effort of the redesign
    Sketch the payment flow | Sketch the onboarding flow
    Explain the retry policy | Explain the naming policy
    Plan a party for the team | Plan a workshop for the team
"""
NOT_SUBSTITUTED = """
    Deploy the service | Deploying the service
    Fix the bug | Solve the bug
    Delete the folder | Remove the directory
    Create a new user | Make a new user
    Show the config | Display the configuration
    How do I reset my password? | How can I reset my passwords?
    Check the encryption | Check the encrypted
    Restart the server | Restart the sevrer
    Optimise the query | Optimize the query
    Find large files | Locate large files
    The database backup | The db backup
    Summarise the report | Summarize the report
"""


def pairs(text: str) -> list[tuple[str, str]]:
    rows = [row.strip() for row in text.strip().splitlines()]
    return [(one.strip(), other.strip()) for one, other in (row.split(" | ") for row in rows)]


def all_of(table: dict[str, str]) -> list[tuple[str, str, str]]:
    return [(kind, one, other) for kind, text in table.items() for one, other in pairs(text)]


def weighty(one: str, other: str) -> dict[str, Contrast]:
    return {contrast.kind: contrast for contrast in contrasts(one, other) if contrast.strength >= WEIGHTY}


@pytest.mark.parametrize(("kind", "one", "other"), all_of(DIFFERENT))
def test_a_difference_is_raised_from_both_sides(kind: str, one: str, other: str) -> None:
    assert kind in weighty(one, other)
    assert kind in weighty(other, one)


@pytest.mark.parametrize(("kind", "one", "other"), all_of(THE_SAME))
def test_the_same_told_otherwise_raises_nothing_of_weight(kind: str, one: str, other: str) -> None:
    assert weighty(one, other) == {}
    assert weighty(other, one) == {}
    assert kind not in {contrast.kind for contrast in contrasts(one, other) if not contrast.one_sided}


@pytest.mark.parametrize("kind", sorted(DIFFERENT))
def test_every_kind_has_ten_examples_of_each(kind: str) -> None:
    assert len(pairs(DIFFERENT[kind])) >= 10
    assert len(pairs(THE_SAME[kind])) >= 10


@pytest.mark.parametrize(("one", "other"), pairs(SUBSTITUTED))
def test_a_word_in_the_place_of_another_is_raised_with_little_weight(one: str, other: str) -> None:
    (found,) = contrasts(one, other)
    assert found.kind == "substitution"
    assert 0.2 <= found.strength < WEIGHTY


@pytest.mark.parametrize(("one", "other"), pairs(NOT_SUBSTITUTED))
def test_forms_synonyms_and_typing_errors_are_no_substitution(one: str, other: str) -> None:
    assert contrasts(one, other) == ()


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("Deploy the service", "Deploy the service on port 8080", "number"),
        ("Restart the host", "Restart the host at 3pm", "date"),
        ("Fix the bug", "Fix the bug of OPS-42", "identifier"),
        ("Host the site", "Host the site on Azure", "name"),
        ("Read the settings", "Read the settings from /etc/app.conf", "path"),
        ("Refactor the loop", "Refactor the loop of run_all()", "code"),
        ("List the users", "List only the users", "scope"),
    ],
)
def test_what_one_side_mentions_alone_weighs_less(one: str, other: str, kind: str) -> None:
    (found,) = contrasts(one, other)
    assert (found.kind, found.one_sided, found.query_value) == (kind, True, "")
    assert 0 < found.strength < WEIGHTY


def test_a_contrast_reads_well() -> None:
    (found,) = contrasts("Enable the cache", "Disable the cache")
    assert found == Contrast("antonym", "Enable", "Disable", 1.0)
    assert str(found) == "Enable / Disable"
    assert str(contrasts("copy a.txt from A to B", "copy a.txt from B to A")[0]) == "A to B / B to A"
    assert str(contrasts("wait 30 seconds", "wait 300 seconds")[0]) == "30 seconds / 300 seconds"
    assert str(contrasts("deploy it", "deploy it on port 80")[0]) == "- / 80"


def test_the_strongest_comes_first_and_their_number_is_bounded() -> None:
    found = contrasts(
        "enable " + " ".join(f"key{n}=v{n}" for n in range(100)),
        "disable " + " ".join(f"key{n + 500}=w{n}" for n in range(100)),
    )
    assert len(found) <= 16
    assert list(found) == sorted(found, key=lambda contrast: -contrast.strength)


@pytest.mark.parametrize(
    ("one", "other", "kinds"),
    [
        ("Wie starte ich den Server neu?", "Wie kann ich den Server neu starten?", set()),
        ("Comment ouvrir le fichier ?", "Comment fermer le fichier ?", set()),
        ("¿Cómo puedo borrar los datos?", "¿Cómo puedo eliminar todos los datos?", set()),
        ("重启服务", "重新启动服务", set()),
        ("超时设置为30秒", "超时设置为300秒", {"number"}),
        ("把数据从PostgreSQL导出", "把数据从MySQL导出", {"name"}),
        ("在2026-01-05重启", "在2026-01-06重启", {"date"}),
        ("タイムアウトを３０秒にする", "タイムアウトを30秒にする", set()),
        ("Setze das Limit auf 10 MB für die Nutzer", "Setze das Limit auf 20 MB für die Nutzer", {"number"}),
        ("Как перезапустить сервер?", "Как запустить сервер снова?", set()),
    ],
)
def test_other_languages_raise_values_and_names_only(one: str, other: str, kinds: set[str]) -> None:
    assert {contrast.kind for contrast in contrasts(one, other)} == kinds


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "\n", "\0", "'", '"', "``", "1" * 500, "1," * 300, "-" * 300, "." * 300, "a" * 5000, "%" * 9,
        "\ud800 lone", "1e999999", "9" * 400 + ".9", "v" + "1." * 200, "@" * 200, "/" * 500, "99/99/9999", "99:99",
        "٣ ثواني", "²³", "twenty hundred thousand million one", "-1 --1 ---", "#" * 100 + "1", "(((", "💥" * 50,
        "31 feb 0000", "0th", "𝟙𝟚𝟛", "１２３", "not not not", "no", "to to from from",
    ],
)  # fmt: skip
def test_no_text_is_too_strange(text: str) -> None:
    for other in ("", "Enable the cache", text + " 1", text[::-1]):
        assert isinstance(contrasts(text, other), tuple)
        assert isinstance(contrasts(other, text), tuple)
    assert contrasts(text, text) == ()


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_two_texts_can_be_compared(one: str, other: str) -> None:
    assert contrasts(one, other) == contrasts(one, other)


_TELLING = """
enable disable not the from to 30 seconds v1.2 /etc/x --force `a b` all only before after should we staging Postgres #12
don't 5% Monday 2026-01-05 3pm get_user() "x y" first two thousand and , . ? how why
"""


def test_any_order_of_telling_words_can_be_compared() -> None:
    dice = random.Random(7)
    for _ in range(300):
        one = " ".join(dice.choices(_TELLING.split(), k=dice.randrange(12)))
        other = " ".join(dice.choices(_TELLING.split(), k=dice.randrange(12)))
        there, back = contrasts(one, other), contrasts(other, one)
        assert all(0 < contrast.strength <= 1 and contrast.query_value != contrast.stored_value for contrast in there)
        assert bool(there) == bool(back)


def test_in_a_long_text_two_ends_change_places_without_weight() -> None:
    one = (
        "The loader reads each entry of the archive, hands the entry to the verifier and keeps the verifier's answer, "
        "and when all entries are read it writes the answers to the report that the operator opens in the morning"
    )
    other = (
        "The report that the operator opens in the morning holds the answers: the loader reads each entry of the "
        "archive, the verifier answers to the entry that it was handed, and the answers are written when all are read"
    )
    assert all(contrast.strength < WEIGHTY for contrast in contrasts(one, other) if contrast.kind == "direction")


def test_long_texts_are_compared_from_their_first_difference_on() -> None:
    same = "The nodes of the cluster write their state to the disk every now and then. " * 2000
    assert {contrast.kind for contrast in contrasts(f"{same} Wait 30 seconds.", f"{same} Wait 300 seconds.")} == {
        "number"
    }
    far = "x " * WINDOW
    assert contrasts(f"Wait. {far} 30 seconds", f"Wait! {far} 300 seconds") == ()


@pytest.mark.parametrize(
    "filler", ["word ", "a", "1,", "1.", "/", "' ", '"', "a_", "a.", "-a", "A-1 ", "not ", "@a.", "é"]
)
def test_a_megabyte_takes_no_longer_than_the_window(filler: str) -> None:
    big = filler * (1_000_000 // len(filler))
    started = time.process_time()
    contrasts(big + "x", "y" + big)
    contrasts(big, "Enable the cache")
    assert time.process_time() - started < 1.0


def test_the_import_does_no_work() -> None:
    code = (
        "import sys; import subconscious_mcp.contrasts as c;"
        "from subconscious_mcp import antonyms, values;"
        "print(antonyms._table.cache_info().currsize, values._pattern.cache_info().currsize, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0", "False"]


@pytest.mark.parametrize(
    ("one", "other"),
    [("note", "not"), ("evening", "even"), ("egg", "eg"), ("plane", "plan"), ("theme", "them"), ("quit", "quite")],
)
def test_words_that_are_spelt_alike_have_stems_of_their_own(one: str, other: str) -> None:
    assert stem(one) != stem(other)
    assert stem(f"{one}s") == stem(one)


def test_a_note_denies_nothing() -> None:
    kinds = {contrast.kind for contrast in contrasts("Add a note to the ticket", "Add a comment to the ticket")}
    assert "negation" not in kinds
    assert contrasts("Delete the notes", "Delete all notes") == contrasts("Delete the logs", "Delete all logs")


def test_the_tables_agree() -> None:
    table = antonyms._table()
    confused = {(one, other) for one in table for other in table[one] if lexicon.same(one, other)}
    assert not confused
    assert all(table[other][one] == weight for one, others in table.items() for other, weight in others.items())
    assert sum(map(len, table.values())) // 2 > 1500


@pytest.mark.parametrize(
    "forms",
    [
        "enable enables enabled enabling",
        "stop stops stopped stopping",
        "add adds added adding",
        "cancel cancels cancelled canceled cancelling",
        "query queries queried querying",
        "cache caches cached caching",
        "fix fixes fixed fixing",
        "normalise normalize normalised normalizing",
        "colour color colours",
        "send sent sends sending",
        "write wrote written writing",
        "use uses used using",
    ],
)
def test_inflections_and_spellings_meet_in_one_stem(forms: str) -> None:
    assert len({stem(form) for form in forms.split()}) == 1


@pytest.mark.parametrize(("one", "other"), [("deploy", "deployment"), ("encrypt", "encryption"), ("server", "sevrer")])
def test_forms_of_one_word_are_akin(one: str, other: str) -> None:
    assert akin(stem(one), stem(other))


@pytest.mark.parametrize(("one", "other"), [("import", "export"), ("attach", "detach"), ("mango", "papaya")])
def test_other_words_are_not_akin(one: str, other: str) -> None:
    assert not akin(stem(one), stem(other))
