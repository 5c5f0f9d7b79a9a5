package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/certmagic"

	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

func init() { caddy.RegisterModule(slowStorage{}) }

// slowStorage is a storage that holds up the app while it is provisioned, by its first Load.
type slowStorage struct {
	Directory string `json:"directory"`

	certmagic.Storage
}

// slowLoad is that of slowStorage, in the test that runs: its first call waits.
var slowLoad func()

func (slowStorage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.storage.slow_test", New: func() caddy.Module { return new(slowStorage) }}
}

func (s *slowStorage) CertMagicStorage() (certmagic.Storage, error) {
	s.Storage = &certmagic.FileStorage{Path: s.Directory}
	return s, nil
}

func (s *slowStorage) Load(ctx context.Context, key string) ([]byte, error) {
	if strings.HasSuffix(key, "overrides.json") {
		slowLoad()
	}
	return s.Storage.Load(ctx, key)
}

// silentRedis accepts connections, and never answers: the app that starts asks it for overrides, and waits. reached is
// closed with the first connection.
func silentRedis(t *testing.T, reached chan struct{}) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		first := sync.OnceFunc(func() { close(reached) })
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			first()
		}
	})
	t.Cleanup(func() { _ = l.Close(); ended.Wait() })
	return l.Addr().String()
}

// The admin endpoint answers before Caddy has loaded its configuration, and sites may serve before the zones are known to it.
// What is asked by then waits until they are.
func TestAskedWhileStarting(t *testing.T) {
	requests := map[string]string{"inspect": `{"zone":"api","key":"192.0.2.1"}`, "enforce": `{"zone":"api","mode":"config"}`, "zones": ""}
	for name, c := range map[string]struct{ starts, reload bool }{"provisioned": {}, "started": {true, false}, "reloaded": {true, true}} {
		t.Run(name, func(t *testing.T) {
			load := func(admin, zone, store, storage string) error {
				caddyfile := fmt.Sprintf("{\n\tadmin %s\n\tpersist_config off\n\tauto_https off\n\tstorage_clean_interval off\n}\nhttp://%s {\n\tsliding_window {\n\t\tzone %s {\n\t\t\tlimit 5 1m\n\t\t}\n\t\tstore %s\n\t}\n}\n", admin, caddyrun.FreeAddress(t), zone, store)
				config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), nil)
				if err != nil {
					return err
				}
				return caddy.Load([]byte(fmt.Sprintf(`{"storage":%s,`, storage)+strings.TrimPrefix(string(config), "{")), true)
			}
			reached, goOn := make(chan struct{}), make(chan struct{})
			quick := fmt.Sprintf(`{"module":"file_system","root":%q}`, t.TempDir())
			store, storage := "memory", fmt.Sprintf(`{"module":"slow_test","directory":%q}`, t.TempDir())
			slowLoad = sync.OnceFunc(func() { close(reached); <-goOn })
			if c.starts {
				store, storage = "redis {\n\t\t\taddress "+silentRedis(t, reached)+"\n\t\t\ttimeout 1s\n\t\t}", quick
			}
			t.Cleanup(func() {
				_ = caddy.Load([]byte(`{"admin":{"disabled":true}}`), true) // ends the admin endpoint, which Stop does not
				_ = caddy.Stop()
			})
			if c.reload {
				if err := load(caddyrun.FreeAddress(t), "before", "memory", quick); err != nil {
					t.Fatal(err)
				}
			}
			admin := caddyrun.FreeAddress(t)
			loaded := make(chan error, 1)
			go func() { loaded <- load(admin, "api", store, storage) }()
			select {
			case <-reached:
			case err := <-loaded:
				t.Fatalf("loaded without a wait: %v", err)
			}

			answers := make(chan error, len(requests))
			for path, body := range requests {
				if c.reload && path == "zones" { // which shows what runs before
					answers <- nil
					continue
				}
				go func() { answers <- askStarting(admin, path, body) }()
			}
			time.Sleep(200 * time.Millisecond) // an answer that does not wait is there by then
			close(goOn)
			if err := <-loaded; err != nil {
				t.Error(err)
			}
			for range requests {
				if err := <-answers; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A configuration that fails to load, when it is provisioned or when it starts, leaves no request waiting for its zones.
func TestAskedAfterFailedLoad(t *testing.T) {
	admin, own := caddyrun.FreeAddress(t), caddyrun.FreeAddress(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	caddyfile := func(address, rest string) string {
		return fmt.Sprintf("{\n\tadmin %s\n\tpersist_config off\n\tauto_https off\n\tstorage_clean_interval off\n}\nhttp://%s {\n\tbind 127.0.0.1\n\tsliding_window api {client_ip} 5 1m\n%s}\n", admin, address, rest)
	}
	t.Cleanup(func() {
		_ = caddy.Load([]byte(`{"admin":{"disabled":true}}`), true)
		_ = caddy.Stop()
	})
	if err := loadCaddy(caddyfile(own, "")); err != nil {
		t.Fatal(err)
	}
	for _, fails := range []string{caddyfile(own, "\thandle /x {\n\t\tsliding_window api {client_ip} 6 1m\n\t}\n"), caddyfile(taken.Addr().String(), "")} {
		if err := loadCaddy(fails); err == nil {
			t.Fatalf("no error: %s", fails)
		}
		if running.Zones.IsLoading() {
			t.Errorf("requests wait for what failed to load: %s", fails)
		}
	}
}

// askStarting wants an answer about zone api.
func askStarting(admin, path, body string) error {
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequest(method, "http://"+admin+"/sliding_window/"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode >= 300 || !strings.Contains(string(text), `"api"`)) {
		err = errors.New("no answer about the zone")
	}
	if err != nil {
		return fmt.Errorf("%s: %d %s: %w", path, resp.StatusCode, text, err)
	}
	return nil
}
