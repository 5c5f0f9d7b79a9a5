#!/bin/sh
# Makes sure that the tests have what they need beside Go: redis-server and a C
# compiler. No service is left running: the tests start servers of their own.
set -eu

if ! command -v "$(go env CC 2>/dev/null || echo gcc)" >/dev/null 2>&1; then
	echo "no C compiler found: go test -race needs one. Install gcc (Debian, Ubuntu: apt-get install gcc libc6-dev)." >&2
	exit 1
fi

if command -v redis-server >/dev/null 2>&1; then
	redis-server --version
	exit 0
fi

help() {
	echo "redis-server not found, and $1." >&2
	echo "Install Redis 7.0 or newer so that redis-server is on PATH (Debian, Ubuntu: apt-get install redis-server; macOS: brew install redis)." >&2
	exit 1
}

command -v apt-get >/dev/null 2>&1 || help "there is no apt-get to install it with"
if [ "$(id -u)" -ne 0 ]; then
	command -v sudo >/dev/null 2>&1 || help "only root can install it"
	sudo -n true 2>/dev/null || help "sudo wants a password"
	exec sudo -n sh "$0"
fi

# Debian asks this file whether a new service may start; 101 is no.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	trap 'exit 1' HUP INT TERM
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends redis-server
redis-server --version
