// Command caddy is Caddy with its standard modules and the sliding_window
// directive of this repository, for `go run ./cmd/caddy`.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/slidingwindow/caddy-sliding-window"
)

func main() {
	caddycmd.Main()
}
