package e2e_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// person is somebody with a certificate, and a client that shows it.
type person struct {
	der    []byte
	client *http.Client
}

func newPerson(t *testing.T) *person {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ServerName:   "limits.example.com", InsecureSkipVerify: true,
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &person{der, &http.Client{Transport: transport, Timeout: 10 * time.Second}}
}

// ask returns the status of an answer; 0 without one.
func (p *person) ask(t *testing.T, method, url, body string) int {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := p.client.Do(r)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestWhoMayDoWhat runs the configuration of docs/operating.md for readers and writers of a remote
// admin endpoint.
func TestWhoMayDoWhat(t *testing.T) {
	_, section, _ := strings.Cut(readFile(t, "docs/operating.md"), "\n## Who may do what\n")
	blocks := blocksOf(section, "json")
	if len(blocks) != 1 {
		t.Fatalf("%d configurations, want 1", len(blocks))
	}
	reader, writer, stranger := newPerson(t), newPerson(t), newPerson(t)
	address, local := caddyrun.FreeAddress(t), caddyrun.FreeAddress(t)
	text := strings.NewReplacer(
		`"listen": ":2021"`, `"listen": "`+address+`"`,
		"<certificate of the reader, base64 of its DER>", base64.StdEncoding.EncodeToString(reader.der),
		"<certificate of the writer, base64 of its DER>", base64.StdEncoding.EncodeToString(writer.der),
	).Replace(blocks[0])
	var config map[string]any
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	config["admin"].(map[string]any)["listen"] = local
	config["apps"] = json.RawMessage(`{
		"pki": {"certificate_authorities": {"local": {"install_trust": false}}},
		"http": {"servers": {"s": {"listen": ["` + caddyrun.FreeAddress(t) + `"], "routes": [{"handle": [
			{"handler": "sliding_window", "zones": [{"name": "per_client", "limits": [{"max": 5, "window": "1m"}]}]}]}]}}}}`)
	written, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "caddy.json")
	if err := os.WriteFile(path, written, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(caddyrun.Binary(t), "run", "--config", path)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	base := "https://" + address
	caddyrun.Eventually(t, 30*time.Second, "the remote endpoint answers", func() bool {
		return writer.ask(t, http.MethodGet, base+"/sliding_window/status", "") == http.StatusOK
	})
	const key = `{"zone":"per_client","key":"192.0.2.1"}`
	for _, c := range []struct {
		method, path, body string
		reader, writer     int
	}{
		{http.MethodGet, "/sliding_window/zones", "", 200, 200},
		{http.MethodGet, "/sliding_window/status", "", 200, 200},
		{http.MethodPost, "/sliding_window/inspect", key, 200, 200},
		{http.MethodPost, "/sliding_window/overrides/list", "{}", 200, 200},
		{http.MethodPost, "/sliding_window/top", `{"zone":"per_client"}`, 409, 409}, // it keeps none
		{http.MethodPost, "/sliding_window/reset", key, 403, 200},
		{http.MethodPost, "/sliding_window/enforce", `{"zone":"per_client","mode":"shadow","ttl":"1m"}`, 403, 200},
		{http.MethodPost, "/sliding_window/overrides/set", `{"zone":"per_client","key":"192.0.2.1","deny":true,"ttl":"1m"}`, 403, 200},
		{http.MethodPost, "/sliding_window/overrides/replace", `{"records":[]}`, 403, 200},
		{http.MethodGet, "/config/", "", 403, 403},
		{http.MethodPost, "/load", "{}", 403, 403},
		{http.MethodPost, "/stop", "", 403, 403},
	} {
		if caddyrun.IsBefore(t, 2, 11, 0) { // they allow what all permissions of a person allow: nothing here
			c.reader = http.StatusForbidden
		}
		if got := reader.ask(t, c.method, base+c.path, c.body); got != c.reader {
			t.Errorf("reader: %s %s: %d, want %d", c.method, c.path, got, c.reader)
		}
		if got := writer.ask(t, c.method, base+c.path, c.body); got != c.writer {
			t.Errorf("writer: %s %s: %d, want %d", c.method, c.path, got, c.writer)
		}
		if got := stranger.ask(t, c.method, base+c.path, c.body); got != 0 {
			t.Errorf("a stranger: %s %s: %d, want no connection", c.method, c.path, got)
		}
	}
}
