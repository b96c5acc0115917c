"""What other memories keep, read as lines of an export.

Three are known: the published subconscious-mcp (a folder of Chroma), the MCP reference memory server (a graph as
JSON lines), and the export of mcp-memory-service (one JSON document). Each reader yields an `Item` for everything
that it meets, with the reason where that is not to be imported. Nothing of the original is changed.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from subconscious_mcp.errors import InvalidArgument, StorageError
from subconscious_mcp.transfer_format import FORMAT, VERSION, Item, Payload

Format = Literal["subconscious", "chroma", "mcp-graph", "mcp-memory-service"]

MAX_LINE_BYTES = 64 << 20
"""A longer line is passed over unread: an entry has a million characters at most."""
MAX_DOCUMENT_BYTES = 1 << 30
"""A larger JSON document is refused, because it must be in memory at once."""
_LOOKED_AT = 1 << 16
_PUBLISHED = "subconscious"
"""The collection of the default namespace; that of another has its name behind an underscore."""
_CHROMA_FILE = "chroma.sqlite3"
_MILLISECONDS = 1e11


def detected(path: Path) -> Format:
    """Returns which of the formats a file or folder has.

    Raises:
        InvalidArgument: None of them.
        StorageError: It cannot be read.
    """
    if path.is_dir() or path.name == _CHROMA_FILE:
        if chroma_folder(path) is not None:
            return "chroma"
        raise InvalidArgument(f"{path} is a folder without {_CHROMA_FILE}.", "Name the file that was exported.")
    with opened(path) as file:
        head = file.read(_LOOKED_AT)
    text = head.decode("utf-8-sig", "replace").lstrip()
    first = _parsed(text.partition("\n")[0])
    if isinstance(first, dict) and first.get("format") == FORMAT:
        return "subconscious"
    if isinstance(first, dict) and first.get("type") in ("entity", "relation"):
        return "mcp-graph"
    if isinstance(first, dict) and first.get("type") in ("entry", "namespace", "feedback"):
        return "subconscious"
    if text.startswith("{") and ('"export_metadata"' in text or '"memories"' in text):
        return "mcp-memory-service"
    if text.startswith("{") and ('"entities"' in text or '"relations"' in text):
        return "mcp-graph"
    for line in text.split("\n")[:100]:
        # A first line may be damaged like any other.
        later = _parsed(line)
        if isinstance(later, dict) and later.get("type") in ("entity", "relation", "entry", "namespace"):
            return "mcp-graph" if later["type"] in ("entity", "relation") else "subconscious"
    raise InvalidArgument(
        f"{path} is no export that is known.",
        "--format says which it is: subconscious, chroma, mcp-graph or mcp-memory-service.",
    )


def read(path: Path, which: Format) -> Iterator[Item]:
    """Yields what a file or folder holds.

    Raises:
        InvalidArgument: It is not of that format at all, or of a version that is not known.
        StorageError: It cannot be read.
    """
    readers = {
        "subconscious": read_lines,
        "chroma": read_chroma,
        "mcp-graph": read_graph,
        "mcp-memory-service": read_memories,
    }
    return readers[which](path)


class opened:  # noqa: N801 - used like the function `open`
    """Opens a file for reading; errors of the file system leave it as `StorageError`s."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Any:
        try:
            self._file = self._path.open("rb")
        except OSError as error:
            raise _unreadable(self._path, error) from None
        return self._file

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._file.close()
        if isinstance(error, OSError):
            raise _unreadable(self._path, error) from None


def _unreadable(path: Path, error: OSError) -> StorageError:
    return StorageError(f"{path} cannot be read: {error.strerror or error}.", "Look at its name and its permissions.")


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _lines(path: Path) -> Iterator[tuple[int, bytes, float]]:
    """Yields number, bytes and share of the file for each line that is not blank; an overlong one is empty."""
    with opened(path) as file:
        size = max(1, path.stat().st_size)
        number = done = 0
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            done += len(line)
            overlong = len(line) == MAX_LINE_BYTES and not line.endswith(b"\n")
            while overlong and (rest := file.readline(MAX_LINE_BYTES)):
                done += len(rest)
                if rest.endswith(b"\n"):
                    break
            if overlong:
                yield number, b"", min(1.0, done / size)
            elif line.strip():
                yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line, min(1.0, done / size)


def _objects(path: Path) -> Iterator[Item]:
    """Yields the JSON objects of a file of lines."""
    for number, raw, share in _lines(path):
        place = f"line {number}"
        payload = _parsed(raw) if raw else None
        if not raw:
            yield Item(place, None, f"the line is longer than {MAX_LINE_BYTES >> 20} MB", share)
        elif isinstance(payload, dict):
            yield Item(place, payload, share=share)
        else:
            cut = not raw.endswith(b"\n")
            yield Item(place, None, "the line is cut off" if cut else "the line is no JSON object", share)


# --- our own


