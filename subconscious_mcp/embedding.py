"""Texts to vectors, on the processor, with onnxruntime.

The only module that imports onnxruntime and tokenizers, and only when a model is loaded:
together they cost a tenth of a second that a process which embeds nothing must not pay.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from subconscious_mcp import model_files
from subconscious_mcp.errors import InvalidArgument, ModelDamaged, ModelError, SubconsciousError
from subconscious_mcp.model_files import DEFAULT_MODEL, INSTALL_HINT, Manifest

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]

# Tokens of a batch, padding included. Measured on two cores: from 512 on the matrix products
# are as fast as they get, and smaller batches pad less and need less memory.
BATCH_TOKENS = 512
# Threads for one text, and batches at once.
THREADS = 2
# Batches from which a session of its own pays: it takes 0.1 s to open and, while it lives, 60 MB.
BULK_BATCHES = 6
BULK_SECONDS = 20.0
"""How long the session for bulk is kept when nobody uses it."""
# Texts that are tokenized at once: bounds the memory of the tokenizer's own structures.
_TOKENIZE_AT_ONCE = 1024
# Below this length a vector has no direction; blanked weights make such.
_SMALLEST_NORM = 1e-6


class Embedder(Protocol):
    """What turns texts into vectors that are compared by their dot product."""

    @property
    def fingerprint(self) -> str:
        """12 hex digits; vectors of different fingerprints must never be compared."""

    @property
    def dimension(self) -> int:
        """Width of the vectors."""

    @property
    def max_tokens(self) -> int:
        """Longest text that is seen at once, special tokens included."""

    def embed(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Vectors:
        """Returns (n, dimension) float32, rows L2-normalised, in the order of the texts.

        `progress` is told how many texts are done, in the calling thread.
        """

    def embed_query(self, text: str) -> Vectors:
        """Returns (dimension,) float32, L2-normalised; the same as a row of `embed`."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A text, or a window of one, ready for the graph.

    Attributes:
        text: Which text it belongs to.
        ids: Token ids with the special tokens, at most `max_tokens`.
    """

    text: int
    ids: Sequence[int]


def windows(ids: Sequence[int], room: int) -> list[Sequence[int]]:
    """Cuts tokens into windows of nearly equal length.

    Equal, so that the plain mean of their vectors weighs every token alike; a short last
    window would count as much as a full one.

    Args:
        ids: Tokens without the special ones.
        room: Most tokens in a window, at least 1.

    Returns:
        Windows that put together are `ids`; one, maybe empty, when they fit.
    """
    count = max(1, -(-len(ids) // room))
    edges = [len(ids) * number // count for number in range(count + 1)]
    return [ids[start:end] for start, end in pairwise(edges)]


def batches(pieces: Sequence[Piece], limit: int = BATCH_TOKENS) -> Iterator[list[Piece]]:
    """Groups pieces of similar length, the longest first, so that little is padding.

    The longest first also means that the last batches are small, and two threads end nearly
    together.

    Args:
        pieces: In any order.
        limit: Most tokens in a batch, padding included; a longer piece is a batch of its own.
    """
    batch: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: -len(piece.ids)):
        if batch and (len(batch) + 1) * len(batch[0].ids) > limit:
            yield batch
            batch = []
        batch.append(piece)
    if batch:
        yield batch


def pool(tokens: Vectors, mask: Ids, pooling: str) -> Vectors:
    """Pools token vectors to one vector a row.

    Args:
        tokens: (n, sequence, dimension) float32.
        mask: (n, sequence), 1 for a token and 0 for padding; the first token is never padding.
        pooling: One of `model_layout.POOLINGS`.

    Returns:
        (n, dimension) float32, not normalised.
    """
    if pooling == "cls":
        return tokens[:, 0]
    weights = mask[:, :, None].astype(np.float32)
    if pooling == "max":
        lowest = np.float32(np.finfo(np.float32).min)
        return np.asarray(np.where(weights > 0, tokens, lowest).max(axis=1), dtype=np.float32)
    count = weights.sum(axis=1)
    divisor = np.sqrt(count) if pooling == "mean_sqrt_len" else count
    return np.asarray((tokens * weights).sum(axis=1) / divisor, dtype=np.float32)


class Tokenizer:
    """The model's own tokenizer, without its truncation and padding.

    Args:
        path: A tokenizer.json.

    Raises:
        ModelDamaged: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        import tokenizers

        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(path))
            padding = tokenizer.padding
            # The file as published cuts and pads at 128.
            tokenizer.no_padding()
            tokenizer.no_truncation()
            probe = tokenizer.encode("a")
        except Exception as error:  # tokenizers raises bare Exception
            raise ModelDamaged("The tokenizer of the model cannot be read.", INSTALL_HINT) from error
        self._tokenizer = tokenizer
        self.padding_id = int(padding["pad_id"]) if padding else (tokenizer.token_to_id("[PAD]") or 0)
        # Special tokens stand around the text; which ones, the tokenizer shows by an example.
        bare = [index for index, special in enumerate(probe.special_tokens_mask) if not special]
        first, last = (bare[0], bare[-1] + 1) if bare else (len(probe.ids), len(probe.ids))
        self.prefix: list[int] = probe.ids[:first]
        self.suffix: list[int] = probe.ids[last:]

    def pieces(self, texts: Sequence[str], max_tokens: int) -> list[Piece]:
        """Cuts texts into pieces of at most `max_tokens` tokens."""
        room = max(1, max_tokens - len(self.prefix) - len(self.suffix))
        found: list[Piece] = []
        for start in range(0, len(texts), _TOKENIZE_AT_ONCE):
            block = [_encodable(text) for text in texts[start : start + _TOKENIZE_AT_ONCE]]
            for number, encoding in enumerate(self._encode(block)):
                for window in windows(encoding, room):
                    ids = [*self.prefix, *window, *self.suffix]
                    found.append(Piece(start + number, ids or [self.padding_id]))
        return found

    def _encode(self, texts: list[str]) -> list[list[int]]:
        if len(texts) == 1:
            # A batch of one would still wake a pool of threads.
            return [self._tokenizer.encode(texts[0], add_special_tokens=False).ids]
        return [item.ids for item in self._tokenizer.encode_batch(texts, add_special_tokens=False)]


