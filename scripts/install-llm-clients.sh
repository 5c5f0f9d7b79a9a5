#!/bin/sh
# Makes sure that the client libraries of language models are there, in the versions of
# internal/tests/llmclients/package-lock.json, and prints the directory that has them. They are brought into
# a cache directory; none of their scripts runs.
#
# Exits with 3 if they cannot be had: no node or npm, or no registry. The caller decides whether to go on
# without.
set -eu

unavailable() {
	echo "NO CLIENTS OF LANGUAGE MODELS: $1. What they see was not tested." >&2
	echo "Install Node.js 20 or newer with npm, so that node and npm are on PATH." >&2
	exit 3
}

for tool in node npm; do
	command -v "$tool" >/dev/null 2>&1 || unavailable "there is no $tool"
done
[ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ] || unavailable "node $(node --version) is older than 20"

locked=$(cd "$(dirname "$0")/../internal/tests/llmclients" && pwd)
dir=${XDG_CACHE_HOME:-$HOME/.cache}/sliding_window/llmclients-$(cksum <"$locked/package-lock.json" | tr ' ' -)
if [ ! -d "$dir" ]; then
	mkdir -p "$(dirname "$dir")"
	tmp=$(mktemp -d "$dir.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	cp "$locked/package.json" "$locked/package-lock.json" "$tmp"
	(cd "$tmp" && npm ci --ignore-scripts --no-audit --no-fund) >&2 || unavailable "npm ci fails"
	mv -T "$tmp" "$dir" 2>/dev/null || [ -d "$dir" ] # another run was faster
fi
echo "$dir"
