"""Builds small random models, so that tests of the embedder need no download.

Two kinds: `write_bert` is BERT-shaped, with its weights as safetensors and our own graph over
them, as the default model is; `write_export` has the layout of other repositories: a graph
with its weights inside under `onnx/`, that yields token vectors and leaves the pooling to
whoever reads `1_Pooling/config.json`.
"""

from __future__ import annotations

import importlib.util
import json
import math
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import tokenizers
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

WORDS = ["deploy", "key", "rotate", "may", "cat", "sleep", "the", "how", "do", "we", "when", "server", "down", "up"]
WORDS += ["##s", "##ing", "##ed", "!", "?", ".", "1", "2", "3"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
VOCABULARY = list(dict.fromkeys(SPECIAL + WORDS + LETTERS + ["##" + letter for letter in LETTERS]))

HIDDEN, LAYERS, HEADS, WIDE, POSITIONS = 32, 2, 4, 64, 24
MAX_TOKENS = 16


def load_tool(name: str) -> ModuleType:
    """Imports a script of tools/ as a module."""
    path = Path(__file__).resolve().parent.parent / "tools" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def bert_weights(seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Random weights under the names of a BERT checkpoint."""
    random = np.random.default_rng(seed)

    def draw(*shape: int) -> NDArray[np.float32]:
        return (random.standard_normal(shape) * 0.4).astype(np.float32)

    weights = {
        "embeddings.word_embeddings.weight": draw(len(VOCABULARY), HIDDEN),
        "embeddings.position_embeddings.weight": draw(POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": draw(2, HIDDEN),
        "embeddings.LayerNorm.weight": 1 + draw(HIDDEN),
        "embeddings.LayerNorm.bias": draw(HIDDEN),
    }
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        shapes = {
            **{f"{layer}.attention.self.{role}": (HIDDEN, HIDDEN) for role in ("query", "key", "value")},
            f"{layer}.attention.output.dense": (HIDDEN, HIDDEN),
            f"{layer}.intermediate.dense": (WIDE, HIDDEN),
            f"{layer}.output.dense": (HIDDEN, WIDE),
        }
        for name, shape in shapes.items():
            weights[f"{name}.weight"] = draw(*shape)
            weights[f"{name}.bias"] = draw(shape[0])
        for name in (f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"):
            weights[f"{name}.weight"] = 1 + draw(HIDDEN)
            weights[f"{name}.bias"] = draw(HIDDEN)
    return weights


def write_safetensors(path: Path, weights: dict[str, NDArray[np.float32]]) -> None:
    """Writes float32 tensors in the safetensors format."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, value in weights.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(value.shape),
            "data_offsets": [position, position + value.nbytes],
        }
        position += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(value.tobytes() for value in weights.values()))


def write_tokenizer(path: Path) -> None:
    """Writes a WordPiece tokenizer that, like the published one, cuts and pads on its own."""
    vocabulary = {word: number for number, word in enumerate(VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(path))


def _write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def _describe(folder: Path, pooling: str, max_tokens: int, dimension: int) -> None:
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [
        {
            "idx": number,
            "path": "1_Pooling" if kind == "Pooling" else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, kind in enumerate(kinds)
    ]
    _write_json(folder / "modules.json", modules)
    _write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_tokens, "do_lower_case": False})
    switches = {
        "pooling_mode_cls_token": pooling == "cls",
        "pooling_mode_mean_tokens": pooling == "mean",
        "pooling_mode_max_tokens": pooling == "max",
        "pooling_mode_mean_sqrt_len_tokens": pooling == "mean_sqrt_len",
    }
    _write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": dimension, **switches})


def write_bert(folder: Path, pooling: str = "cls", seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Writes a BERT-shaped model of 32 dimensions and 16 tokens, with our own graph.

    Returns:
        Its weights, for a reference computation.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = bert_weights(seed)
    write_safetensors(folder / "model.safetensors", weights)
    write_tokenizer(folder / "tokenizer.json")
    config = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": POSITIONS,
    }
    _write_json(folder / "config.json", config)
    _describe(folder, pooling, MAX_TOKENS, HIDDEN)
    (folder / "model.onnx").write_bytes(load_tool("export_graph").export(folder))
    return weights


def write_export(
    folder: Path,
    pooling: str = "mean",
    dimension: int = 8,
    max_tokens: int = 12,
    output: str = "last_hidden_state",
) -> NDArray[np.float32]:
    """Writes a model whose graph only looks up token vectors, plus 0 * token_type_ids.

    Returns:
        The table of token vectors (vocabulary, dimension).
    """
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    table = np.random.default_rng(1).standard_normal((len(VOCABULARY), dimension)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
        helper.make_node("Cast", ["token_type_ids"], ["types"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["types", "last"], ["columns"]),
        helper.make_node("Add", ["tokens", "columns"], [output]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
        for name in ("input_ids", "token_type_ids")
    ]
    result = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", "sequence", dimension])
    constants = [
        numpy_helper.from_array(table, "table"),
        numpy_helper.from_array(np.array([2], dtype=np.int64), "last"),
    ]
    graph = helper.make_graph(nodes, "export", inputs, [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(folder / "onnx" / "model.onnx"))
    write_tokenizer(folder / "tokenizer.json")
    _write_json(folder / "config.json", {"model_type": "other", "hidden_size": dimension})
    _describe(folder, pooling, max_tokens, dimension)
    return table


def _normal(value: NDArray[Any], weights: dict[str, NDArray[np.float32]], name: str) -> NDArray[Any]:
    centred = value - value.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    return np.asarray(scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"])


def reference(weights: dict[str, NDArray[np.float32]], ids: list[int], pooling: str) -> NDArray[np.float64]:
    """Computes one sentence's vector as the papers describe it, in float64 and without a graph."""
    exact = {name: value.astype(np.float64) for name, value in weights.items()}

    def linear(value: NDArray[Any], name: str) -> NDArray[Any]:
        return np.asarray(value @ exact[f"{name}.weight"].T + exact[f"{name}.bias"])

    def heads(value: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(value.reshape(len(ids), HEADS, -1).transpose(1, 0, 2))

    value = exact["embeddings.word_embeddings.weight"][ids]
    value = value + exact["embeddings.position_embeddings.weight"][: len(ids)]
    value = _normal(value + exact["embeddings.token_type_embeddings.weight"][0], weights, "embeddings.LayerNorm")
    erf = np.vectorize(math.erf)
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        query, key, content = (
            heads(linear(value, f"{layer}.attention.self.{role}")) for role in ("query", "key", "value")
        )
        scores = np.exp(query @ key.transpose(0, 2, 1) / math.sqrt(HIDDEN // HEADS))
        context = (scores / scores.sum(-1, keepdims=True)) @ content
        joined = context.transpose(1, 0, 2).reshape(len(ids), HIDDEN)
        attended = linear(joined, f"{layer}.attention.output.dense") + value
        value = _normal(attended, weights, f"{layer}.attention.output.LayerNorm")
        wide = linear(value, f"{layer}.intermediate.dense")
        active = wide * 0.5 * (1 + erf(wide / math.sqrt(2)))
        value = _normal(linear(active, f"{layer}.output.dense") + value, weights, f"{layer}.output.LayerNorm")
    pooled = value[0] if pooling == "cls" else value.mean(0)
    return np.asarray(pooled / np.linalg.norm(pooled))
