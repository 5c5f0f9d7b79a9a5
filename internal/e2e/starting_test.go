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

	"github.com/slidingwindow/caddy-sliding-window/internal/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
)

func init() { caddy.RegisterModule(slowStorage{}) }

// slowStorage is a storage in which the overrides of the memory store take until goOn is closed, the time that Held says.
type slowStorage struct {
	Directory string `json:"directory"`
	Held      int    `json:"held"`

	certmagic.Storage
}

// slowLoads are those of slowStorage, in the test that runs.
var slowLoads struct {
	sync.Mutex
	n             int
	reached, goOn chan struct{}
}

func (slowStorage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.storage.slow_test", New: func() caddy.Module { return new(slowStorage) }}
}

func (s *slowStorage) CertMagicStorage() (certmagic.Storage, error) {
	s.Storage = &certmagic.FileStorage{Path: s.Directory}
	return s, nil
}

func (s *slowStorage) Load(ctx context.Context, key string) ([]byte, error) {
	if strings.HasSuffix(key, "overrides.json") {
		slowLoads.Lock()
		slowLoads.n++
		held, reached, goOn := slowLoads.n == s.Held, slowLoads.reached, slowLoads.goOn
		slowLoads.Unlock()
		if held {
			close(reached)
			<-goOn
		}
	}
	return s.Storage.Load(ctx, key)
}

// The admin endpoint answers before Caddy has loaded its configuration, and sites may serve before the zones are known to it.
// What is asked by then waits until they are.
func TestAskedWhileStarting(t *testing.T) {
	requests := map[string]string{
		"inspect": `{"zone":"api","key":"192.0.2.1"}`, "enforce": `{"zone":"api","mode":"config"}`, "zones": "", "overrides/set": `{"zone":"api","key":"192.0.2.1","deny":true,"ttl":"1m"}`,
	}
	for name, c := range map[string]struct {
		held   int // the app asks the storage when it is provisioned, and when it starts
		reload bool
	}{
		"provisioned": {1, false}, "started": {2, false}, "reloaded": {1, true}, // in which it asks once
	} {
		t.Run(name, func(t *testing.T) {
			load := func(admin, zone string, held int) error {
				caddyfile := fmt.Sprintf("{\n\tadmin %s\n\tpersist_config off\n\tauto_https off\n\tstorage_clean_interval off\n}\nhttp://%s {\n\tsliding_window %s {client_ip} 5 1m\n}\n", admin, caddyrun.FreeAddress(t), zone)
				config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), nil)
				if err != nil {
					return err
				}
				storage := fmt.Sprintf(`{"storage":{"module":"slow_test","directory":%q,"held":%d},`, t.TempDir(), held)
				return caddy.Load([]byte(storage+strings.TrimPrefix(string(config), "{")), true)
			}
			slowLoads.Lock()
			slowLoads.n, slowLoads.reached, slowLoads.goOn = 0, make(chan struct{}), make(chan struct{})
			slowLoads.Unlock()
			t.Cleanup(func() {
				_ = caddy.Load([]byte(`{"admin":{"disabled":true}}`), true) // ends the admin endpoint, which Stop does not
				_ = caddy.Stop()
			})
			if c.reload {
				if err := load(caddyrun.FreeAddress(t), "before", 0); err != nil {
					t.Fatal(err)
				}
				slowLoads.Lock()
				slowLoads.n = 0
				slowLoads.Unlock()
			}
			admin := caddyrun.FreeAddress(t)
			loaded := make(chan error, 1)
			go func() { loaded <- load(admin, "api", c.held) }()
			select {
			case <-slowLoads.reached:
			case err := <-loaded:
				t.Fatalf("loaded without asking the storage: %v", err)
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
			close(slowLoads.goOn)
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
	if err == nil && (resp.StatusCode != http.StatusOK || !strings.Contains(string(text), `"api"`)) {
		err = errors.New("no answer about the zone")
	}
	if err != nil {
		return fmt.Errorf("%s: %d %s: %w", path, resp.StatusCode, text, err)
	}
	return nil
}