def _encodable(text: str) -> str:
    """Replaces lone surrogates, which have no UTF-8 form, by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


class OnnxEmbedder:
    """An installed model, ready to embed. Use `load`; safe to use from several threads."""

    def __init__(self, manifest: Manifest, session: Any, tokenizer: Tokenizer, graph: Path | None = None) -> None:
        self.fingerprint = manifest.fingerprint
        self.dimension = manifest.layout.dimension
        self.max_tokens = manifest.layout.max_tokens
        self._model = manifest.name
        self._pooling = manifest.layout.pooling
        self._session = session
        self._graph = graph
        self._bulk: Any = None
        self._bulk_users = 0
        self._bulk_timer: threading.Timer | None = None
        self._bulk_lock = threading.Lock()
        self._tokenizer = tokenizer
        self._inputs = {item.name for item in session.get_inputs()}
        names = [item.name for item in session.get_outputs()]
        wanted = [name for name in ("sentence_embedding", "last_hidden_state", "token_embeddings") if name in names]
        self._output = wanted[0] if wanted else names[0]

    @classmethod
    def load(cls, folder: Path) -> OnnxEmbedder:
        """Loads an installed model.

        The files are trusted as far as the quick check of `model_files.check` goes; they
        were hashed when they were installed.

        Args:
            folder: As `model_files.install` or `model_files.ensure` returned it.

        Raises:
            ModelMissing: No model is installed there.
            ModelDamaged: A file is missing, cut, blanked, or cannot be used.
        """
        manifest = model_files.check(folder)
        tokenizer = Tokenizer(folder / "tokenizer.json")
        try:
            session = _session(folder / manifest.layout.graph)
            embedder = cls(manifest, session, tokenizer, folder / manifest.layout.graph)
        except Exception as error:  # onnxruntime's classes derive from Exception alone
            raise ModelDamaged(f"The graph of the model {manifest.name} cannot be loaded.", INSTALL_HINT) from error
        return embedder

    def embed(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Vectors:
        """Embeds many texts, on two cores.

        A text longer than `max_tokens` is cut into windows; its vector is the mean of
        theirs, so that its end counts too. Time and memory grow with the length: bound what
        strangers may send. Lone surrogates are read as question marks. An empty text has a
        vector like any other.

        Args:
            texts: Any texts.
            progress: Told how many texts are done, in the calling thread.

        Returns:
            (n, dimension) float32, rows L2-normalised, in the order of the texts.

        Raises:
            ModelDamaged: The model yields no vectors.
        """
        pieces = self._tokenizer.pieces(texts, self.max_tokens)
        sums = np.zeros((len(texts), self.dimension), dtype=np.float32)
        left = np.bincount([piece.text for piece in pieces], minlength=len(texts))
        work = list(batches(pieces))
        with self._session_for(len(work)) as session:
            for batch, rows in _in_two_threads(partial(self._run, session), work):
                for piece, row in zip(batch, rows, strict=True):
                    sums[piece.text] += row
                    left[piece.text] -= 1
                if progress is not None:
                    progress(int((left == 0).sum()))
        return self._normalised(sums)

    @contextmanager
    def _session_for(self, count: int) -> Iterator[Any]:
        """Gives the session for so many batches: two threads a run, or for bulk one.

        Two batches at once on one thread each finish sooner than both on two threads each, which
        wait for one another. Source: texts a second on 2 cores, median of 4 rounds: 321 against
        264 short ones, 34.9 against 30.4 long ones.
        """
        if self._graph is None or count < BULK_BATCHES or _cores() < THREADS:
            yield self._session
            return
        with self._bulk_lock:
            if self._bulk is None:
                self._bulk = _session(self._graph, threads=1)
            session = self._bulk
            self._bulk_users += 1
        try:
            yield session
        finally:
            with self._bulk_lock:
                self._bulk_users -= 1
                if self._bulk_timer is not None:
                    self._bulk_timer.cancel()
                self._bulk_timer = threading.Timer(BULK_SECONDS, self._drop_bulk)
                self._bulk_timer.daemon = True
                self._bulk_timer.start()

    def _drop_bulk(self) -> None:
        with self._bulk_lock:
            if not self._bulk_users:
                self._bulk = None

    def embed_query(self, text: str) -> Vectors:
        """Embeds one text; see `embed`.

        Returns:
            (dimension,) float32, L2-normalised.
        """
        return np.asarray(self.embed([text])[0])

    def _run(self, session: Any, batch: Sequence[Piece]) -> Vectors:
        """Runs one batch; returns (n, dimension) float32, rows L2-normalised."""
        longest = len(batch[0].ids)
        ids = np.full((len(batch), longest), self._tokenizer.padding_id, dtype=np.int64)
        mask = np.zeros((len(batch), longest), dtype=np.int64)
        for row, piece in enumerate(batch):
            ids[row, : len(piece.ids)] = piece.ids
            mask[row, : len(piece.ids)] = 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        try:
            feed = {name: feed[name] for name in self._inputs}
            (output,) = session.run([self._output], feed)
        except Exception as error:  # onnxruntime's classes derive from Exception alone
            raise ModelDamaged(f"The graph of the model {self._model} cannot be run.", INSTALL_HINT) from error
        vectors = pool(output, mask, self._pooling) if output.ndim == 3 else output
        if vectors.shape != (len(batch), self.dimension):
            raise ModelDamaged(
                f"The model {self._model} yields {vectors.shape[-1]} numbers, not {self.dimension}.",
                INSTALL_HINT,
            )
        return self._normalised(vectors)

    def _normalised(self, vectors: Vectors) -> Vectors:
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not bool(np.all(norms > _SMALLEST_NORM)) or not bool(np.all(np.isfinite(norms))):
            raise ModelDamaged(f"The model {self._model} yields no usable vectors.", INSTALL_HINT)
        return np.asarray(vectors / norms, dtype=np.float32)


def _in_two_threads(
    run: Callable[[list[Piece]], Vectors], work: list[list[Piece]]
) -> Iterator[tuple[list[Piece], Vectors]]:
    """Runs batches in the calling thread and, when there are several, one more.

    Results are yielded as they come, in no order. When the caller stops asking, or either
    thread fails, the other ends after its current batch.
    """
    todo = iter(work)
    lock, stop = threading.Lock(), threading.Event()
    done: list[tuple[list[Piece], Vectors]] = []
    failures: list[BaseException] = []

    def take() -> list[Piece] | None:
        with lock:
            return None if stop.is_set() else next(todo, None)

    def helper() -> None:
        try:
            while (batch := take()) is not None:
                done.append((batch, run(batch)))
        except BaseException as error:
            failures.append(error)
            stop.set()

    thread = threading.Thread(target=helper, name="embedding", daemon=True)
    alone = len(work) < 2 or _cores() < THREADS
    if not alone:
        thread.start()
    try:
        while (batch := take()) is not None:
            yield batch, run(batch)
            while done:
                yield done.pop()
    finally:
        stop.set()
        if not alone:
            thread.join()
    yield from done
    if failures:
        raise failures[0]


def _cores() -> int:
    """Cores this process may use, which in a container are fewer than the machine has."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else (os.cpu_count() or 1)


