"""The graph: the same bytes on every run, the same numbers as the definition of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tiny_model

from subconscious_mcp import embedding, model_files

export_graph: Any = tiny_model.load_tool("export_graph")


def test_output_is_the_same_on_every_run(tmp_path: Path) -> None:
    tiny_model.write_bert(tmp_path / "a")
    tiny_model.write_bert(tmp_path / "b")
    assert (tmp_path / "a" / "model.onnx").read_bytes() == (tmp_path / "b" / "model.onnx").read_bytes()


def test_packaged_graph_is_what_the_tool_writes(real_model_dir: Path, tmp_path: Path) -> None:
    output = tmp_path / "model.onnx"
    assert export_graph.main([str(real_model_dir), "--output", str(output)]) == 0
    packaged = model_files.packaged_graph("all-MiniLM-L6-v2")
    assert packaged is not None
    assert output.read_bytes() == packaged.read_bytes()


def test_holds_no_weights_and_only_standard_operators() -> None:
    packaged = model_files.packaged_graph("all-MiniLM-L6-v2")
    assert packaged is not None
    model = onnx.load(str(packaged), load_external_data=False)
    assert len(packaged.read_bytes()) < 50_000
    assert {node.domain for node in model.graph.node} == {""}
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17)]
    assert model.ir_version == 8
    inline = [item for item in model.graph.initializer if item.data_location != onnx.TensorProto.EXTERNAL]
    assert max(np.prod(item.dims, dtype=int) for item in inline) <= 2


def test_is_a_valid_model(tmp_path: Path) -> None:
    tiny_model.write_bert(tmp_path)
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_computes_what_the_model_is_defined_as(tmp_path: Path, pooling: str) -> None:
    weights = tiny_model.write_bert(tmp_path, pooling)
    session = embedding._session(tmp_path / "model.onnx")
    rows = [[2, 5, 6, 7, 8, 9, 3], [2, 11, 3], [2, 3]]
    ids = np.array([row + [0] * (7 - len(row)) for row in rows], dtype=np.int64)
    mask = np.array([[1] * len(row) + [0] * (7 - len(row)) for row in rows], dtype=np.int64)
    (result,) = session.run(["sentence_embedding"], {"input_ids": ids, "attention_mask": mask})
    expected = np.stack([tiny_model.reference(weights, row, pooling) for row in rows])
    np.testing.assert_allclose(result, expected, atol=2e-6)


def test_reads_a_checkpoint_that_keeps_its_encoder_under_a_prefix(tmp_path: Path) -> None:
    weights = tiny_model.write_bert(tmp_path)
    plain = (tmp_path / "model.onnx").read_bytes()
    tiny_model.write_safetensors(
        tmp_path / "model.safetensors", {f"bert.{name}": value for name, value in weights.items()}
    )
    assert len(export_graph.export(tmp_path)) == pytest.approx(len(plain), rel=0.01)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"model_type": "mpnet"}, "only BERT"),
        ({"hidden_act": "relu"}, "only BERT"),
        ({"position_embedding_type": "relative_key"}, "absolute"),
    ],
)
def test_refuses_what_it_would_compute_wrongly(tmp_path: Path, change: dict[str, str], complaint: str) -> None:
    tiny_model.write_bert(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=complaint):
        export_graph.export(tmp_path)


def test_refuses_other_poolings_and_other_types(tmp_path: Path) -> None:
    tiny_model.write_bert(tmp_path)
    header, start = export_graph.read_header(tmp_path / "model.safetensors")
    shape = export_graph.Shape.read(tmp_path)
    header["embeddings.word_embeddings.weight"]["dtype"] = "F16"
    with pytest.raises(ValueError, match="F16"):
        export_graph.build(shape, header, start)
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    with pytest.raises(ValueError, match="pooling"):
        export_graph.export(tmp_path)


def test_writes_beside_the_weights_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_model.write_bert(tmp_path)
    (tmp_path / "1_Pooling" / "config.json").unlink()
    graph = (tmp_path / "model.onnx").read_bytes()
    assert export_graph.main([str(tmp_path)]) == 0
    # Without a pooling configuration it is the mean, not the first token.
    assert (tmp_path / "model.onnx").read_bytes() != graph
    assert "bytes" in capsys.readouterr().out
