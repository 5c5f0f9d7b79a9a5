#!/bin/sh
# Makes sure that there is a prometheus, and prints its path. One that is not on PATH is
# brought from Debian into a cache directory, beside the system: nothing is installed, no
# service starts, and the system's apt keeps its own lists.
#
# Exits with 3 if the package cannot be had: no apt, no mirror or no such package.
# The caller decides whether to go on without.
set -eu

unavailable() {
	echo "NO PROMETHEUS: $1. The dashboard and the alerts were not tested." >&2
	echo "Install Prometheus 2.42 or newer so that prometheus is on PATH." >&2
	exit 3
}

if path=$(command -v prometheus); then
	"$path" --version >&2
	echo "$path"
	exit 0
fi

for tool in apt-get dpkg; do
	command -v "$tool" >/dev/null 2>&1 || unavailable "there is no $tool"
done
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ -n "$codename" ] || unavailable "/etc/os-release names no release"

dir=${XDG_CACHE_HOME:-$HOME/.cache}/sliding_window/prometheus-$codename-$(dpkg --print-architecture)
path=$dir/root/usr/bin/prometheus
if [ -x "$path" ] && "$path" --version >&2; then
	echo "$path"
	exit 0
fi

# The mirror is the one that the system itself uses.
mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
	awk -v release="$codename" '$1 == release && $2 == "main" { print $3; exit }')
[ -n "$mirror" ] || unavailable "apt knows no mirror of $codename main"

rm -rf "$dir"
mkdir -p "$dir/lists/partial" "$dir/archives/partial" "$dir/root"
echo "deb $mirror $codename main" >"$dir/sources.list"
apt() {
	apt-get -q -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State::lists="$dir/lists" -o Dir::Cache="$dir" -o APT::Sandbox::User= \
		-o Acquire::Retries=2 -o Acquire::http::Timeout=20 "$@" >&2
}
apt -o APT::Update::Error-Mode=any update || unavailable "the index of $codename cannot be downloaded"
(cd "$dir/archives" && apt download prometheus) || unavailable "$codename has no prometheus, or it cannot be downloaded"
for package in "$dir"/archives/prometheus_*.deb; do
	dpkg -x "$package" "$dir/root"
done
if ! "$path" --version >&2; then
	ldd "$path" >&2 || true
	echo "$path does not run" >&2
	exit 1
fi
echo "$path"
