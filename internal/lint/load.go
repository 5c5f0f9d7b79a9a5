package lint

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/lint/written"
)

// Config is a configuration that loads.
type Config struct {
	app    *caddyhttp.App // nil without servers
	zones  []*zone
	source *written.Source
	log    *evidence // nil without a log
}

// zone is a zone in one handler.
type zone struct {
	*ZoneFacts
	handler *HandlerFacts
	server  *server
	flow    *flow // on which requests come to the handler
}

// server is a server as configured. Caddy keeps none of these where others see it, or fills in defaults.
type server struct {
	TrustedProxies *struct {
		Source string   `json:"source"`
		Ranges []string `json:"ranges"`
	} `json:"trusted_proxies"`
	ClientIPHeaders []string       `json:"client_ip_headers"`
	Strict          int            `json:"trusted_proxies_strict"`
	WriteTimeout    caddy.Duration `json:"write_timeout"`
}

// Load loads a configuration as `caddy validate` does, but that its logs are discarded and that what Caddy keeps in its
// storage, such as the root certificate of a local authority, is kept in a directory that is removed again. The
// error says why the configuration does not load. Call close when the Config is no longer used.
func Load(config []byte) (c *Config, closeAll func(), err error) {
	var cfg caddy.Config
	if err := caddy.StrictUnmarshalJSON(caddy.RemoveMetaFields(config), &cfg); err != nil {
		return nil, nil, fmt.Errorf("decoding config: %w", err)
	}
	var servers struct {
		Servers map[string]*server `json:"servers"`
	}
	if raw := cfg.AppsRaw["http"]; raw != nil {
		if err := json.Unmarshal(raw, &servers); err != nil {
			return nil, nil, fmt.Errorf("decoding config: %w", err)
		}
	}
	dir, err := os.MkdirTemp("", "sliding-window-lint-")
	if err != nil {
		return nil, nil, err
	}
	apps := cfg.AppsRaw
	quiet := &caddy.Config{StorageRaw: fileStorage(dir), Logging: discarded(cfg.Logging)}
	ctx, cancel, err := provision(quiet, apps)
	closeAll = func() {
		cancel()
		_ = os.RemoveAll(dir)
	}
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	c = new(Config)
	if _, has := apps["http"]; !has {
		return c, closeAll, nil
	}
	app, err := ctx.App("http")
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	c.app = app.(*caddyhttp.App)
	for _, name := range slices.Sorted(maps.Keys(c.app.Servers)) {
		c.walk(c.app.Servers[name], servers.Servers[name])
	}
	return c, closeAll, nil
}

// provision provisions the apps of a configuration in a context of their own, whose cancel function cleans them up.
func provision(cfg *caddy.Config, apps caddy.ModuleMap) (caddy.Context, context.CancelFunc, error) {
	base, err := caddy.ProvisionContext(cfg)
	if err != nil {
		return base, func() {}, err
	}
	cfg.AppsRaw = maps.Clone(apps)
	ctx, cancel := caddy.NewContext(base)
	for _, name := range slices.Sorted(maps.Keys(apps)) {
		if _, err := ctx.App(name); err != nil {
			return ctx, cancel, err
		}
	}
	return ctx, cancel, nil
}

func fileStorage(dir string) json.RawMessage {
	raw, _ := json.Marshal(map[string]string{"module": "file_system", "root": filepath.Join(dir, "storage")}) // it is text
	return raw
}

// discarded returns logs of the same names that are written nowhere, so that no log file is made.
func discarded(logging *caddy.Logging) *caddy.Logging {
	quiet := &caddy.Logging{Logs: map[string]*caddy.CustomLog{caddy.DefaultLoggerName: nil}}
	if logging != nil {
		for name := range logging.Logs {
			quiet.Logs[name] = nil
		}
	}
	for name := range quiet.Logs {
		quiet.Logs[name] = new(caddy.CustomLog)
		quiet.Logs[name].WriterRaw = json.RawMessage(`{"output":"discard"}`)
	}
	return quiet
}
