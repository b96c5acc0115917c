"""How a sentence-transformers model describes itself: graph, pooling, longest input.

Pure reading of configuration files; `model_files` decides where they come from and
`embedding` what to do with them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

POOLINGS = ("mean", "cls", "max", "mean_sqrt_len")

GRAPH_NAMES = ("onnx/model.onnx", "model.onnx")
_TOKENIZER = "tokenizer.json"
_OPTIONAL = (
    "config.json",
    "modules.json",
    "sentence_bert_config.json",
    "tokenizer_config.json",
    "1_Pooling/config.json",
)
# Weights that a graph keeps outside itself: large exports, and our own kind of graph.
_BESIDE_GRAPH = ("onnx/model.onnx_data", "onnx/model.onnx.data", "model.onnx_data", "model.onnx.data")
_OWN_WEIGHTS = "model.safetensors"

HUB_FILES = ((GRAPH_NAMES[0], _TOKENIZER), (*_OPTIONAL, _BESIDE_GRAPH[0]))
"""Required and optional paths of a hub repository."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What an embedder needs to know of a model's folder.

    Attributes:
        graph: Path of the ONNX file inside the folder.
        dimension: Width of its vectors.
        max_tokens: Longest input, special tokens included.
        pooling: One of `POOLINGS`; unused when the graph pools by itself.
    """

    graph: str
    dimension: int
    max_tokens: int
    pooling: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def select(entries: Mapping[str, int]) -> dict[str, tuple[str, int]]:
    """Picks a model's files out of a folder's or an archive's entries.

    Args:
        entries: Path to size in bytes.

    Returns:
        Path inside the model to (path among the entries, size); empty when there is no
        ONNX export with a tokenizer.
    """
    roots = sorted((path[: -len(_TOKENIZER)] for path in entries if path.split("/")[-1] == _TOKENIZER), key=len)
    for root in roots:
        graph = next((name for name in GRAPH_NAMES if root + name in entries), None)
        if graph is not None:
            folder = graph[: -len("model.onnx")]
            beside = [name for name in _BESIDE_GRAPH if name.startswith(folder + "model.onnx")]
            # The weights of an export lie in its graph; copying the other format would be waste.
            own = [_OWN_WEIGHTS] if graph == "model.onnx" else []
            names = (graph, _TOKENIZER, *_OPTIONAL, *beside, *own)
            return {name: (root + name, entries[root + name]) for name in names if root + name in entries}
    return {}


def read(folder: Path) -> Layout:
    """Reads the layout from a model's own configuration files.

    Raises:
        ValueError: A file is missing or unreadable, or the model does what is not known here
            (a dense layer after the pooling, several poolings at once).
    """
    graph = next((name for name in GRAPH_NAMES if (folder / name).is_file()), None)
    if graph is None or not (folder / _TOKENIZER).is_file():
        raise ValueError("there is no ONNX export with a tokenizer.json in it")
    config = _json(folder / "config.json")
    pooling_path = "1_Pooling"
    for module in _json(folder / "modules.json", []):
        kind = str(module.get("type", "")).rsplit(".", 1)[-1]
        if kind not in ("Transformer", "Pooling", "Normalize"):
            raise ValueError(f"its module {kind} is not supported")
        if kind == "Pooling":
            pooling_path = str(module.get("path") or pooling_path)
    pooling = _json(folder / pooling_path / "config.json")
    width = pooling.get("word_embedding_dimension") or pooling.get("embedding_dimension") or config.get("hidden_size")
    if not isinstance(width, int) or width < 1:
        raise ValueError("its configuration names no dimension")
    return Layout(graph, width, _max_tokens(folder, config), _pooling(pooling))


def _pooling(config: Mapping[str, Any]) -> str:
    named = config.get("pooling_mode")
    modes = [named] if isinstance(named, str) else named
    if modes is None:
        switches = {
            "mean": "pooling_mode_mean_tokens",
            "cls": "pooling_mode_cls_token",
            "max": "pooling_mode_max_tokens",
            "mean_sqrt_len": "pooling_mode_mean_sqrt_len_tokens",
        }
        # Also the switches that are not known here count: they make the vector another one.
        modes = [mode for mode, key in switches.items() if config.get(key)]
        known = set(switches.values())
        modes += [key for key in config if key.startswith("pooling_mode_") and key not in known and config[key]]
    if not modes:
        return "mean"
    if len(modes) > 1 or modes[0] not in POOLINGS:
        raise ValueError(f"its pooling {', '.join(map(str, modes))} is not supported")
    return str(modes[0])


def _max_tokens(folder: Path, config: Mapping[str, Any]) -> int:
    longest = _json(folder / "sentence_bert_config.json").get("max_seq_length")
    if longest is None:
        # Like sentence-transformers. RoBERTa's table has two rows that are no positions.
        limits = [
            _json(folder / "tokenizer_config.json").get("model_max_length"),
            config.get("max_position_embeddings"),
        ]
        longest = min((int(limit) for limit in limits if isinstance(limit, (int, float))), default=512)
    if not isinstance(longest, int) or longest < 4:
        raise ValueError("its longest input is not a number of tokens")
    return min(longest, 8192)


def _json(path: Path, default: Any = None) -> Any:
    """Reads a JSON file that may be missing."""
    empty = {} if default is None else default
    if not path.is_file():
        return empty
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"its {path.name} cannot be read") from error
    if not isinstance(value, type(empty)):
        raise ValueError(f"its {path.name} is not what it should be")
    return value