def read_lines(path: Path) -> Iterator[Item]:
    """Yields the lines of an export, the header among them.

    Raises:
        InvalidArgument: It was written by a newer version.
    """
    for item in _objects(path):
        payload = item.payload
        if payload is not None and payload.get("format") == FORMAT and payload.get("version") != VERSION:
            raise InvalidArgument(
                f"{path} was exported by a newer version of subconscious-mcp.", "Upgrade; nothing was imported."
            )
        yield item


# --- the published subconscious-mcp


def chroma_folder(path: Path) -> Path | None:
    """Returns the folder with Chroma's database that a path means: itself, or the `data` below it."""
    folder = path.parent if path.name == _CHROMA_FILE else path
    return next((one for one in (folder, folder / "data") if (one / _CHROMA_FILE).is_file()), None)


def read_chroma(path: Path) -> Iterator[Item]:
    """Yields the entries of the published subconscious-mcp, of every namespace that it has.

    Their vectors are not read: nothing tells which model they are of, and the texts are embedded again.

    Raises:
        InvalidArgument: There is none of its collections.
        StorageError: The folder cannot be copied.
        IndexUnreadable: Chroma cannot read the copy.
    """
    from subconscious_mcp.vectors import read_documents

    folder = chroma_folder(path)
    if folder is None:
        raise InvalidArgument(f"There is no {_CHROMA_FILE} in {path}.", "Name the folder that holds it.")
    with tempfile.TemporaryDirectory(prefix="subconscious-import-") as temporary:
        copy = Path(temporary)
        try:
            # Chroma changes what it opens. Documents and metadata are in the database; the folders beside it hold
            # vectors only.
            for file in folder.glob(f"{_CHROMA_FILE}*"):
                shutil.copyfile(file, copy / file.name)
        except OSError as error:
            raise _unreadable(folder, error) from None
        seen = 0
        for collection, size, documents in read_documents(copy, _PUBLISHED):
            name = collection.removeprefix(_PUBLISHED).removeprefix("_") or "default"
            for document in documents:
                seen += 1
                yield _published(name, document, f"{collection}/{document[0]}", min(1.0, seen / size))
        if not seen:
            raise InvalidArgument(
                f"{folder} holds no entries of subconscious-mcp.", f"Its collections begin with `{_PUBLISHED}`."
            )


def _published(name: str, document: tuple[str, str | None, dict[str, Any]], place: str, share: float) -> Item:
    entry_id, text, metadata = document
    tags = _parsed(str(metadata.get("tags_json") or "[]"))
    if not isinstance(tags, list):
        return Item(place, None, "its tags_json is no list", share)
    expires_at = metadata.get("expires_at")
    # The published server writes -1 for never, because Chroma takes no null.
    expires = expires_at if isinstance(expires_at, (int, float)) and expires_at > 0 else None
    payload: Payload = {
        "type": "entry",
        "id": entry_id,
        "kind": "episode" if metadata.get("kind") == "episode" else "memory",
        "namespace": name,
        "task": text,
        "answer": metadata.get("answer"),
        "created_at": metadata.get("stored_at", time.time()),
        "expires_at": expires,
        "tags": _clean_tags(tags),
        "source": "subconscious-mcp",
    }
    return Item(place, payload, share=share)


def _clean_tags(tags: list[Any]) -> list[str]:
    texts = (str(tag).strip() for tag in tags if isinstance(tag, (str, int, float)))
    return list(dict.fromkeys(text for text in texts if text))


# --- the MCP reference memory server


def read_graph(path: Path) -> Iterator[Item]:
    """Yields the observations and relations of a knowledge graph as facts.

    The graph has no times: they are as old as its file.
    """
    moment = _modified(path)
    whole = _document(path) if _is_document(path) else None
    if whole is not None:
        yield from _whole_graph(path, whole, moment)
        return
    for item in _objects(path):
        if item.payload is None:
            yield item
        else:
            yield from _facts(item.place, item.payload, moment, item.share)


def _is_document(path: Path) -> bool:
    """Returns whether a file is one JSON document of a graph, as the tool `read_graph` gives it."""
    with opened(path) as file:
        head = file.read(_LOOKED_AT).decode("utf-8-sig", "replace").lstrip()
    first = _parsed(head.partition("\n")[0])
    typed = isinstance(first, dict) and "type" in first
    return head.startswith("{") and not typed and ('"entities"' in head or '"relations"' in head)


def _whole_graph(path: Path, graph: Any, moment: float) -> Iterator[Item]:
    if not isinstance(graph, dict):
        raise InvalidArgument(f"{path} is no knowledge graph.")
    for kind, plural in (("entity", "entities"), ("relation", "relations")):
        found = graph.get(plural, [])
        for number, one in enumerate(found if isinstance(found, list) else [], 1):
            place = f"{kind} {number}"
            if isinstance(one, dict):
                yield from _facts(place, {**one, "type": kind}, moment, number / len(found))
            else:
                yield Item(place, None, f"it is no {kind}")


