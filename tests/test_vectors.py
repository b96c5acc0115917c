"""The vector index over real Chroma, exact search, and what both promise."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from subconscious_mcp.errors import IndexUnreadable
from subconscious_mcp.exact_search import ExactVectors, as_stored, similarities
from subconscious_mcp.vectors import ChromaIndex

DIMENSION = 16
FOREVER = np.inf


def unit_vectors(n: int, seed: int = 0, dimension: int = DIMENSION) -> NDArray[np.float32]:
    rows = np.random.default_rng(seed).normal(size=(n, dimension))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[ChromaIndex]:
    made = ChromaIndex(tmp_path)
    made.open()
    yield made
    made.close()


# What both kinds of search promise


class Exactly:
    """Exact search behind the verbs of the contract."""

    def __init__(self) -> None:
        self.vectors = ExactVectors(DIMENSION)

    def put(self, keys: list[int], rows: NDArray[np.float32]) -> None:
        self.vectors.extend(keys, rows, np.zeros(len(keys)), np.full(len(keys), FOREVER))

    def remove(self, key: int) -> None:
        self.vectors.remove(key)

    def nearest(self, row: NDArray[np.float32], k: int) -> list[int]:
        return [key for key, _ in self.vectors.search(row, k, now=0.0)]


class ByChroma:
    """The vector index behind the verbs of the contract."""

    def __init__(self, index: ChromaIndex) -> None:
        self.index = index

    def put(self, keys: list[int], rows: NDArray[np.float32]) -> None:
        self.index.add("contract", [str(key) for key in keys], rows, {"kind": "memory"})

    def remove(self, key: int) -> None:
        self.index.remove("contract", [str(key)])

    def nearest(self, row: NDArray[np.float32], k: int) -> list[int]:
        return [int(name) for name in self.index.query("contract", row, k)]


@pytest.fixture(params=["exact", "chroma"])
def search(request: pytest.FixtureRequest) -> Exactly | ByChroma:
    if request.param == "exact":
        return Exactly()
    return ByChroma(request.getfixturevalue("index"))


def test_nothing_is_found_where_nothing_is(search: Exactly | ByChroma) -> None:
    assert search.nearest(unit_vectors(1)[0], 5) == []


def test_the_nearest_come_first(search: Exactly | ByChroma) -> None:
    rows = unit_vectors(200)
    search.put(list(range(200)), rows)
    for query in unit_vectors(20, seed=1):
        assert search.nearest(query, 5) == np.argsort(-(rows @ query))[:5].tolist()


@pytest.mark.parametrize(("k", "found"), [(0, 0), (1, 1), (30, 30), (31, 30), (10_000, 30)])
def test_k_is_the_most_that_is_returned(search: Exactly | ByChroma, k: int, found: int) -> None:
    rows = unit_vectors(30)
    search.put(list(range(30)), rows)
    names = search.nearest(rows[0], k)
    assert len(names) == len(set(names)) == found


def test_a_removed_vector_is_not_found(search: Exactly | ByChroma) -> None:
    rows = unit_vectors(30)
    search.put(list(range(30)), rows)
    search.remove(7)
    search.remove(7)
    search.remove(999)
    assert sorted(search.nearest(rows[7], 30)) == [key for key in range(30) if key != 7]


def test_a_known_id_takes_the_new_vector(search: Exactly | ByChroma) -> None:
    rows = unit_vectors(30)
    search.put(list(range(30)), rows)
    search.put([3], -rows[3:4])
    assert search.nearest(-rows[3], 1) == [3]
    assert len(search.nearest(rows[3], 100)) == 30
    assert search.nearest(rows[3], 1) != [3]


def test_of_an_id_that_comes_twice_the_last_counts(search: Exactly | ByChroma) -> None:
    rows = unit_vectors(3)
    search.put([1, 2, 1], rows)
    assert search.nearest(rows[2], 5)[0] == 1
    assert len(search.nearest(rows[2], 5)) == 2


# The vector index


def test_importing_the_module_does_not_import_chroma() -> None:
    code = "import sys, subconscious_mcp.vectors; print('chromadb' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


@pytest.mark.parametrize("dotenv", [b"MIGRATIONS=yes\nCHROMA_API_IMPL=chromadb.api.fastapi.FastAPI\n", b"\xff\xfe\xfa"])
def test_a_projects_settings_do_not_reach_chroma(tmp_path: Path, dotenv: bytes) -> None:
    (tmp_path / ".env").write_bytes(dotenv)
    code = (
        "from pathlib import Path; from subconscious_mcp.vectors import ChromaIndex;"
        "index = ChromaIndex(Path('data')); index.open(); print(index.collections()); index.close()"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "IS_PERSISTENT": "perhaps",
        "CHROMA_OTEL_COLLECTION_ENDPOINT": "http://127.0.0.1:9",
    }
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "{}", done.stderr


def test_what_was_added_is_there_after_reopening(tmp_path: Path) -> None:
    rows = unit_vectors(150)
    names = [f"entry-{i}" for i in range(150)]
    first = ChromaIndex(tmp_path)
    first.open()
    first.open()
    first.add("one", names, rows, {"namespace": "project", "fingerprint": "0123456789ab"})
    first.add("two", names[:3], rows[:3], {})
    first.close()
    first.close()

    second = ChromaIndex(tmp_path)
    second.open()
    assert second.collections() == {"one": 150, "two": 3}
    assert second.ids("one") == set(names)
    assert second.ids("three") == set()
    assert second.metadata("one") == {"namespace": "project", "fingerprint": "0123456789ab"}
    assert second.metadata("two") == second.metadata("three") == {}
    assert second.missing("one") == set()
    assert second.query("one", rows[8], 1) == ["entry-8"]
    second.drop("one")
    second.drop("one")
    second.remove("one", ["entry-8"])
    assert second.collections() == {"two": 3}
    assert second.query("one", rows[8], 1) == []
    second.close()


def test_a_closed_index_says_so(tmp_path: Path) -> None:
    index = ChromaIndex(tmp_path)
    row = unit_vectors(1)[0]
    for use in (index.collections, lambda: index.ids("one"), lambda: index.query("one", row, 1)):
        with pytest.raises(IndexUnreadable, match="not open"):
            use()


def test_an_error_names_the_way_out(index: ChromaIndex) -> None:
    index.add("one", ["a"], unit_vectors(1), {})
    with pytest.raises(IndexUnreadable) as wrong_dimension:
        index.add("one", ["b"], unit_vectors(1, dimension=5), {})
    assert "doctor --repair" in wrong_dimension.value.hint
    with pytest.raises(ValueError, match="as many"):
        index.add("one", ["b", "c"], unit_vectors(1), {})
    with pytest.raises(IndexUnreadable):
        index.add("a name with blanks", ["b"], unit_vectors(1), {})


def test_a_vector_without_direction_does_not_damage_the_index(tmp_path: Path) -> None:
    rows = unit_vectors(1100)
    rows[3] = 0
    rows[4] = np.nan
    index = ChromaIndex(tmp_path)
    index.open()
    index.add("one", [str(i) for i in range(1100)], rows, {})
    index.close()
    index.open()
    assert index.collections() == {"one": 1100}
    assert index.missing("one") == set()
    index.close()


def test_erase_removes_only_chromas_files(tmp_path: Path, index: ChromaIndex) -> None:
    index.add("one", [str(i) for i in range(10)], unit_vectors(10), {})
    others = ["memory.db", "memory.db-wal", "context.db", "echo_log.jsonl", "engine.lock", "stores"]
    for name in others[:-1]:
        (tmp_path / name).write_text("kept")
    (tmp_path / "stores").mkdir()
    index.erase()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)
    index.open()
    assert index.collections() == {}


def test_a_closed_index_can_be_moved(tmp_path: Path) -> None:
    index = ChromaIndex(tmp_path / "before")
    index.open()
    index.add("one", ["a"], unit_vectors(1), {})
    index.close()
    (tmp_path / "before").rename(tmp_path / "after")
    moved = ChromaIndex(tmp_path / "after")
    moved.open()
    assert moved.collections() == {"one": 1}
    moved.close()
    shutil.rmtree(tmp_path / "after")


def files_with(folder: Path, content: bytes) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and content in path.read_bytes()]


def test_compact_takes_a_removed_vector_out_of_the_files(tmp_path: Path, index: ChromaIndex) -> None:
    rows = unit_vectors(1500)
    # Of length 1 without rounding, so that Chroma's own normalisation leaves its bytes alone.
    rows[5] = rows[1400] = 0.25
    rows[5, ::2] = rows[1400, ::3] = -0.25
    index.add("one", [str(i) for i in range(1500)], rows, {"namespace": "project"})
    index.add("two", ["x"], rows[:1], {})
    index.remove("one", ["5", "1400"])
    secret, recent = rows[5].tobytes(), rows[1400].tobytes()
    assert files_with(tmp_path, secret)
    assert files_with(tmp_path, recent)

    index.compact()

    index.close()
    assert files_with(tmp_path, secret) == files_with(tmp_path, recent) == []
    index.open()
    assert index.collections() == {"one": 1498, "two": 1}
    assert sorted(index.names()) == ["one", "two"]
    assert index.metadata("one") == {"namespace": "project"}
    assert index.query("one", rows[6], 1) == ["6"]


def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    index = ChromaIndex(tmp_path)
    index.open()
    index.add("one", ["a"], unit_vectors(1), {})
    index.close()
    modes = {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()}
    # Windows has no such modes; there the folder inherits the rights of the user's profile.
    assert os.name != "posix" or modes == {0}


class WordCounts:
    """An embedding function of the shape that Chroma asks for."""

    def __call__(self, input: list[str]) -> list[NDArray[np.float32]]:  # noqa: A002 - Chroma compares the name
        return [np.array([text.count("a"), text.count("b"), 0.1], dtype=np.float32) for text in input]

    def embed_query(self, input: list[str]) -> list[NDArray[np.float32]]:  # noqa: A002
        return self(input)

    @staticmethod
    def name() -> str:
        return "word_counts"

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> WordCounts:
        return WordCounts()

    def get_config(self) -> dict[str, Any]:
        return {"fingerprint": "0123456789ab"}

    def default_space(self) -> str:
        return "cosine"

    def supported_spaces(self) -> list[str]:
        return ["cosine"]

    def is_legacy(self) -> bool:
        return False

    @staticmethod
    def validate_config(config: dict[str, Any]) -> None: ...

    def validate_config_update(self, old: dict[str, Any], new: dict[str, Any]) -> None: ...


def test_any_chroma_program_can_query_by_text(tmp_path: Path) -> None:
    index = ChromaIndex(tmp_path, embedding_function=WordCounts)
    index.open()
    index.add("one", ["a", "b"], np.array([[1, 0, 0.1], [0, 1, 0.1]], dtype=np.float32), {})
    index.close()

    import chromadb

    client = chromadb.PersistentClient(path=str(tmp_path))
    try:
        found = client.get_collection("one").query(query_texts=["bbb"], n_results=2)
        assert found["ids"] == [["b", "a"]]
    finally:
        client.close()


def test_a_collection_without_embedding_function_refuses_texts(tmp_path: Path, index: ChromaIndex) -> None:
    index.add("one", ["a"], unit_vectors(1), {})
    index.close()

    import chromadb

    client = chromadb.PersistentClient(path=str(tmp_path))
    try:
        with pytest.raises(ValueError, match="by vectors"):
            client.get_collection("one").query(query_texts=["a text"])
    finally:
        client.close()


def test_threads_take_turns(index: ChromaIndex) -> None:
    rows = unit_vectors(300)
    failures: list[BaseException] = []

    def work(part: int) -> None:
        try:
            names = [str(i) for i in range(part * 100, part * 100 + 100)]
            index.add("one", names, rows[part * 100 : part * 100 + 100], {})
            assert index.query("one", rows[part * 100], 1) == [str(part * 100)]
            assert index.ids("one") >= set(names)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(part,)) for part in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert index.collections() == {"one": 300}


# Damage


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index whose older vectors only the HNSW files hold."""
    folder = tmp_path_factory.mktemp("whole")
    index = ChromaIndex(folder)
    index.open()
    index.add("one", [str(i) for i in range(1300)], unit_vectors(1300), {"namespace": "project"})
    index.add("two", [str(i) for i in range(30)], unit_vectors(30), {"namespace": "project"})
    index.close()
    return folder


