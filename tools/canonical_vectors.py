"""Writes tests/canonical_vectors.json: what sentence-transformers makes of some varied texts.

Run once, in an environment of its own with sentence-transformers and torch, against the
official files; the result is committed, so that the tests need neither:

    python tools/canonical_vectors.py FOLDER_WITH_THE_OFFICIAL_FILES tests/canonical_vectors.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TEXTS = [
    "",
    " ",
    "a",
    "?",
    "...!!!",
    "42",
    "3.14159 -2.5e-10 1,000,000",
    "2026-11-30T23:59:59Z",
    "192.168.0.1:8080",
    "hello",
    "HELLO WORLD",
    "  padded   with \t tabs\nand newlines  ",
    "How do I rotate the deploy key?",
    "When do we rotate the deploy key?",
    "Enable the feature flag for all users.",
    "Disable the feature flag for all users.",
    "Copy the files from server A to server B.",
    "Copy the files from server B to server A.",
    "The request times out after 30 seconds.",
    "The request times out after 300 seconds.",
    "Don't restart the billing service while the nightly import runs.",
    "def mean(values: list[float]) -> float:\n    return sum(values) / len(values)",
    "SELECT name, count(*) FROM users WHERE deleted_at IS NULL GROUP BY name HAVING count(*) > 1;",
    "for (int i = 0; i < 10; ++i) { total += a[i] * b[i]; }",
    "git rebase --interactive HEAD~3 && git push --force-with-lease",
    'curl -X POST https://api.example.com/v1/items -H "Content-Type: application/json" -d \'{"a": 1}\'',
    '<div class="card" id="x1">R&amp;D</div>',
    "/usr/local/lib/python3.11/site-packages/numpy/__init__.py",
    "C:\\Users\\Ada\\AppData\\Local\\Temp\\log.txt",
    "d41d8cd98f00b204e9800998ecf8427e",
    "TypeError: 'NoneType' object is not subscriptable",
    "E = mc^2, where c = 299792458 m/s",
    "如何重置密码？",
    "数据库连接超时,请检查网络设置。",
    "パスワードを忘れたときはどうすればいいですか。",
    "데이터베이스에 연결할 수 없습니다.",
    "Ошибка подключения к серверу",
    "مرحبا بالعالم",
    "Ünïcödé àccénts ñandú, żółć gęślą jaźń",
    "🎉🚀 shipped it!",
    "👩\u200d👩\u200d👧\u200d👦 family, ❤️ and ✅",
    "¯\\_(ツ)_/¯ “curly quotes” – dashes — and … ellipsis",
    "unbelievablylongwordwithoutanyspaces" * 3,
    "x" * 150,
    "zero\u200bwidth and soft\u00adhyphen and nul\u0000byte",
    "The migration adds a column, fills it in batches of 500 rows, then swaps the names. " * 3,
    "A retry must be idempotent: the queue delivers at least once, so the handler looks up the key "
    "before it writes, and answers with the stored result when it finds one. " * 4,
    "step 1: open the valve, step 2: wait 10 s, step 3: close it again; " * 11,
    # Exactly 256 tokens with the special ones: the longest text that is seen whole.
    "word " * 254,
]


def main() -> int:
    """Embeds the texts and writes the file."""
    import numpy
    import sentence_transformers  # type: ignore[import-not-found, unused-ignore]  # a scratch environment has it
    import torch  # type: ignore[import-not-found, unused-ignore]

    folder, output = sys.argv[1:]
    model = sentence_transformers.SentenceTransformer(folder, device="cpu")
    counts = [len(model.tokenizer(text)["input_ids"]) for text in TEXTS]
    assert max(counts) == 256 == model.max_seq_length, counts
    vectors = model.encode(TEXTS, normalize_embeddings=True).astype(numpy.float32)
    content = {
        "model": "sentence-transformers/all-MiniLM-L6-v2",
        "made_with": {"sentence-transformers": sentence_transformers.__version__, "torch": torch.__version__},
        "vectors": [
            {"text": text, "tokens": count, "vector": [round(float(number), 7) for number in vector]}
            for text, count, vector in zip(TEXTS, counts, vectors, strict=True)
        ],
    }
    lines = json.dumps(content, ensure_ascii=True, separators=(",", ":")).replace('{"text"', '\n{"text"')
    Path(output).write_text(lines + "\n", encoding="utf-8")
    print(f"{len(TEXTS)} texts, {Path(output).stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