def _facts(place: str, payload: Payload, moment: float, share: float) -> Iterator[Item]:
    if payload.get("type") == "entity":
        name, entity_type = payload.get("name"), payload.get("entityType")
        observations = payload.get("observations")
        if not isinstance(name, str) or not name.strip() or not isinstance(observations, list):
            yield Item(place, None, "it is no entity: name or observations are missing", share)
            return
        tags = _clean_tags([entity_type]) if isinstance(entity_type, str) else []
        if not observations:
            yield Item(place, None, "the entity has no observations", share)
        for observation in dict.fromkeys(one for one in observations if isinstance(one, str)):
            if observation.strip():
                yield Item(place, _fact(f"{name}: {observation}", tags, moment), share=share)
            else:
                yield Item(place, None, "the observation is blank", share)
        others = sum(1 for one in observations if not isinstance(one, str))
        if others:
            yield Item(place, None, f"{others} observations are no texts", share)
    elif payload.get("type") == "relation":
        parts = [payload.get(part) for part in ("from", "relationType", "to")]
        if all(isinstance(part, str) and part.strip() for part in parts):
            yield Item(place, _fact(" ".join(str(part) for part in parts), [], moment), share=share)
        else:
            yield Item(place, None, "it is no relation: from, to or relationType are missing", share)
    else:
        yield Item(place, None, "it is neither an entity nor a relation", share)


def _fact(text: str, tags: list[str], moment: float) -> Payload:
    # From the content alone, so that the same graph adds nothing when it comes again.
    fact_id = uuid.uuid5(uuid.NAMESPACE_URL, "mcp-graph:" + json.dumps([text, tags])).hex
    return _text_payload(fact_id, "fact", text, moment, tags=tags, source="mcp-memory-server")


def _text_payload(entry_id: str, kind: str, text: str, created_at: Any, *, tags: list[str], source: str) -> Payload:
    return {
        "type": "entry",
        "id": entry_id,
        "kind": kind,
        "task": text,
        "answer": "",
        "created_at": created_at,
        "expires_at": None,
        "tags": tags,
        "source": source,
    }


def _modified(path: Path) -> float:
    try:
        return float(int(path.stat().st_mtime))
    except OSError as error:
        raise _unreadable(path, error) from None


# --- mcp-memory-service


def _document(path: Path) -> Any:
    with opened(path) as file:
        if path.stat().st_size > MAX_DOCUMENT_BYTES:
            raise InvalidArgument(f"{path} is larger than {MAX_DOCUMENT_BYTES >> 30} GB.", "Export it in parts.")
        try:
            return json.loads(file.read().decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
            raise InvalidArgument(
                f"{path} is no whole JSON document{where}.", "Was it cut off? Export it again."
            ) from None


def read_memories(path: Path) -> Iterator[Item]:
    """Yields the memories of an export of mcp-memory-service as notes.

    Raises:
        InvalidArgument: It is no such export, or cut off: one document has no lines to be saved.
    """
    document = _document(path)
    memories = document.get("memories") if isinstance(document, dict) else document
    if not isinstance(memories, list):
        raise InvalidArgument(f"{path} is no export of mcp-memory-service: it has no list `memories`.")
    about = document.get("export_metadata") if isinstance(document, dict) else None
    machine = about.get("source_machine") if isinstance(about, dict) else None
    for number, memory in enumerate(memories, 1):
        place, share = f"memory {number}", number / len(memories)
        if not isinstance(memory, dict) or not isinstance(memory.get("content"), str):
            yield Item(place, None, "it is no memory: content is missing", share)
            continue
        yield Item(place, _note(memory, machine), share=share)


def _note(memory: Payload, machine: Any) -> Payload:
    content = memory["content"]
    tags = memory.get("tags") or []
    # Older ones write them as one text.
    tags = _clean_tags(tags.split(",") if isinstance(tags, str) else tags if isinstance(tags, list) else [])
    kind = memory.get("memory_type")
    if isinstance(kind, str) and kind.strip() and kind.strip() != "note" and kind.strip() not in tags:
        tags.append(kind.strip())
    metadata = memory.get("metadata")
    sources = [metadata.get("source") if isinstance(metadata, dict) else None, machine, "mcp-memory-service"]
    named = memory.get("content_hash")
    note_id = uuid.uuid5(
        uuid.NAMESPACE_URL, "mcp-memory-service:" + (named if isinstance(named, str) and named else json.dumps(content))
    )
    source = next(source for source in sources if isinstance(source, str) and source.strip())
    return _text_payload(note_id.hex, "note", content, _moment(memory), tags=tags, source=source)


def _moment(memory: Payload) -> Any:
    """Returns when a memory was made, seconds since the epoch, as far as it says so."""
    for name in ("created_at", "created_at_iso", "timestamp", "updated_at"):
        value = memory.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value / 1000 if value > _MILLISECONDS else value
        if isinstance(value, str):
            try:
                at = datetime.fromisoformat(value.replace("Z", "+00:00"))
            except ValueError:
                continue
            return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()
    return time.time()
