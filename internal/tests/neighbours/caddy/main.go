// Command caddy is Caddy with this plugin and those that are often beside it.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/mholt/caddy-l4"
	_ "github.com/mholt/caddy-ratelimit"

	_ "github.com/slidingwindow/caddy-sliding-window"
	_ "github.com/slidingwindow/caddy-sliding-window/stores"
)

func main() { caddycmd.Main() }