def cut(size: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size)


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def zero_second_half(path: Path) -> None:
    kept = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(kept + bytes(path.stat().st_size - len(kept)))


def scatter(path: Path) -> None:
    content = bytearray(path.read_bytes())
    random = np.random.default_rng(7)
    for place in random.integers(0, len(content), 60).tolist():
        content[place] = int(random.integers(0, 256))
    path.write_bytes(content)


DAMAGES = {
    "gone": Path.unlink,
    "cut to 100": cut(100),
    "emptied": cut(0),
    "halved": halve,
    "zeros": zero,
    "half zeros": zero_second_half,
    "scattered": scatter,
}
SEGMENT_FILES = ("header.bin", "data_level0.bin", "length.bin", "link_lists.bin", "index_metadata.pickle")


def segment_of(folder: Path) -> Path:
    return max((path for path in folder.iterdir() if path.is_dir()), key=lambda path: size_of(path))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def use_and_mend(folder: Path) -> bool:
    """Uses a damaged index, then makes it again; returns whether it could be used."""
    rows = unit_vectors(1300)
    index = ChromaIndex(folder)
    usable = True
    try:
        index.open()
        names = index.ids("one")
        assert set(index.query("one", rows[3], 10)) <= names
        assert index.missing("one") <= names
        index.add("one", ["new"], rows[:1], {})
    except IndexUnreadable as error:
        usable = False
        assert "doctor --repair" in error.hint
    index.erase()
    index.open()
    index.add("one", ["a", "b"], rows[:2], {})
    assert index.query("one", rows[1], 2)[0] == "b"
    assert index.collections() == {"one": 2}
    index.close()
    return usable


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["chroma.sqlite3", *SEGMENT_FILES])
def test_a_damaged_file_is_an_error_and_can_be_mended(whole: Path, tmp_path: Path, name: str, damage: str) -> None:
    folder = tmp_path / "data"
    shutil.copytree(whole, folder)
    DAMAGES[damage]((folder if name == "chroma.sqlite3" else segment_of(folder)) / name)
    usable = use_and_mend(folder)
    # The header is 100 bytes long anyway; without or with an empty chroma.sqlite3 the index
    # is an empty one.
    harmless = {("header.bin", "cut to 100"), ("chroma.sqlite3", "gone"), ("chroma.sqlite3", "emptied")}
    assert usable == ((name, damage) in harmless)


