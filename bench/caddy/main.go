// Command caddy is Caddy with the sliding_window directive of this repository and
// the directives that it is compared with.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/mholt/caddy-ratelimit"

	_ "github.com/slidingwindow/caddy-sliding-window"
)

func main() {
	caddycmd.Main()
}
