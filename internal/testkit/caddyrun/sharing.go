package caddyrun

// Sharing is a Caddyfile of a Caddy on a Redis that others share. Each %s takes, in this order, a directory for its storage,
// the lines of the store that say where Redis is, and the address of its site.
const Sharing = `{
	admin {admin}
	persist_config off
	auto_https off
	storage file_system %s
	sliding_window {
		store redis {
			%s
			timeout 2s
		}
	}
}
http://%s {
	respond /healthz ok
	sliding_window {
		zone api {
			key {header.X-Key}
			limit 1000 1h
		}
	}
	respond ok
}
`
