#!/bin/sh
# Makes sure that there is a program, and prints its path. One that is not on PATH is brought from
# Debian into a cache directory, beside the system: nothing is installed, no service starts, and the
# system's apt keeps its own lists. Scripts for one program set these, and run it:
#
#	program	the name on PATH and in /usr/bin of its package
#	suffix	that of the release: empty, or -backports
#	packages	what to unpack, the one with the program first
#	missing	what is not tested without it
#	cure	what to install by hand
#
# Exits with 3 if the packages cannot be had: no apt, no mirror or no such package. The caller decides
# whether to go on without.
set -eu

unavailable() {
	echo "NO $program: $1. $missing" >&2
	echo "$cure" >&2
	exit 3
}

if path=$(command -v "$program"); then
	"$path" --version >&2
	echo "$path"
	exit 0
fi

for tool in apt-get dpkg; do
	command -v "$tool" >/dev/null 2>&1 || unavailable "there is no $tool"
done
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ -n "$codename" ] || unavailable "/etc/os-release names no release"

dir=${XDG_CACHE_HOME:-$HOME/.cache}/sliding_window/$program-$codename-$(dpkg --print-architecture)
path=$dir/root/usr/bin/$program
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
echo "deb $mirror $codename$suffix main" >"$dir/sources.list"
apt() {
	apt-get -q -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State::lists="$dir/lists" -o Dir::Cache="$dir" -o APT::Sandbox::User= \
		-o Acquire::Retries=2 -o Acquire::http::Timeout=20 "$@" >&2
}
apt -o APT::Update::Error-Mode=any update || unavailable "the index of $codename$suffix cannot be downloaded"
# shellcheck disable=SC2086 # several words
(cd "$dir/archives" && apt download $packages) || unavailable "$codename$suffix lacks one of $packages, or it cannot be downloaded"
for package in "$dir"/archives/*.deb; do
	dpkg -x "$package" "$dir/root"
done
if ! "$path" --version >&2; then
	ldd "$path" >&2 || true
	echo "$path does not run" >&2
	exit 1
fi
echo "$path"
