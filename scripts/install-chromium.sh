#!/bin/sh
# Makes sure that there is a Chromium on PATH, for the test of the page.
#
# Exits with 3 if it cannot be had: no apt, no right to install, or no such package. Whoever
# calls this decides whether to go on without.
set -eu

unavailable() {
	echo "NO CHROMIUM: $1. The page is not tested in a browser." >&2
	echo "Install Chromium so that chromium is on PATH (Debian: apt-get install chromium)." >&2
	exit 3
}

for name in "${CHROMIUM:-chromium}" chromium-browser google-chrome; do
	if command -v "$name" >/dev/null 2>&1; then
		"$name" --version 2>/dev/null
		exit 0
	fi
done

command -v apt-get >/dev/null 2>&1 || unavailable "there is no apt-get to install it with"
if [ "$(id -u)" -ne 0 ]; then
	command -v sudo >/dev/null 2>&1 || unavailable "only root can install it"
	sudo -n true 2>/dev/null || unavailable "sudo wants a password"
	exec sudo -n sh "$0"
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update || unavailable "apt-get update fails"
apt-get install -y --no-install-recommends chromium || unavailable "apt has no package chromium"
chromium --version || unavailable "the package chromium does not run here"
