package lint

import "github.com/caddyserver/caddy/v2/modules/caddyhttp"

// App returns the servers of a configuration, which do not run.
func (c *Config) App() *caddyhttp.App { return c.app }