def _helper_places() -> str:
    """Names the cores on which onnxruntime's second thread may run, in its own notation, from 1.

    Left alone, Linux wakes that thread on the core of the thread that waits for it, where it gets
    its turn when the work is done: after a pause, two threads are no faster than one. Half of the
    cores, so that it can still give way, and the first half, which are the fast ones where they
    differ. Source: one text of 12 tokens every 0.3 s on 2 cores: 6.4 ms against 10.2 ms, and on
    one thread 9.5 ms.
    """
    if not hasattr(os, "sched_getaffinity"):
        return ""
    cores = sorted(os.sched_getaffinity(0))
    return ",".join(str(core + 1) for core in cores[: len(cores) // 2])


def _session(graph: Path, threads: int = THREADS) -> Any:
    """Opens an onnxruntime session that keeps quiet in every sense."""
    # onnxruntime sends usage statistics unless told before it is imported, and writes files
    # below ~/.cache for it.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = min(threads, _cores())
    if options.intra_op_num_threads > 1 and (places := _helper_places()):
        options.add_session_config_entry("session.intra_op_thread_affinities", places)
    options.inter_op_num_threads = 1
    # Threads that spin while they wait would burn a core between two queries, and take it from
    # whatever else the machine does.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Remembers memory by input shape; ours differ with every text.
    options.enable_mem_pattern = False
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])


