package storestate

import (
	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
)

// Logger writes to Caddy's default log of the moment: a store may outlive the
// configuration that it came with, and its logger.
func Logger(store string) *zap.Logger {
	return caddy.Log().Named("http.handlers.sliding_window").With(zap.String("store", store))
}
