#!/bin/sh
# After an installation, an upgrade or a removal: systemd reads its units again. A Caddy that runs
# keeps its binary until `systemctl restart caddy`.
set -e
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
