"""Writes the ONNX graph of a BERT-shaped sentence encoder over its own safetensors file.

The graph carries no weights. Every initializer is ONNX external data that points, by
offset and length, straight into `model.safetensors`: that format is an eight-byte length,
a JSON header and raw little-endian tensors, which is what ONNX external data wants. So the
weights stay the official file, verified by its own sha256, and the graph is a few kilobytes
that anybody can write again and compare.

    python tools/export_graph.py FOLDER [--output model.onnx]

FOLDER holds `config.json`, `model.safetensors` (only its header is read) and, if the model
pools otherwise than by the mean, `1_Pooling/config.json`. The output is the same, byte for
byte, on every run.

Needs the `onnx` package (a development dependency; the product itself does not).
"""

from __future__ import annotations

import argparse
import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Opset 17 is the first with LayerNormalization; it and IR 8 load in every onnxruntime from
# 1.12 on, so neither the oldest supported release nor the newest has to convert anything.
OPSET = 17
IR_VERSION = 8

WEIGHTS_NAME = "model.safetensors"

# Added to the attention scores of padding. Far below any score, far from overflowing.
MASKED = -1e9


@dataclass(frozen=True)
class Shape:
    """What the graph needs to know of a BERT-shaped model.

    Attributes:
        hidden: Width of a token vector, and of the result.
        layers: Number of encoder layers.
        heads: Attention heads; divides `hidden`.
        epsilon: Added to the variance in layer normalisation.
        pooling: `mean` over the tokens that are not padding, or `cls`, the first token.
    """

    hidden: int
    layers: int
    heads: int
    epsilon: float
    pooling: str

    @classmethod
    def read(cls, folder: Path) -> Shape:
        """Reads the shape from the model's own configuration files.

        Raises:
            ValueError: The model is not BERT-shaped, or pools in a way not known here.
        """
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if config.get("model_type") != "bert" or config.get("hidden_act") != "gelu":
            raise ValueError("only BERT with the exact gelu is supported")
        if config.get("position_embedding_type", "absolute") != "absolute":
            raise ValueError("only absolute positions are supported")
        return cls(
            hidden=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            epsilon=config["layer_norm_eps"],
            pooling=_pooling(folder / "1_Pooling" / "config.json"),
        )


def _pooling(path: Path) -> str:
    if not path.is_file():
        return "mean"
    config = json.loads(path.read_text(encoding="utf-8"))
    if config.get("pooling_mode_mean_tokens"):
        return "mean"
    if config.get("pooling_mode_cls_token"):
        return "cls"
    raise ValueError("only mean and cls pooling are supported")


def read_header(weights: Path) -> tuple[dict[str, Any], int]:
    """Reads the JSON header of a safetensors file.

    Returns:
        The header (tensor name to dtype, shape and data_offsets) and the byte at which
        the tensors begin.
    """
    with weights.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return header, 8 + length


class GraphWriter:
    """Collects nodes and initializers under readable, stable names."""

    def __init__(self, header: dict[str, Any], data_start: int) -> None:
        self._header = header
        self._data_start = data_start
        # Some checkpoints keep their encoder under "bert.".
        self._prefix = "" if "embeddings.word_embeddings.weight" in header else "bert."
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Appends one node with one output and returns the output's name."""
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, name: str, value: Any, dtype: type[Any]) -> str:
        """Appends a small inline initializer and returns its name."""
        self.initializers.append(numpy_helper.from_array(np.array(value, dtype=dtype), name))
        return name

    def weight(self, name: str, rows: int | None = None) -> str:
        """Appends an initializer that points into the weights file and returns its name.

        Args:
            name: The tensor's name in the safetensors header.
            rows: Take only that many leading rows (a prefix of the tensor's bytes).

        Raises:
            ValueError: The tensor is not float32.
        """
        entry = self._header[self._prefix + name]
        if entry["dtype"] != "F32":
            raise ValueError(f"{name} is {entry['dtype']}, not F32")
        shape = list(entry["shape"])
        if rows is not None:
            shape[0] = rows
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        facts = {
            "location": WEIGHTS_NAME,
            "offset": str(self._data_start + entry["data_offsets"][0]),
            "length": str(4 * math.prod(shape)),
        }
        for key, value in facts.items():
            tensor.external_data.add(key=key, value=value)
        self.initializers.append(tensor)
        return name

    def linear(self, value: str, module: str, output: str, scale: float = 1.0) -> str:
        """Appends `scale * (value @ weight.T + bias)`.

        Linear weights lie as [out, in]; Gemm with transB takes them as they are. A MatMul
        would need a transposed copy, and measured the same.
        """
        inputs = [value, self.weight(f"{module}.weight"), self.weight(f"{module}.bias")]
        return self.node("Gemm", inputs, output, transB=1, alpha=scale, beta=scale)

    def layer_norm(self, value: str, module: str, epsilon: float, output: str) -> str:
        inputs = [value, self.weight(f"{module}.weight"), self.weight(f"{module}.bias")]
        return self.node("LayerNormalization", inputs, output, axis=-1, epsilon=epsilon)


