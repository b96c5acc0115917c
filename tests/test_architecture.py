"""The layers: imports point down, each engine has one module, hooks-to-be stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "subconscious_mcp"

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"", "errors", "records", "schema", "identity", "locate", "endpoint", "heavy_imports", "json_text"}),
    frozenset(
        {
            "config",
            "namespaces",
            "exact_search",
            "full_text",
            "feedback",
            "hnsw_files",
            "hybrid",
            "model_layout",
            "redaction",
            "secret_shapes",
            "secret_values",
            "contrasts",
            "confidence",
            "neighbourhood",
            "antonyms",
            "lexicon",
            "stems",
            "values",
            "phrasing",
            "reading",
            "wording",
            "relations",
            "asking",
            "transcripts",
            "transcript_records",
            "injected",
            "client_settings",
            "transfer_format",
            "http_names",
            "rate_limit",
        }
    ),
    frozenset(
        {
            "embedding",
            "model_files",
            "model_install",
            "model_sources",
            "vectors",
            "database",
            "rows",
            "namespace_rows",
            "entry_rows",
            "note_rows",
            "vector_rows",
            "feedback_rows",
            "transfer_rows",
            "consolidated_rows",
            "traces",
            "salvage",
            "full_text_index",
            "storage_lock",
            "store",
            "logs",
            "wire",
            "verification",
            "language_model",
            "arguments",
            "restoring",
            "audit",
            "oauth",
            "tokens",
        }
    ),
    frozenset(
        {
            "access",
            "inbox",
            "injected_files",
            "echo_log",
            "index_following",
            "set_search",
            "local_store",
            "settings_file",
            "hook_clients",
        }
    ),
    frozenset({"drift", "memory"}),
    frozenset(
        {
            "opening",
            "doctor",
            "learning",
            "near_duplicates",
            "old_notes",
            "consolidation",
            "notes",
            "tuning",
            "ingest",
            "ambient",
            "install_hooks",
            "transfer",
            "importing",
            "foreign_formats",
            "backup",
        }
    ),
    frozenset(
        {
            "render",
            "learning_payloads",
            "consolidation_payloads",
            "note_payloads",
            "note_verbs",
            "seed_demo",
            "resources",
            "tuning_plot",
            "verbs",
            "tables",
            "terminal",
            "demo",
            "toolsets",
            "toolsets.tool",
            "toolsets.parameters",
            "toolsets.cache",
            "toolsets.consolidation",
            "toolsets.feedback",
            "toolsets.notes",
        }
    ),
    frozenset({"session", "early_session", "sdk_session", "host", "server", "engine", "http", "pipe", "hooks"}),
    frozenset(
        {
            "cli",
            "engine_client",
            "http_commands",
            "ambient_commands",
            "learning_commands",
            "notes_commands",
            "consolidation_commands",
            "transfer_commands",
            "install_hooks_command",
            "__main__",
        }
    ),
)
ENGINES = {
    "chromadb": {"vectors"},
    # The inbox is a file of its own that hooks write; importing `database` would cost them numpy.
    "sqlite3": {"database", "inbox"},
    "_sqlite3": {"inbox"},
    "onnxruntime": {"embedding"},
    "tokenizers": {"embedding"},
    "huggingface_hub": {"model_sources"},
    "mcp": {"sdk_session", "http"},
    "starlette": {"http"},
    "uvicorn": {"http"},
    "jwt": {"oauth"},
    "httpx": {"language_model"},
    "mcp_types": {"sdk_session"},
}
# Adapters may start one another: a server is its sessions, the command line starts the server.
LAZY_UPWARD = {("server", "cli"), ("pipe", "cli")}


def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path) -> set[str]:
    package = (
        ["subconscious_mcp", *name.split(".")]
        if path.name == "__init__.py"
        else ["subconscious_mcp", *name.split(".")[:-1]]
    )
    package = [part for part in package if part]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(node)
        for guard in ast.walk(tree)
        if isinstance(guard, ast.If) and ast.unparse(guard.test) == "TYPE_CHECKING"
        for statement in guard.body
        for node in ast.walk(statement)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            found.update(f"{module}.{alias.name}" for alias in node.names)
    return found


def own(imported: str, known: set[str]) -> str | None:
    if imported.partition(".")[0] != "subconscious_mcp":
        return None
    name = imported.removeprefix("subconscious_mcp").removeprefix(".")
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def layer_of(name: str) -> int:
    return next(number for number, names in enumerate(LAYERS) if name in names)


def test_every_module_has_a_layer() -> None:
    named = frozenset().union(*LAYERS)
    assert set(modules()) <= named


@pytest.mark.parametrize("name", sorted(modules()))
def test_imports_point_down(name: str) -> None:
    known = set(modules())
    upward = {
        target
        for imported in imports(name, modules()[name])
        if (target := own(imported, known)) is not None
        and layer_of(target) > layer_of(name)
        and (name, target) not in LAZY_UPWARD
        and name != ""
    }
    assert not upward


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_each_engine_has_one_module(engine: str) -> None:
    users = {
        name
        for name, path in modules().items()
        if any(imported.partition(".")[0] == engine for imported in imports(name, path))
    }
    assert users <= ENGINES[engine]


def test_only_config_reads_the_environment() -> None:
    readers = {
        name
        for name, path in modules().items()
        if any(
            word in path.read_text(encoding="utf-8")
            for word in ("os.environ.get", "os.getenv", "environ[", "from os import environ")
        )
    }
    # The pipe hands the environment on and must not import `config`; the engine sets its own home; the
    # embedder switches telemetry off; the sources hand the environment on to pip.
    assert readers <= {"config", "pipe", "endpoint", "engine", "embedding", "model_sources"}


def test_the_handshake_loads_nothing_heavy() -> None:
    code = (
        "import sys; import subconscious_mcp.cli, subconscious_mcp.server, subconscious_mcp.early_session;"
        "heavy = {'mcp', 'chromadb', 'onnxruntime', 'tokenizers', 'numpy', 'pydantic', 'rich', 'huggingface_hub'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_pipe_loads_next_to_nothing() -> None:
    code = (
        "import sys; import subconscious_mcp.__main__, subconscious_mcp.pipe;"
        "heavy = {'mcp', 'chromadb', 'onnxruntime', 'tokenizers', 'numpy', 'pydantic', 'rich', 'anyio', 'asyncio',"
        "'argparse', 'dataclasses', 'inspect', 'pathlib', 'subprocess', 'typing', 'logging', 'hashlib', 'tempfile'};"
        "own = {'subconscious_mcp.' + n for n in ('config', 'errors', 'cli', 'engine', 'host', 'memory')};"
        "print(sorted((heavy | own) & set(sys.modules)))"
    )
    # Without site, because what an environment's .pth files import is none of the pipe's.
    paths = f"import sys; sys.path[:0] = {sys.path!r}; "
    done = subprocess.run([sys.executable, "-S", "-c", paths + code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