_shared: dict[Path, OnnxEmbedder] = {}
_shared_lock = threading.Lock()


def shared(folder: Path) -> OnnxEmbedder:
    """Loads an installed model once a process; see `OnnxEmbedder.load`."""
    with _shared_lock:
        if folder not in _shared:
            _shared[folder] = OnnxEmbedder.load(folder)
        return _shared[folder]


class MiniLMEmbeddingFunction:
    """An embedding function for Chroma that needs neither torch nor a key.

    It has Chroma's protocol without importing Chroma. Handing an instance to
    `create_collection` or `get_or_create_collection` registers the class, so that Chroma can
    build it again; a program that only opens a collection that exists either hands over an
    instance as well or calls `chromadb.utils.embedding_functions.register_embedding_function`
    with the class.

        collection = client.get_or_create_collection("notes", embedding_function=MiniLMEmbeddingFunction())
        collection.add(ids=["1"], documents=["The deploy key is rotated every May."])
        collection.query(query_texts=["When do we rotate the deploy key?"])

    Args:
        model: Name of the model, see `model_files.model_folder`.
        models_dir: Folder of the installed models; the configured one when None.
        allow_download: Whether the first use may install the model.
        embedder: Use this one instead of a model; for tests and for programs that have
            loaded one already.
        expected: Fingerprint of the vectors in the collection; a model with another one is
            refused rather than compared.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        models_dir: Path | str | None = None,
        *,
        allow_download: bool = True,
        embedder: Embedder | None = None,
        expected: str | None = None,
    ) -> None:
        self._model = model
        self._models_dir = None if models_dir is None else Path(models_dir)
        self._allow_download = allow_download
        self._embedder = embedder
        self._expected = expected

    def __call__(self, input: list[str]) -> list[Vectors]:  # noqa: A002 - Chroma calls it by this name
        """Embeds documents.

        Returns:
            One (dimension,) float32 vector a text, L2-normalised.

        Raises:
            InvalidArgument: `input` is not a list of texts.
            ModelError: The model is not installed, damaged, or not the one that embedded the
                collection.
        """
        if isinstance(input, str) or not all(isinstance(text, str) for text in input):
            raise InvalidArgument("The embedding function takes a list of texts.")
        return list(self._loaded().embed(input))

    def embed_query(self, input: list[str]) -> list[Vectors]:  # noqa: A002 - Chroma calls it by this name
        """Embeds queries; the same as documents with these models."""
        return self(input)

    @staticmethod
    def name() -> str:
        """Returns the name under which Chroma stores and finds this function."""
        return "subconscious-mcp-minilm"

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> MiniLMEmbeddingFunction:
        """Builds the function of a stored collection. Cheap: Chroma does so twice an add."""
        return MiniLMEmbeddingFunction(model=config.get("model", DEFAULT_MODEL), expected=config.get("fingerprint"))

    def get_config(self) -> dict[str, Any]:
        """Returns what `build_from_config` needs. The fingerprint is None until the model is installed."""
        return {"model": self._model, "fingerprint": self._fingerprint()}

    def default_space(self) -> str:
        return "cosine"

    def supported_spaces(self) -> list[str]:
        # Of vectors of length 1 all three give the same order.
        return ["cosine", "l2", "ip"]

    @staticmethod
    def validate_config(config: dict[str, Any]) -> None:
        """Refuses a configuration that is not one of this function's.

        Raises:
            InvalidArgument: The model is not a text.
        """
        if not isinstance(config.get("model"), str):
            raise InvalidArgument("The embedding function's configuration names no model.")

    def validate_config_update(self, old_config: dict[str, Any], new_config: dict[str, Any]) -> None:
        """Refuses another model for a collection that has vectors.

        Raises:
            InvalidArgument: The models differ.
        """
        for key in ("model", "fingerprint"):
            old, new = old_config.get(key), new_config.get(key)
            if old is not None and new is not None and old != new:
                raise InvalidArgument(f"The collection was embedded with {old}, not with {new}.")

    def is_legacy(self) -> bool:
        return False

    def _folder(self) -> Path:
        return model_files.model_folder(self._model, self._directory())

    def _directory(self) -> Path:
        if self._models_dir is None:
            from subconscious_mcp.config import default_models_dir

            self._models_dir = default_models_dir()
        return self._models_dir

    def _fingerprint(self) -> str | None:
        if self._embedder is not None:
            return self._embedder.fingerprint
        if self._expected is not None:
            return self._expected
        try:
            return model_files.read_manifest(self._folder()).fingerprint
        except SubconsciousError:
            return None

    def _loaded(self) -> Embedder:
        if self._embedder is None:
            folder = model_files.ensure(self._model, self._directory(), allow_download=self._allow_download)
            self._embedder = shared(folder)
        if self._expected not in (None, self._embedder.fingerprint):
            raise ModelError(
                f"The collection was embedded with the model {self._expected}, not {self._embedder.fingerprint}.",
                "Embed its texts again, or use the model it was made with.",
            )
        return self._embedder
