package slidingwindow_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"go.uber.org/goleak"

	_ "github.com/slidingwindow/caddy-sliding-window"
	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
)

// home is where Caddy may write; environment is that of the test run.
var (
	home        string
	environment = os.Environ()
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if home, err = os.MkdirTemp("", "sliding_window"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(home) }()
		for _, name := range []string{"XDG_CONFIG_HOME", "XDG_DATA_HOME"} {
			_ = os.Setenv(name, home)
		}
		code := m.Run()
		_ = caddy.Stop()
		http.DefaultClient.CloseIdleConnections()
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// buildCaddy builds the binary once, with the race detector.
var buildCaddy = sync.OnceValues(func() (string, error) {
	path := filepath.Join(home, "caddy-with-plugin")
	cmd := exec.Command("go", "build", "-race", "-o", path, "./cmd/caddy")
	cmd.Env = environment // the go command keeps its settings below XDG_CONFIG_HOME
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// caddyProcess is a Caddy with this plugin in a process of its own.
type caddyProcess struct {
	Admin string // host:port
	log   *logBuffer
	cmd   *exec.Cmd
}

// startCaddy runs a Caddyfile, with `{admin}` standing for the admin's address,
// until the end of the test, and waits for the address to answer.
func startCaddy(t *testing.T, caddyfile, address string) *caddyProcess {
	t.Helper()
	binary, err := buildCaddy()
	if err != nil {
		t.Fatal(err)
	}
	p := &caddyProcess{Admin: freeAddress(t), log: new(logBuffer)}
	path := filepath.Join(t.TempDir(), "Caddyfile")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(caddyfile, "{admin}", p.Admin)), 0o600); err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(binary, "run", "--config", path)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(os.Interrupt)
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("caddy ended with %v:\n%s", err, p.log)
		}
		if strings.Contains(p.log.String(), "DATA RACE") {
			t.Errorf("caddy has a data race:\n%s", p.log)
		}
	})
	eventually(t, 20*time.Second, "caddy answers at "+address, func() bool {
		resp, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return true
	})
	return p
}

// loadCaddy loads a Caddyfile into the Caddy of this process.
func loadCaddy(caddyfile string) error {
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return err
	}
	return caddy.Load(config, true)
}

// logBuffer collects what a process writes.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// freeAddress returns an address that nobody listens on, another one each time.
func freeAddress(t *testing.T) string {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))
		if _, taken := addresses.LoadOrStore(address, true); !taken {
			return address
		}
	}
}

var addresses sync.Map

// eventually polls until ok, for what no event tells.
func eventually(t *testing.T, patience time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("after %s still not: %s", patience, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// newClient returns a client with connections of its own.
func newClient(t *testing.T) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

// answer is what a test wants to know of a response.
type answer struct {
	status       int
	header       http.Header
	body         string
	sent, gotten time.Time
}

// get asks for / with a value for the header X-Key.
func get(client *http.Client, address, key string) (answer, error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("X-Key", key)
	a := answer{sent: time.Now()}
	resp, err := client.Do(req)
	if err != nil {
		return a, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	a.gotten, a.status, a.header, a.body = time.Now(), resp.StatusCode, resp.Header, string(body)
	return a, err
}

func mustGet(t *testing.T, client *http.Client, address, key string) answer {
	t.Helper()
	a, err := get(client, address, key)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
