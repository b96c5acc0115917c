"""The doctor tells what is wrong, mends it where that was asked for, and changes nothing else."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import OpenMemory
from fakes import FakeEmbedder
from kills import SEGMENT, cut_database, delete_index

from subconscious_mcp import doctor, model_files, salvage
from subconscious_mcp.config import Config, Resolved, resolve
from subconscious_mcp.database import Database
from subconscious_mcp.doctor import Doctor, Finding
from subconscious_mcp.embedding import Embedder
from subconscious_mcp.errors import IndexUnreadable, ModelUnavailable, StorageDamaged
from subconscious_mcp.local_store import LocalStore
from subconscious_mcp.model_files import ModelStatus
from subconscious_mcp.storage_lock import StorageLock
from subconscious_mcp.vectors import ChromaIndex

ENTRIES = 60


@pytest.fixture
def resolved(config: Config) -> Resolved:
    return replace(resolve(), config=config)


@pytest.fixture(autouse=True)
def status(monkeypatch: pytest.MonkeyPatch, embedder: FakeEmbedder, tmp_path: Path) -> ModelStatus:
    """A sound model, which is the fake one."""
    sound = ModelStatus(
        name="fake", folder=tmp_path / "model", installed=True, problem="", manifest=None, files={"model.onnx": "ok"}
    )

    def load(config: Config) -> Embedder:
        return embedder

    def open_store(config: Config, command: str) -> LocalStore:
        return LocalStore(config.storage_dir, command=command)

    monkeypatch.setattr(model_files, "verify", lambda name, folder: sound)
    monkeypatch.setattr(doctor, "load_embedder", load)
    monkeypatch.setattr(doctor, "open_store", open_store)
    return sound


@pytest.fixture
def folder(open_memory: OpenMemory, config: Config, embedder: FakeEmbedder) -> Path:
    """A sound storage directory, closed."""
    memory = open_memory()
    scope = memory.scope(config, "tests", None)
    for number in range(ENTRIES):
        memory.remember(scope, f"task {number}", f"answer {number} " * 50, tags=[f"tag{number}"])
    memory.recall(scope, "task 1")
    memory.settle()
    assert isinstance(memory.store, LocalStore)
    memory.store.prepare_index(embedder.fingerprint, embedder.dimension)
    memory.store.bring_index_up_to_date()
    memory.close()
    return config.storage_dir


Examine = Callable[..., dict[str, Finding]]


@pytest.fixture
def examine(resolved: Resolved) -> Examine:
    def run(**options: bool) -> dict[str, Finding]:
        findings = list(Doctor(resolved, **options).examine())
        # The storage is free again.
        if resolved.config.storage_dir.is_dir():
            StorageLock(resolved.config.storage_dir, "tests").release()
        # Of several with one name the last, which tells what is so in the end.
        return {finding.check: finding for finding in findings}

    return run


def states(findings: dict[str, Finding]) -> dict[str, str]:
    return {check: finding.state for check, finding in findings.items() if check not in ("versions", "disk")}


SOUND = {
    "settings": "ok",
    "model": "ok",
    "memory.db": "ok",
    "full text": "ok",
    "vectors": "ok",
    "index": "ok",
    "echo_log_tests.jsonl": "ok",
}


@pytest.mark.parametrize("repair", [False, True])
def test_a_sound_directory(folder: Path, examine: Examine, repair: bool) -> None:
    findings = examine(repair=repair)
    assert states(findings) == SOUND
    assert f"{ENTRIES} entries in 1 namespaces" in findings["memory.db"].detail
    assert "chromadb" in findings["versions"].detail
    assert findings["disk"].state in ("ok", "warning")


def test_a_directory_that_is_not_there_is_not_made(config: Config, examine: Examine) -> None:
    findings = examine(repair=True)
    assert findings["storage"].state == "ok"
    assert not config.storage_dir.exists()


def test_a_full_disk_is_a_warning(folder: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LOW_SPACE_BYTES", 1 << 80)
    assert examine()["disk"].state == "warning"


def test_warnings_of_the_settings_are_told(folder: Path, resolved: Resolved) -> None:
    told = list(Doctor(replace(resolved, warnings=("a misspelt key",))).examine())
    assert Finding("settings", "warning", "a misspelt key") in told


def test_a_file_in_the_place_of_the_directory(config: Config, resolved: Resolved) -> None:
    config.storage_dir.write_text("x")
    findings = {finding.check: finding for finding in Doctor(resolved, repair=True).examine()}
    assert findings["storage"].state == "problem"
    assert "it is a file" in findings["storage"].detail


def test_a_directory_in_use_is_told(folder: Path, resolved: Resolved) -> None:
    lock = StorageLock(folder, "another window")
    findings = {finding.check: finding for finding in Doctor(resolved, repair=True).examine()}
    lock.release()
    assert findings["storage"].state == "problem"
    assert "another window" in findings["storage"].detail
    assert "memory.db" not in findings


# --- the model


def test_a_damaged_model_is_told_and_the_rest_examined(
    folder: Path, examine: Examine, status: ModelStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = replace(status, installed=False, problem="model.onnx is damaged")
    monkeypatch.setattr(model_files, "verify", lambda name, folder: broken)
    findings = examine()
    assert findings["model"] == Finding("model", "problem", "model.onnx is damaged", findings["model"].hint)
    assert "model install" in findings["model"].hint
    assert states(findings).keys() == {"settings", "model", "memory.db", "full text", "echo_log_tests.jsonl"}

    installed: list[str] = []
    monkeypatch.setattr(model_files, "install", lambda name, folder, progress: installed.append(name))
    findings = examine(repair=True)
    assert findings["model"].state == "mended"
    assert findings["index"].state == "ok"
    assert installed == [resolve().config.embedding_model]


def test_a_model_that_cannot_be_installed_is_told(
    folder: Path, examine: Examine, status: ModelStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(*arguments: object, **options: object) -> None:
        raise ModelUnavailable("no source could deliver it", "give a folder")

    monkeypatch.setattr(model_files, "verify", lambda name, folder: replace(status, installed=False, problem="x"))
    monkeypatch.setattr(model_files, "install", install)
    findings = examine(repair=True)
    assert findings["model"] == Finding("model", "problem", "no source could deliver it", "give a folder")
    assert findings["memory.db"].state == "ok"


# --- memory.db


def break_pages(folder: Path, pages: range, seed: int = 0) -> bytes:
    path = folder / "memory.db"
    raw = bytearray(path.read_bytes())
    rnd = random.Random(seed)
    for page in pages:
        raw[page * 4096 : page * 4096 + 4096] = rnd.randbytes(4096)
    path.write_bytes(raw)
    return bytes(raw)


def entry_pages(folder: Path) -> list[int]:
    """Returns the leaf pages of the table of entries, counted from 0."""
    raw = (folder / "memory.db").read_bytes()
    return [at // 4096 for at in range(4096, len(raw), 4096) if raw[at] == 13 and b"answer" in raw[at : at + 4096]]


def test_a_damaged_database_is_told_and_not_touched(folder: Path, examine: Examine) -> None:
    page = entry_pages(folder)[3]
    raw = break_pages(folder, range(page, page + 1))
    findings = examine()
    assert findings["memory.db"].state == "problem"
    assert "doctor --repair" in findings["memory.db"].hint
    assert (folder / "memory.db").read_bytes() == raw
    assert not list(folder.glob("memory.damaged*"))


def test_what_can_be_read_of_a_damaged_database_is_kept(
    folder: Path, examine: Examine, resolved: Resolved, embedder: FakeEmbedder
) -> None:
    page = entry_pages(folder)[3]
    raw = break_pages(folder, range(page, page + 1))
    findings = list(Doctor(resolved, repair=True).examine())
    mended = next(finding for finding in findings if finding.check == "memory.db")
    assert mended.state == "mended"
    kept = list(folder.glob("memory.damaged-*.db"))
    assert len(kept) == 1
    assert kept[0].read_bytes() == raw
    assert str(kept[0]) in mended.detail
    assert not (folder / "memory.salvage").exists()

    assert {**states(examine()), "memory.db": "ok"} == SOUND
    db = Database(folder)
    space = db.namespace("tests", None)
    left = db.count(space, ["memory"], 0)
    assert ENTRIES - 15 <= left < ENTRIES
    assert f"{left} entries copied" in mended.detail
    assert db.count_unembedded(embedder.fingerprint) == 0
    db.close()


def test_a_database_that_cannot_be_opened_gives_way_to_a_new_one(folder: Path, examine: Examine) -> None:
    (folder / "memory.db").write_bytes(b"no database at all " * 1000)
    assert examine()["memory.db"].state == "problem"
    findings = examine(repair=True)
    assert findings["memory.db"].state == "ok"
    assert "0 entries" in findings["memory.db"].detail
    assert states(examine())["memory.db"] == "ok"
    assert len(list(folder.glob("memory.damaged-*.db"))) == 1


def test_two_repairs_in_one_second_keep_both_files(
    folder: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.time, "strftime", lambda form: "20300101-000000")
    monkeypatch.setattr(doctor.os, "link", _refuse)
    for content in (b"first" * 1000, b"second" * 1000):
        (folder / "memory.db").write_bytes(content)
        examine(repair=True)
    kept = sorted(folder.glob("memory.damaged-*.db"))
    assert [path.read_bytes()[:5] for path in kept] == [b"secon", b"first"]


def _refuse(*arguments: object) -> None:
    raise OSError(95, "Operation not supported")


def test_a_repair_that_stops_leaves_the_damaged_file(
    folder: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = b"no database at all " * 1000
    (folder / "memory.db").write_bytes(raw)

    def full(*arguments: object) -> tuple[int, int]:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(salvage, "salvage", full)
        findings = examine(repair=True)
    assert findings["storage"].state == "problem"
    assert "No space left" in findings["storage"].detail
    assert (folder / "memory.db").read_bytes() == raw
    assert examine(repair=True)["memory.db"].state == "ok"


def test_a_check_that_cannot_go_on_is_damage(folder: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Database._read

    def read(self: Database, sql: str, parameters: tuple[object, ...] = ()) -> list[object]:
        if "integrity_check" in sql and not list(folder.glob("memory.damaged-*")):
            raise StorageDamaged("it is damaged")
        return plain(self, sql, parameters)

    monkeypatch.setattr(Database, "_read", read)
    assert examine()["memory.db"].state == "problem"
    findings = examine(repair=True)
    assert findings["memory.db"].state == "ok"
    assert f"{ENTRIES} entries" in findings["memory.db"].detail


# --- vectors


def change_database(folder: Path, sql: str, *values: object) -> None:
    with sqlite3.connect(folder / "memory.db") as file:
        file.execute(sql, values)
    file.close()


def test_missing_vectors_are_told_and_embedded(folder: Path, examine: Examine, resolved: Resolved) -> None:
    change_database(folder, "DELETE FROM vectors WHERE entry % 3 = 0")
    findings = examine()
    assert findings["vectors"].state == "problem"
    assert f"{ENTRIES // 3} entries" in findings["vectors"].detail
    told: list[tuple[int, int]] = []
    mended = list(Doctor(resolved, repair=True, embedded=lambda done, total: told.append((done, total))).examine())
    assert Finding("vectors", "mended", f"{ENTRIES // 3} entries were embedded again") in mended
    assert told == [(ENTRIES // 3, ENTRIES // 3)]
    assert states(examine()) == SOUND


def test_vectors_of_a_wrong_length_are_told_and_embedded(folder: Path, examine: Examine) -> None:
    change_database(folder, "UPDATE vectors SET vector = ? WHERE entry = 5", b"too short")
    findings = examine()
    assert findings["vectors"].state == "problem"
    assert "1 entries" in findings["vectors"].detail
    assert examine(compact=True)["index"].state in ("ok", "mended", "problem")
    assert examine(repair=True)["vectors"].state == "mended"
    assert states(examine()) == SOUND


# --- the index


def gut_segments(folder: Path, rnd: random.Random) -> None:
    for path in folder.iterdir():
        if SEGMENT.fullmatch(path.name):
            (path / "header.bin").write_bytes(b"\0" * 7)


@pytest.mark.parametrize("damage", [cut_database, gut_segments])
def test_a_damaged_index_is_told_and_built_anew(
    folder: Path, examine: Examine, damage: Callable[[Path, random.Random], None]
) -> None:
    damage(folder, random.Random(1))
    findings = examine()
    assert findings["index"].state == "problem"
    assert "doctor --repair" in findings["index"].hint
    findings = examine(repair=True)
    assert findings["index"].state == "mended"
    assert f"{ENTRIES} vectors" in findings["index"].detail
    assert states(examine()) == SOUND


def test_a_missing_index_is_told_and_built_anew(folder: Path, examine: Examine) -> None:
    delete_index(folder, random.Random(0))
    findings = examine()
    assert findings["index"].state == "warning"
    assert f"lacks {ENTRIES}" in findings["index"].detail
    assert examine(repair=True)["index"].state == "mended"
    assert states(examine()) == SOUND


def test_strangers_in_the_index_are_told_and_removed(folder: Path, examine: Examine, embedder: FakeEmbedder) -> None:
    index = ChromaIndex(folder)
    index.open()
    index.add(f"memory.1.{embedder.fingerprint}", ["stranger"], np.ones((1, 384), np.float32), {})
    index.close()
    assert "1 too many" in examine()["index"].detail
    assert examine(repair=True)["index"].detail == "0 vectors added, 1 removed"
    assert states(examine()) == SOUND


def test_an_index_that_cannot_be_built_does_not_hide_the_logs(
    folder: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: ChromaIndex) -> None:
        raise IndexUnreadable("never", "a hint")

    monkeypatch.setattr(ChromaIndex, "open", fail)
    findings = examine(repair=True)
    assert findings["index"] == Finding("index", "problem", "never", "a hint")
    assert findings["echo_log_tests.jsonl"].state == "ok"


def test_compacting(folder: Path, examine: Examine) -> None:
    before = (folder / "memory.db").stat().st_size
    change_database(folder, "DELETE FROM entries WHERE key > 5")
    findings = examine(compact=True)
    assert findings["index"] == Finding("index", "mended", "deleted vectors have left its files")
    assert (folder / "memory.db").stat().st_size < before
    assert states(examine()) == SOUND


# --- echo logs


def test_damaged_lines_are_told_and_removed(folder: Path, examine: Examine) -> None:
    with (folder / "echo_log_tests.jsonl").open("ab") as file:
        file.write(b"{\n\xff\n[]\n")
    findings = examine()
    assert findings["echo_log_tests.jsonl"].state == "warning"
    assert "3 damaged lines" in findings["echo_log_tests.jsonl"].detail
    assert examine(repair=True)["echo_log_tests.jsonl"].state == "mended"
    assert states(examine()) == SOUND


def test_a_log_that_cannot_be_read_does_not_hide_the_others(folder: Path, examine: Examine) -> None:
    (folder / "echo_log_a.jsonl").mkdir()
    findings = examine(repair=True)
    assert findings["echo_log_a.jsonl"].state == "problem"
    assert findings["echo_log_tests.jsonl"].state == "ok"
