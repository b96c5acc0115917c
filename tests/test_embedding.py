"""The embedder: the right numbers, whatever the text, the thread, the batch or the model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_model
from hypothesis import given
from hypothesis import strategies as st

from subconscious_mcp import embedding, model_files
from subconscious_mcp.embedding import MiniLMEmbeddingFunction, OnnxEmbedder, Piece, batches, pool, windows
from subconscious_mcp.errors import InvalidArgument, ModelDamaged, ModelError, ModelMissing

CANONICAL = json.loads((Path(__file__).parent / "canonical_vectors.json").read_text(encoding="utf-8"))["vectors"]


def install(source: Path, tmp_path: Path) -> Path:
    return model_files.install(str(source), tmp_path / "models")


@pytest.fixture
def tiny_folder(tmp_path: Path) -> Path:
    tiny_model.write_bert(tmp_path / "bert")
    return install(tmp_path / "bert", tmp_path)


@pytest.fixture
def tiny(tiny_folder: Path) -> OnnxEmbedder:
    return OnnxEmbedder.load(tiny_folder)


# Windows, batches, pooling


@given(st.lists(st.integers(), max_size=400), st.integers(1, 50))
def test_windows_cover_every_token_once_and_evenly(ids: list[int], room: int) -> None:
    found = windows(ids, room)
    assert [token for window in found for token in window] == ids
    lengths = [len(window) for window in found]
    assert max(lengths) <= room
    assert max(lengths) - min(lengths) <= 1
    assert len(found) == max(1, -(-len(ids) // room))


@given(st.lists(st.integers(1, 60), max_size=80), st.integers(1, 128))
def test_batches_hold_every_piece_once_within_the_limit(lengths: list[int], limit: int) -> None:
    pieces = [Piece(number, [0] * length) for number, length in enumerate(lengths)]
    found = list(batches(pieces, limit))
    assert sorted(piece.text for batch in found for piece in batch) == list(range(len(pieces)))
    for batch in found:
        longest = max(len(piece.ids) for piece in batch)
        assert longest == len(batch[0].ids)
        assert len(batch) == 1 or longest * len(batch) <= limit


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean", [2.0, -3.0]),
        ("cls", [1.0, -2.0]),
        ("max", [3.0, -2.0]),
        ("mean_sqrt_len", [2.0**0.5 * 2, -(2.0**0.5) * 3]),
    ],
)
def test_pooling_leaves_padding_out(pooling: str, expected: list[float]) -> None:
    tokens = np.array([[[1, -2], [3, -4], [100, 100]]], dtype=np.float32)
    result = pool(tokens, np.array([[1, 1, 0]]), pooling)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, [expected], rtol=1e-6)


# A tiny model: other dimension, other pooling, other longest input


def test_tiny_model_has_its_own_measures(tiny: OnnxEmbedder) -> None:
    assert (tiny.dimension, tiny.max_tokens, len(tiny.fingerprint)) == (32, 16, 12)
    assert set(tiny.fingerprint) <= set("0123456789abcdef")


def test_vectors_are_those_of_the_definition(tmp_path: Path) -> None:
    weights = tiny_model.write_bert(tmp_path / "bert", "cls")
    embedder = OnnxEmbedder.load(install(tmp_path / "bert", tmp_path))
    words = ["when", "do", "we", "rotate", "the", "deploy", "key", "?"]
    ids = [2, *(tiny_model.VOCABULARY.index(word) for word in words), 3]
    result = embedder.embed_query(" ".join(words))
    np.testing.assert_allclose(result, tiny_model.reference(weights, ids, "cls"), atol=2e-6)


def test_a_long_text_is_the_mean_of_its_windows(tiny: OnnxEmbedder) -> None:
    # 14 places beside the special tokens; 20 words make two windows of ten.
    first, second = "deploy key " * 5, "server down " * 5
    parts = tiny.embed([first, second]).sum(axis=0)
    np.testing.assert_allclose(tiny.embed_query(first + second), parts / np.linalg.norm(parts), atol=1e-6)


def test_texts_that_differ_only_after_the_longest_input_differ(tiny: OnnxEmbedder) -> None:
    same = "cat sleep " * 20
    one, other = tiny.embed([same + "deploy key", same + "server down"])
    assert float(one @ other) < 0.9999


@given(st.lists(st.text(max_size=60), max_size=30))
def test_every_text_has_a_vector_of_length_one(texts: list[str]) -> None:
    vectors = _module_embedder().embed(texts)
    assert vectors.shape == (len(texts), 32)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


_cached: list[OnnxEmbedder] = []


@pytest.fixture(scope="module", autouse=True)
def _embedder_for_properties(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("properties")
    tiny_model.write_bert(folder / "bert")
    _cached[:] = [OnnxEmbedder.load(install(folder / "bert", folder))]


def _module_embedder() -> OnnxEmbedder:
    return _cached[0]


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\x00", "\ud800", "a\udfffb", "🎉" * 50, "x" * 100_000, "\u200b"])
def test_odd_texts_have_vectors(tiny: OnnxEmbedder, text: str) -> None:
    vector = tiny.embed_query(text)
    assert vector.shape == (32,)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


def test_a_lone_surrogate_reads_as_a_question_mark(tiny: OnnxEmbedder) -> None:
    np.testing.assert_array_equal(tiny.embed_query("key \ud83d"), tiny.embed_query("key ?"))


def test_a_vector_does_not_depend_on_its_neighbours(tiny: OnnxEmbedder) -> None:
    texts = [("deploy key " * (number % 30)) + "cat" * (number % 3) for number in range(200)]
    together = tiny.embed(texts)
    np.testing.assert_allclose(together, np.stack([tiny.embed_query(text) for text in texts]), atol=1e-6)
    np.testing.assert_allclose(together[::-1], tiny.embed(texts[::-1]), atol=1e-6)


def test_no_texts_give_no_vectors(tiny: OnnxEmbedder) -> None:
    assert tiny.embed([]).shape == (0, 32)


def test_progress_counts_texts_in_the_calling_thread(tiny: OnnxEmbedder) -> None:
    seen: list[tuple[int, int]] = []
    texts = ["deploy key " * 20] * 150
    tiny.embed(texts, lambda done: seen.append((done, threading.get_ident())))
    counts = [done for done, _ in seen]
    assert counts == sorted(counts)
    assert counts[-1] == 150
    assert {thread for _, thread in seen} == {threading.get_ident()}


def test_several_threads_may_ask_at_once(tiny: OnnxEmbedder) -> None:
    texts = [f"deploy key {number} " + "cat " * (number % 40) for number in range(60)]
    expected = np.stack([tiny.embed_query(text) for text in texts])
    with ThreadPoolExecutor(8) as threads:
        bulk = threads.submit(tiny.embed, texts * 4)
        alone = np.stack(list(threads.map(tiny.embed_query, texts)))
    np.testing.assert_allclose(alone, expected, atol=1e-6)
    np.testing.assert_allclose(bulk.result(), np.concatenate([expected] * 4), atol=1e-6)


# Two threads


def _work(count: int) -> list[list[Piece]]:
    return [[Piece(number, [1])] for number in range(count)]


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_every_batch_is_run_once(monkeypatch: pytest.MonkeyPatch, cores: int, count: int) -> None:
    monkeypatch.setattr(embedding, "_cores", lambda: cores)
    results = embedding._in_two_threads(lambda batch: np.array([batch[0].text]), _work(count))
    assert sorted(int(rows[0]) for _, rows in results) == list(range(count))


@pytest.mark.parametrize("in_caller", [True, False])
def test_a_failure_in_either_thread_reaches_the_caller(monkeypatch: pytest.MonkeyPatch, in_caller: bool) -> None:
    monkeypatch.setattr(embedding, "_cores", lambda: 2)
    caller = threading.get_ident()
    both = threading.Barrier(2)

    def run(batch: list[Piece]) -> Any:
        if batch[0].text < 2:
            both.wait()
            if (threading.get_ident() == caller) == in_caller:
                raise ModelDamaged("broken")
        return np.zeros(1)

    with pytest.raises(ModelDamaged, match="broken"):
        list(embedding._in_two_threads(run, _work(2)))


def test_the_second_thread_ends_when_the_caller_stops_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "_cores", lambda: 2)
    results = embedding._in_two_threads(lambda _: np.zeros(1, dtype=np.float32), _work(1000))
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name == "embedding"]


def test_the_second_thread_has_half_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, places in (({0}, ""), ({0, 1}, "1"), ({2, 5}, "3"), ({0, 1, 2, 3, 4}, "1,2")):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: cores, raising=False)
        assert embedding._helper_places() == places
    monkeypatch.delattr(os, "sched_getaffinity")
    assert embedding._helper_places() == ""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no such call on this system")
def test_the_second_thread_runs_where_it_was_told(real_model_dir: Path) -> None:
    own = os.sched_getaffinity(0)
    threads = Path("/proc/self/task")
    before = set(threads.iterdir())
    embedder = OnnxEmbedder.load(real_model_dir)
    places = [os.sched_getaffinity(int(thread.name)) for thread in set(threads.iterdir()) - before]
    if len(own) > 1:
        assert set(sorted(own)[: len(own) // 2]) in places
    assert embedder.embed_query("a").shape == (384,)


def test_cores_are_those_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert embedding._cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert embedding._cores() == 1


# Other repositories' exports


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "mean_sqrt_len"])
@pytest.mark.parametrize("output", ["last_hidden_state", "token_embeddings", "something"])
def test_an_export_is_pooled_as_its_own_files_say(tmp_path: Path, pooling: str, output: str) -> None:
    table = tiny_model.write_export(tmp_path / "export", pooling, output=output)
    embedder = OnnxEmbedder.load(install(tmp_path / "export", tmp_path))
    assert (embedder.dimension, embedder.max_tokens) == (8, 12)
    ids = [2, *(tiny_model.VOCABULARY.index(word) for word in ("cat", "sleep", "key")), 3]
    rows = table[ids]
    expected = {"mean": rows.mean(0), "cls": rows[0], "max": rows.max(0), "mean_sqrt_len": rows.mean(0)}[pooling]
    batch = embedder.embed(["cat sleep key", "deploy deploy deploy deploy deploy deploy"])
    np.testing.assert_allclose(batch[0], expected / np.linalg.norm(expected), atol=1e-6)


def test_fingerprints_tell_models_poolings_and_lengths_apart(tmp_path: Path) -> None:
    found = set()
    for number, (pooling, longest) in enumerate([("mean", 12), ("cls", 12), ("mean", 10)]):
        tiny_model.write_export(tmp_path / str(number), pooling, max_tokens=longest)
        found.add(OnnxEmbedder.load(install(tmp_path / str(number), tmp_path)).fingerprint)
    for seed in (0, 1):
        tiny_model.write_bert(tmp_path / f"bert{seed}", seed=seed)
        found.add(OnnxEmbedder.load(install(tmp_path / f"bert{seed}", tmp_path)).fingerprint)
    assert len(found) == 5


def test_a_copy_elsewhere_has_the_same_fingerprint(tmp_path: Path) -> None:
    tiny_model.write_bert(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    one, two = (OnnxEmbedder.load(install(tmp_path / name, tmp_path)) for name in ("one", "two"))
    assert one.fingerprint == two.fingerprint


def test_a_tokenizer_without_special_tokens_or_padding(tmp_path: Path) -> None:
    folder = tmp_path / "export"
    tiny_model.write_export(folder)
    raw = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    (folder / "tokenizer.json").write_text(json.dumps({**raw, "post_processor": None, "padding": None}))
    embedder = OnnxEmbedder.load(install(folder, tmp_path))
    vectors = embedder.embed(["", "cat " * 40, "cat"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors[1], vectors[2], atol=1e-6)


# Damage


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def _blank(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("name", ["model.safetensors", "model.onnx", "tokenizer.json", "config.json"])
@pytest.mark.parametrize("damage", [_cut, _blank, Path.unlink])
def test_damaged_files_are_reported_with_the_way_out(
    tiny_folder: Path, name: str, damage: Callable[[Path], None]
) -> None:
    if damage is _cut and name == "config.json":
        (tiny_folder / name).write_text("{")
    else:
        damage(tiny_folder / name)
    with pytest.raises(ModelDamaged) as caught:
        OnnxEmbedder.load(tiny_folder)
    assert name in caught.value.message
    assert "subconscious-mcp model install" in caught.value.hint


@pytest.mark.parametrize("name", ["tokenizer.json", "onnx/model.onnx"])
def test_files_that_were_never_right_are_no_raw_error(tmp_path: Path, name: str) -> None:
    tiny_model.write_export(tmp_path / "export")
    (tmp_path / "export" / name).write_bytes(b"{}")
    folder = install(tmp_path / "export", tmp_path)
    with pytest.raises(ModelDamaged, match="model install"):
        OnnxEmbedder.load(folder)


def test_a_model_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="--from PATH"):
        OnnxEmbedder.load(tmp_path / "nothing")


def test_weights_that_yield_no_direction_are_damage(tmp_path: Path) -> None:
    weights = tiny_model.write_bert(tmp_path / "bert")
    for value in (0.0, np.nan):
        last = {name: np.full_like(item, value) for name, item in weights.items()}
        tiny_model.write_safetensors(tmp_path / "bert" / "model.safetensors", last)
        embedder = OnnxEmbedder.load(install(tmp_path / "bert", tmp_path))
        with pytest.raises(ModelDamaged, match="no usable vectors"):
            embedder.embed_query("cat")


def test_a_graph_of_another_width_or_other_inputs_is_damage(tmp_path: Path) -> None:
    tiny_model.write_export(tmp_path / "export")
    (tmp_path / "export" / "1_Pooling" / "config.json").write_text('{"word_embedding_dimension": 9}')
    embedder = OnnxEmbedder.load(install(tmp_path / "export", tmp_path))
    with pytest.raises(ModelDamaged, match="8 numbers, not 9"):
        embedder.embed_query("cat")
    embedder._inputs.add("pixels")
    with pytest.raises(ModelDamaged, match="cannot be run"):
        embedder.embed_query("cat")


# Side effects


def _run_python(code: str, home: Path, *arguments: str) -> str:
    environment = {**os.environ, "HOME": str(home), "USERPROFILE": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    root = str(Path(embedding.__file__).resolve().parent.parent)
    environment["PYTHONPATH"] = root
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def test_importing_loads_no_engine(tmp_path: Path) -> None:
    code = "import sys, subconscious_mcp.embedding; print(*sys.modules)"
    loaded = set(_run_python(code, tmp_path).split())
    assert not loaded & {"onnxruntime", "tokenizers", "chromadb", "huggingface_hub"}


def test_embedding_writes_nothing_and_loads_no_other_engine(tiny_folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    before = sorted((path, path.stat().st_mtime_ns) for path in tiny_folder.rglob("*"))
    code = (
        "import sys, os, pathlib; from subconscious_mcp.embedding import OnnxEmbedder;"
        "OnnxEmbedder.load(pathlib.Path(sys.argv[1])).embed(['deploy key'] * 300);"
        "print(os.environ['ORT_DISABLE_TELEMETRY'], 'chromadb' in sys.modules, 'huggingface_hub' in sys.modules)"
    )
    assert _run_python(code, home, str(tiny_folder)).split() == ["1", "False", "False"]
    assert list(home.rglob("*")) == []
    assert sorted((path, path.stat().st_mtime_ns) for path in tiny_folder.rglob("*")) == before


def test_one_process_loads_a_model_once(tiny_folder: Path) -> None:
    assert embedding.shared(tiny_folder) is embedding.shared(tiny_folder)


# The embedding function for Chroma


def _function(folder: Path, name: str, **arguments: Any) -> MiniLMEmbeddingFunction:
    return MiniLMEmbeddingFunction(name, models_dir=folder.parent, allow_download=False, **arguments)


def test_function_embeds_documents_and_queries(tiny_folder: Path, tiny: OnnxEmbedder, tmp_path: Path) -> None:
    function = _function(tiny_folder, str(tmp_path / "bert"))
    documents = function(["deploy key", "cat"])
    assert [type(vector) for vector in documents] == [np.ndarray, np.ndarray]
    np.testing.assert_allclose(documents, tiny.embed(["deploy key", "cat"]), atol=1e-6)
    np.testing.assert_allclose(function.embed_query(input=["cat"]), documents[1:], atol=1e-6)
    assert function.get_config() == {"model": str(tmp_path / "bert"), "fingerprint": tiny.fingerprint}
    assert (function.name(), function.default_space(), function.is_legacy()) == (
        "subconscious-mcp-minilm",
        "cosine",
        False,
    )
    assert "cosine" in function.supported_spaces()


def test_function_is_built_without_a_model(tmp_path: Path) -> None:
    function = MiniLMEmbeddingFunction(models_dir=tmp_path, allow_download=False)
    config = function.get_config()
    assert config == {"model": "all-MiniLM-L6-v2", "fingerprint": None}
    function.validate_config(config)
    again = MiniLMEmbeddingFunction.build_from_config({**config, "fingerprint": "0123456789ab"})
    assert again.get_config() == {"model": "all-MiniLM-L6-v2", "fingerprint": "0123456789ab"}
    with pytest.raises(ModelMissing):
        function(["cat"])


def test_function_finds_the_configured_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBCONSCIOUS_HOME", str(tmp_path))
    with pytest.raises(ModelMissing):
        MiniLMEmbeddingFunction(allow_download=False)(["cat"])


def test_function_takes_a_loaded_embedder_and_guards_its_fingerprint(tiny: OnnxEmbedder) -> None:
    function = MiniLMEmbeddingFunction(embedder=tiny)
    assert function.get_config()["fingerprint"] == tiny.fingerprint
    assert len(function(["cat"])) == 1
    with pytest.raises(ModelError, match="embedded with the model 0123456789ab"):
        MiniLMEmbeddingFunction(embedder=tiny, expected="0123456789ab")(["cat"])


@pytest.mark.parametrize("value", ["cat", [1], [None]])
def test_function_takes_a_list_of_texts(tiny: OnnxEmbedder, value: Any) -> None:
    with pytest.raises(InvalidArgument, match="list of texts"):
        MiniLMEmbeddingFunction(embedder=tiny)(value)


def test_function_refuses_another_model_for_a_collection(tiny: OnnxEmbedder) -> None:
    function = MiniLMEmbeddingFunction(embedder=tiny)
    config = function.get_config()
    function.validate_config_update(config, config)
    function.validate_config_update({}, config)
    with pytest.raises(InvalidArgument, match="was embedded with"):
        function.validate_config_update(config, {**config, "fingerprint": "0123456789ab"})
    with pytest.raises(InvalidArgument, match="names no model"):
        function.validate_config({"model": 5})


@pytest.mark.filterwarnings("error::DeprecationWarning:chromadb")
def test_chroma_opens_a_collection_by_itself_and_queries_it_by_text(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import chromadb
    from chromadb.utils.embedding_functions import register_embedding_function

    monkeypatch.setattr("subconscious_mcp.config.default_models_dir", lambda: tiny_folder.parent)
    settings = chromadb.Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(str(tmp_path / "chroma"), settings)
    function: Any = _function(tiny_folder, str(tmp_path / "bert"))
    collection = client.get_or_create_collection("notes", embedding_function=function)
    collection.add(ids=["1", "2"], documents=["deploy key", "cat sleep"])
    assert collection.configuration["hnsw"]["space"] == "cosine"
    register: Any = register_embedding_function
    register(MiniLMEmbeddingFunction)
    found = client.get_collection("notes").query(query_texts=["deploy key"], n_results=1)
    assert found["ids"] == [["1"]]
    assert found["distances"] is not None
    assert found["distances"][0][0] == pytest.approx(0, abs=1e-5)


# The real model


def test_real_model_agrees_with_sentence_transformers(real_model_dir: Path) -> None:
    embedder = OnnxEmbedder.load(real_model_dir)
    assert (embedder.dimension, embedder.max_tokens) == (384, 256)
    assert len(CANONICAL) >= 40
    vectors = embedder.embed([case["text"] for case in CANONICAL])
    expected = np.array([case["vector"] for case in CANONICAL])
    cosines = (vectors * expected).sum(axis=1) / np.linalg.norm(expected, axis=1)
    assert float(cosines.min()) >= 0.999999
    assert max(case["tokens"] for case in CANONICAL) == 256


def test_real_model_sees_what_comes_after_its_longest_input(real_model_dir: Path) -> None:
    embedder = OnnxEmbedder.load(real_model_dir)
    same = "Check the logs of the billing service and write down what failed. " * 25
    one, other = embedder.embed([same + "Then restart the database.", same + "Then feed the cat."])
    assert float(one @ other) < 0.9999


def test_bulk_has_a_session_of_its_own_that_goes_when_nobody_needs_it(real_model_dir: Path) -> None:
    embedder = OnnxEmbedder.load(real_model_dir)
    few = [f"rotate the signing keys of service {number}" for number in range(8)]
    many = few + [f"how do I renew certificate number {number} before it expires" * 4 for number in range(200)]
    embedder.embed(few)
    assert embedder._bulk is None
    vectors = embedder.embed(many)
    assert embedder._bulk is not None
    alone = np.stack([embedder.embed_query(text) for text in few])
    assert float(np.abs(vectors[: len(few)] - alone).max()) < 1e-5
    embedder._drop_bulk()
    assert embedder._bulk is None