def test_a_missing_segment_folder_is_an_error(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(whole, folder)
    shutil.rmtree(segment_of(folder))
    assert not use_and_mend(folder)


def test_an_undamaged_index_is_usable(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(whole, folder)
    assert use_and_mend(folder)


def test_a_header_of_another_version_is_left_to_chroma(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(whole, folder)
    header = segment_of(folder) / "header.bin"
    header.write_bytes(b"\x02\0\0\0" + header.read_bytes()[4:])
    assert not use_and_mend(folder)


def test_vectors_that_chroma_lost_are_named_and_added_again(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(whole, folder)
    rows = unit_vectors(1300)
    index = ChromaIndex(folder)
    index.open()
    lost = {"7", "600"}
    find = index._find

    class Losing:
        """Chroma's collection after a kill between its two engines."""

        def __init__(self, place: Any) -> None:
            self.place = place

        def get(self, **asked: Any) -> Any:
            if "embeddings" in asked["include"] and lost & set(asked["ids"]):
                raise RuntimeError("Error finding id")
            return self.place.get(**asked)

    index._find = lambda name: Losing(find(name))  # type: ignore[method-assign]
    assert index.missing("one") == lost
    del index._find
    index.add("one", sorted(lost), rows[[600, 7]], {})
    assert index.missing("one") == set()
    index.close()


CRASHING = """
import sys
from pathlib import Path
import numpy as np
from subconscious_mcp.errors import IndexUnreadable
from subconscious_mcp.vectors import ChromaIndex

index = ChromaIndex(Path(sys.argv[1]))
rows = np.random.default_rng(int(sys.argv[2])).normal(size=(20_000, 16)).astype(np.float32)
try:
    index.open()
    names = index.ids("one")
    assert set(index.query("one", rows[0], 50)) <= names
    assert index.missing("one") <= names
    print("usable", flush=True)
except IndexUnreadable:
    index.erase()
    index.open()
    print("mended", flush=True)
for start in range(0, len(rows), 50):
    index.add("one", [f"{sys.argv[2]}-{i}" for i in range(start, start + 50)], rows[start : start + 50], {})
    if start % 100:
        index.remove("one", [f"{sys.argv[2]}-{start}"])
    print("added", flush=True)
"""


def test_a_killed_process_leaves_an_index_that_opens_or_is_told_unreadable(tmp_path: Path) -> None:
    random = np.random.default_rng(11)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for attempt in range(10):
        child = subprocess.Popen(
            [sys.executable, "-c", CRASHING, str(tmp_path / "data"), str(attempt)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        # Only so that a hang becomes a failure and not a test run without end.
        guard = threading.Timer(120, child.kill)
        guard.start()
        try:
            assert child.stdout.readline().strip() in ("usable", "mended")
            for _ in range(int(random.integers(1, 25))):
                assert child.stdout.readline().strip() == "added"
        finally:
            guard.cancel()
            child.kill()
            child.stdout.close()
            child.wait()


# Exact search


@given(
    st.lists(st.floats(-4, 4, width=16), min_size=1, max_size=400),
    st.floats(0.001, 100),
)
def test_a_vector_is_exactly_similar_to_itself(values: list[float], scale: float) -> None:
    vector = np.array(values, dtype=np.float32) * np.float32(scale)
    expected = 1.0 if as_stored(vector).any() else 0.0
    assert similarities(vector, vector[np.newaxis]).tolist() == [expected]
    stored = ExactVectors(len(vector))
    stored.append(1, vector, 0.0)
    assert stored.search(vector, 1, now=0.0) == [(1, expected)]


@given(st.integers(0, 2**32 - 1))
def test_similarity_is_the_clipped_cosine_of_the_rounded_values(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(20, 24)).astype(np.float16)
    query = random.normal(size=24).astype(np.float32)
    wide, asked = rows.astype(float), query.astype(np.float16).astype(float)
    cosines = wide @ asked / (np.linalg.norm(wide, axis=1) * np.linalg.norm(asked))
    found = similarities(query, rows)
    assert found == pytest.approx(np.clip(cosines, 0, 1), abs=1e-6)
    assert np.array_equal(found, np.round(found, 6))


def test_similarities_of_many_are_those_of_each() -> None:
    rows = unit_vectors(9000, dimension=384).astype(np.float16)
    query = unit_vectors(1, seed=5, dimension=384)[0]
    found = similarities(query, rows)
    some = range(0, 9000, 500)
    assert [found[i] for i in some] == [similarities(query, rows[i : i + 1])[0] for i in some]


def test_values_that_float16_cannot_hold_make_a_vector_of_zeros() -> None:
    rows = np.array([[1, 0], [np.nan, 1], [np.inf, 1], [1e9, 1]], dtype=np.float32)
    assert similarities([1, 0], rows).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert similarities([np.nan, 0], rows).tolist() == [0.0] * 4
    assert similarities([1, 0], np.empty((0, 2))).tolist() == []


ROWS = st.tuples(
    st.integers(0, 12),
    st.lists(st.integers(-2, 2), min_size=3, max_size=3),
    st.sampled_from([0.0, 1.0, 2.0]),
    st.sampled_from([FOREVER, 5.0, 6.0]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("extend"), st.lists(ROWS, max_size=8)),
        st.tuples(st.just("append"), ROWS),
        st.tuples(st.just("remove"), st.integers(0, 12)),
    ),
    max_size=12,
)


@settings(max_examples=300)
@given(
    STEPS,
    st.lists(st.integers(-2, 2), min_size=3, max_size=3),
    st.integers(0, 15),
    st.sampled_from([0.0, 5.0, 5.5, 9.0]),
    st.none() | st.sets(st.integers(0, 15)),
    st.sampled_from([set, list, np.array]),
)
def test_exact_search_is_what_sorting_all_of_them_gives(
    steps: list[tuple[str, Any]],
    query: list[int],
    k: int,
    now: float,
    allowed: set[int] | None,
    container: Callable[[Any], Any],
) -> None:
    vectors = ExactVectors(3)
    reference: dict[int, tuple[list[int], float, float]] = {}
    for verb, what in steps:
        if verb == "extend":
            vectors.extend(
                [row[0] for row in what],
                np.array([row[1] for row in what], dtype=np.float16).reshape(-1, 3),
                [row[2] for row in what],
                [row[3] for row in what],
            )
            reference.update((row[0], row[1:]) for row in what)
        elif verb == "append":
            vectors.append(what[0], what[1], what[2], what[3])
            reference[what[0]] = what[1:]
        else:
            assert vectors.remove(what) == (reference.pop(what, None) is not None)
    assert len(vectors) == len(reference)
    assert all((key in vectors) == (key in reference) for key in range(13))

    ranked = sorted(
        (
            (float(similarities(query, [row])[0]), created, key)
            for key, (row, created, expires) in reference.items()
            if expires > now and (allowed is None or key in allowed)
        ),
        reverse=True,
    )
    chosen = None if allowed is None else container(sorted(allowed))
    found = vectors.search(query, k, now=now, allowed=chosen)
    assert found == [(key, similarity) for similarity, _, key in ranked[:k]]


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.booleans())
@settings(max_examples=50, deadline=None)
def test_exact_search_of_many_near_vectors_is_exact(seed: int, k: int, some: bool) -> None:
    random = np.random.default_rng(seed)
    # Differences about as small as the sixth decimal, where float32 sums and ties disagree.
    rows = (random.normal(size=32) + random.normal(size=(600, 32)) * 0.002).astype(np.float16)
    rows[::7] = rows[0]
    created = random.integers(0, 5, 600).astype(float)
    allowed = set(range(0, 600, 3)) if some else None
    vectors = ExactVectors(32)
    vectors.extend(np.arange(600), rows, created, np.full(600, FOREVER))
    query = rows[0].astype(np.float32)
    every = similarities(query, rows).tolist()
    ranked = sorted(((every[i], created[i], i) for i in range(600) if allowed is None or i in allowed), reverse=True)
    assert vectors.search(query, k, now=0.0, allowed=allowed) == [(i, s) for s, _, i in ranked[:k]]


def test_expired_neighbours_take_no_place() -> None:
    rows = unit_vectors(1000)
    expires = np.where(np.arange(1000) < 990, 10.0, FOREVER)
    vectors = ExactVectors(DIMENSION)
    vectors.extend(np.arange(1000), rows, np.zeros(1000), expires)
    assert {key for key, _ in vectors.search(rows[0], 10, now=10.0)} == set(range(990, 1000))
    assert vectors.search(rows[0], 1, now=9.9) == [(0, 1.0)]


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ExactVectors(0)
    vectors = ExactVectors(3)
    with pytest.raises(ValueError, match="3 dimensions"):
        vectors.append(1, [1, 2], 0.0)
    with pytest.raises(ValueError, match="as many times"):
        vectors.extend([1, 2], np.ones((2, 3)), [0.0], [FOREVER])
    with pytest.raises(ValueError, match="3 dimensions"):
        vectors.search([1, 2], 1, now=0.0)
    assert len(vectors) == 0


def test_searching_while_others_write() -> None:
    rows = unit_vectors(2000)
    vectors = ExactVectors(DIMENSION)
    failures: list[BaseException] = []

    def write(first: int) -> None:
        try:
            for key in range(first, first + 500):
                vectors.append(key, rows[key], float(key))
                assert vectors.search(rows[key], 1, now=0.0)[0] == (key, 1.0)
                if key % 3 == 0:
                    vectors.remove(key)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(first,)) for first in range(0, 2000, 500)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(vectors) == sum(key % 3 != 0 for key in range(2000))


# What Chroma writes beyond its vectors

_BEYOND = b"a text that was forgotten"


def _plant(folder: Path) -> None:
    """Leaves text where Chroma leaves unfilled memory: behind the vectors of its files."""
    (header,) = folder.glob("*/header.bin")
    for name in ("data_level0.bin", "length.bin"):
        path = header.parent / name
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(size - len(_BEYOND))
            assert not any(file.read()), "the last rows are room for later vectors"
            file.seek(size - len(_BEYOND))
            file.write(_BEYOND)


def _planted(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*/*.bin") if _BEYOND in path.read_bytes()]


def test_unfilled_memory_in_files_is_overwritten(tmp_path: Path, index: ChromaIndex) -> None:
    rows = unit_vectors(30)
    index.add("contract", [str(number) for number in range(20)], rows[:20], {})
    index.close()
    _plant(tmp_path)
    index.open()
    assert _planted(tmp_path) == []
    assert index.query("contract", rows[7], 1) == ["7"]
    _plant(tmp_path)
    index.add("contract", ["20"], rows[20:21], {})
    assert _planted(tmp_path) == []
    _plant(tmp_path)
    index.remove("contract", ["3"])
    assert _planted(tmp_path) == []
    assert index.query("contract", rows[20], 1) == ["20"]
    assert index.query("contract", rows[3], 1) != ["3"]