def _shared_constants(writer: GraphWriter, shape: Shape) -> None:
    for name, value in {
        "zero": [0],
        "hidden": [shape.hidden],
        "head_shape": [shape.heads, shape.hidden // shape.heads],
        "flat": [-1, shape.hidden],
        "axis_1_2": [1, 2],
        "axis_1": [1],
    }.items():
        writer.constant(name, value, np.int64)
    for name, number in {
        "one_f": 1.0,
        "half_f": 0.5,
        "sqrt_two": math.sqrt(2.0),
        "masked": MASKED,
        "smallest_norm": 1e-12,
    }.items():
        writer.constant(name, number, np.float32)


def _embeddings(writer: GraphWriter, shape: Shape) -> str:
    """Token, position and type embeddings, normalised: (batch * sequence, hidden)."""
    writer.node("Shape", ["input_ids"], "sequence", start=1, end=2)
    writer.node("Shape", ["input_ids"], "batch_sequence")
    words = writer.node("Gather", [writer.weight("embeddings.word_embeddings.weight"), "input_ids"], "words")
    positions = writer.node(
        "Slice",
        [writer.weight("embeddings.position_embeddings.weight"), "zero", "sequence", "zero"],
        "positions",
    )
    # One sentence at a time: every token has type 0, the first row of its table.
    kind = writer.weight("embeddings.token_type_embeddings.weight", rows=1)
    placed = writer.node("Add", [positions, kind], "positions_typed")
    total = writer.node("Add", [words, placed], "embedded")
    flat = writer.node("Reshape", [total, "flat"], "embedded_flat")
    return writer.layer_norm(flat, "embeddings.LayerNorm", shape.epsilon, "embedded_normal")


def _mask(writer: GraphWriter) -> None:
    """`mask` (batch, sequence) of 1.0 and 0.0, and `penalty` (batch, 1, 1, sequence)."""
    writer.node("Cast", ["attention_mask"], "mask", to=TensorProto.FLOAT)
    writer.node("Sub", ["one_f", "mask"], "padding")
    writer.node("Mul", ["padding", "masked"], "padding_masked")
    writer.node("Unsqueeze", ["padding_masked", "axis_1_2"], "penalty")


def _attention(writer: GraphWriter, shape: Shape, value: str, module: str) -> str:
    def project(role: str, order: list[int], scale: float = 1.0) -> str:
        flat = writer.linear(value, f"{module}.self.{role}", f"{module}.{role}", scale)
        split = writer.node("Reshape", [flat, "split_shape"], f"{module}.{role}.split")
        return writer.node("Transpose", [split], f"{module}.{role}.heads", perm=order)

    # The scale of the scores goes into the projection of the query, where it costs nothing.
    query = project("query", [0, 2, 1, 3], 1.0 / math.sqrt(shape.hidden // shape.heads))
    key = project("key", [0, 2, 3, 1])
    values = project("value", [0, 2, 1, 3])
    scores = writer.node("MatMul", [query, key], f"{module}.scores")
    masked = writer.node("Add", [scores, "penalty"], f"{module}.scores_masked")
    weights = writer.node("Softmax", [masked], f"{module}.weights", axis=-1)
    context = writer.node("MatMul", [weights, values], f"{module}.context")
    joined = writer.node("Transpose", [context], f"{module}.context.tokens", perm=[0, 2, 1, 3])
    flat = writer.node("Reshape", [joined, "flat"], f"{module}.context.flat")
    out = writer.linear(flat, f"{module}.output.dense", f"{module}.out")
    added = writer.node("Add", [out, value], f"{module}.residual")
    return writer.layer_norm(added, f"{module}.output.LayerNorm", shape.epsilon, f"{module}.normal")


def _feed_forward(writer: GraphWriter, shape: Shape, value: str, module: str) -> str:
    wide = writer.linear(value, f"{module}.intermediate.dense", f"{module}.wide")
    # The exact gelu, spelt as onnxruntime recognises it and fuses it into one kernel.
    scaled = writer.node("Div", [wide, "sqrt_two"], f"{module}.gelu.scaled")
    error = writer.node("Erf", [scaled], f"{module}.gelu.erf")
    raised = writer.node("Add", [error, "one_f"], f"{module}.gelu.raised")
    product = writer.node("Mul", [wide, raised], f"{module}.gelu.product")
    active = writer.node("Mul", [product, "half_f"], f"{module}.gelu")
    out = writer.linear(active, f"{module}.output.dense", f"{module}.out")
    added = writer.node("Add", [out, value], f"{module}.residual")
    return writer.layer_norm(added, f"{module}.output.LayerNorm", shape.epsilon, f"{module}.normal")


def _pool(writer: GraphWriter, shape: Shape, value: str) -> None:
    """Pools (batch * sequence, hidden) to `sentence_embedding`, (batch, hidden) of length 1."""
    writer.node("Concat", ["batch_sequence", "hidden"], "token_shape", axis=0)
    tokens = writer.node("Reshape", [value, "token_shape"], "token_embeddings")
    if shape.pooling == "cls":
        first = writer.constant("first", 0, np.int64)
        pooled = writer.node("Gather", [tokens, first], "pooled", axis=1)
    else:
        rows = writer.node("Unsqueeze", ["mask", "axis_1"], "mask_rows")
        summed = writer.node("MatMul", [rows, tokens], "token_sums")
        total = writer.node("Squeeze", [summed, "axis_1"], "token_sum")
        count = writer.node("ReduceSum", ["mask", "axis_1"], "token_count", keepdims=1)
        pooled = writer.node("Div", [total, count], "pooled")
    norm = writer.node("ReduceL2", [pooled], "norm", axes=[1], keepdims=1)
    safe = writer.node("Max", [norm, "smallest_norm"], "norm_safe")
    writer.node("Div", [pooled, safe], "sentence_embedding")


def build(shape: Shape, header: dict[str, Any], data_start: int) -> bytes:
    """Builds the graph.

    Args:
        shape: Measures of the model.
        header: Header of its safetensors file, see `read_header`.
        data_start: Byte at which the tensors begin in that file.

    Returns:
        The serialised ONNX model: inputs `input_ids` and `attention_mask`, int64
        (batch, sequence); output `sentence_embedding`, float32 (batch, hidden), every row
        of length 1.
    """
    writer = GraphWriter(header, data_start)
    _shared_constants(writer, shape)
    value = _embeddings(writer, shape)
    _mask(writer)
    writer.node("Concat", ["batch_sequence", "head_shape"], "split_shape", axis=0)
    for number in range(shape.layers):
        module = f"encoder.layer.{number}"
        value = _attention(writer, shape, value, f"{module}.attention")
        value = _feed_forward(writer, shape, value, module)
    _pool(writer, shape, value)
    ids, mask = (
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
        for name in ("input_ids", "attention_mask")
    )
    output = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", shape.hidden])
    graph = helper.make_graph(writer.nodes, "sentence-encoder", [ids, mask], [output], writer.initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    # Nothing that changes with the version of the onnx library may enter the bytes.
    model.producer_name = "subconscious-mcp"
    model.producer_version = ""
    return bytes(model.SerializeToString(deterministic=True))


def export(folder: Path) -> bytes:
    """Builds the graph of the model in `folder`; see `build`."""
    header, data_start = read_header(folder / WEIGHTS_NAME)
    return build(Shape.read(folder), header, data_start)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the graph; returns the exit status."""
    parser = argparse.ArgumentParser(description="Write the ONNX graph of a BERT-shaped sentence encoder.")
    parser.add_argument("folder", type=Path, help="folder with config.json and model.safetensors")
    parser.add_argument("--output", type=Path, help="default: model.onnx in the folder")
    options = parser.parse_args(arguments)
    output = options.output or options.folder / "model.onnx"
    graph = export(options.folder)
    output.write_bytes(graph)
    print(f"{output}: {len(graph)} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
