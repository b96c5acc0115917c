#!/usr/bin/env bash
# The Dockerfile's steps without Docker, for an installed wheel: the model inside, then the server
# without a home folder, a compiler or a PATH, and with one folder that it may write to.
#
#     tools/smoke_container.sh VENV EMPTY_FOLDER
set -euo pipefail
venv=$1 work=$2
env -i PATH=/usr/bin:/bin SUBCONSCIOUS_HOME="$work/model-home" "$venv/bin/subconscious-mcp" model install
data=$work/data
mkdir -m 0700 "$data"
chmod -R a-w "$venv" "$work/model-home"
as_user=()
if [ "$(id -u)" = 0 ]; then
  # Without these, root is bound by the modes of files like everybody.
  as_user=(setpriv --bounding-set=-dac_override,-dac_read_search,-fowner --no-new-privs)
fi
"${as_user[@]}" touch "$venv/probe" 2>/dev/null && { echo "FAILED: the package is not read-only"; exit 1; }

serve() {
  (cd / && "${as_user[@]}" env -i PATH=/nowhere SUBCONSCIOUS_HOME="$data" \
    SUBCONSCIOUS_MODELS_DIR="$work/model-home/models" SUBCONSCIOUS_MODEL_DOWNLOAD=never \
    SUBCONSCIOUS_NAMESPACE=default "$venv/bin/subconscious-mcp" serve)
}
hello='{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"smoke","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}'
call() { printf '%s\n{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"%s","arguments":%s}}\n' "$hello" "$1" "$2"; }
check() { if [[ $1 == *"$2"* ]]; then echo "ok: $3"; else echo "FAILED: $3: $1"; exit 1; fi; }

stored=$(call remember '{"task":"How do I reset my staging password?","answer":"in the vault"}' | serve)
check "$stored" '"stored":true' "a task is remembered without home, compiler or PATH, the package read-only"
found=$(call recall '{"task":"How can I reset my password on staging?"}' | serve)
check "$found" '"answer":"in the vault"' "the next container recalls it by a paraphrase"
