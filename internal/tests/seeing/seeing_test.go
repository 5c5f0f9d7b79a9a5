//go:build prometheus

package seeing_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

func TestMain(m *testing.M) { os.Exit(caddyrun.Main(m, func() {})) }

const patience = 90 * time.Second

// seen is a Caddyfile in which each metric has a series.
const seen = `{
	admin {admin}
	persist_config off
	auto_https off
	sliding_window {
		store redis {
			address %s
			timeout 1s
		}
		on_error local {
			share
		}
	}
}
http://%s {
	handle /healthz {
		respond ok
	}
	sliding_window {
		zone per_client {
			match {
				header X-Key 0 # the others go on to pass
			}
			key {header.X-Key}
			limit 20 1h
			alert {
				denied 10%%
				over 10s
				min 10
			}
		}
		zone strict { # without an alert
			match {
				header X-Key 0
			}
			key {header.X-Key}
			limit 20 1h
		}
		zone tokens {
			key all
			limit 1000000 1h
			settle {
				usage openai
			}
		}
		zone loaded {
			key all
			limit 1000000 1s
			load cpu 70%% 95%%
		}
		zone chats {
			key {header.X-Key}
			concurrent 100
		}
		zone watched {
			top_talkers
			key {header.X-Key}
			limit 20 1h
			enforce shadow
		}
	}
	respond ok
}
`

// prometheus is a running one.
type prometheus struct {
	testing.TB
	client *http.Client
	url    string
}

// startPrometheus runs a Prometheus that scrapes an address and evaluates rules, until the end of the test.
func startPrometheus(t *testing.T, scraped, rules string) *prometheus {
	t.Helper()
	program := os.Getenv("PROMETHEUS")
	if program == "" {
		t.Fatal("the variable PROMETHEUS does not say where the program is; run make test-prometheus")
	}
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs: [{job_name: caddy, static_configs: [{targets: [%q]}]}]\n", rules, scraped)
	path := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	log, address := new(caddyrun.Log), caddyrun.FreeAddress(t)
	cmd := exec.Command(program, "--config.file", path, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", address, "--log.level", "warn") //nolint:gosec // of the one who runs the test
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // it says on stderr what is wrong
		if t.Failed() {
			t.Log(log)
		}
	})
	p := &prometheus{t, caddyrun.NewClient(t), "http://" + address}
	caddyrun.Eventually(t, patience, "Prometheus is ready", func() bool {
		resp, err := p.client.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p
}

// ask reads the data of an answer of the API.
func (p *prometheus) ask(path string, data any) error {
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal([]byte(caddyrun.Fetch(p, p.client, p.url+path)), &answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", answer.Status, answer.Error)
	}
	return json.Unmarshal(answer.Data, data)
}

// series returns how many series an expression has.
func (p *prometheus) series(expr string) (int, error) {
	var data struct{ Result []json.RawMessage }
	err := p.ask("/api/v1/query?query="+url.QueryEscape(expr), &data)
	return len(data.Result), err
}

type rule struct{ Name, Query, Health, State, LastError string }

func (p *prometheus) rules() (all []rule) {
	p.Helper()
	var data struct{ Groups []struct{ Rules []rule } }
	if err := p.ask("/api/v1/rules", &data); err != nil {
		p.Fatal(err)
	}
	for _, g := range data.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// load sends requests of a few clients until the end of the test.
func load(t *testing.T, address string) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	client := caddyrun.NewClient(t)
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := caddyrun.Get(client, address, strconv.Itoa(i%5)); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// expressions returns those of the dashboard, with its variables replaced.
func expressions(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Templating struct{ List []struct{ Definition string } }
		Panels     []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, v := range board.Templating.List {
		if m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Definition); m != nil {
			all = append(all, fmt.Sprintf(`count by (%s) (%s)`, m[2], m[1]))
		}
	}
	if len(all) == 0 {
		t.Error("the dashboard has no variable of a label")
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all = append(all, strings.NewReplacer("$__rate_interval", "15s", "$zone", ".*").Replace(target.Expr))
		}
	}
	return all
}

// TestDashboardAndRules makes a Prometheus see a Caddy that denies much.
func TestDashboardAndRules(t *testing.T) {
	redis, site := redistest.Start(t, "--maxmemory", "100mb"), caddyrun.FreeAddress(t)
	process := caddyrun.Start(t, fmt.Sprintf(seen, redis.Addr, site), site)
	load(t, site)
	rules, err := filepath.Abs("../../../docs/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	p := startPrometheus(t, process.Admin, rules)

	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	written := strings.Count(string(text), "\n      - alert: ")
	caddyrun.Eventually(t, patience, "all rules are evaluated", func() bool {
		evaluated := 0
		for _, r := range p.rules() {
			switch r.Health {
			case "ok":
				evaluated++
			case "err":
				t.Fatalf("rule %s: %s", r.Name, r.LastError)
			}
		}
		return written > 0 && evaluated == written
	})
	// What these rules look for is there, though not for long enough for some.
	for _, name := range []string{"RateLimitDeniesMuch", "RateLimitAlert", "RateLimitCostUnknown"} {
		caddyrun.Eventually(t, patience, name+" is pending or fires", func() bool {
			for _, r := range p.rules() {
				if r.Name == name {
					return r.State == "pending" || r.State == "firing"
				}
			}
			t.Fatalf("there is no rule %s", name)
			return false
		})
	}

	all := expressions(t)
	comparison := regexp.MustCompile(` (>=?|<=?|==|!=) -?[\d.e+-]+$`)
	for _, r := range p.rules() {
		bare := comparison.ReplaceAllString(r.Query, "")
		if bare == r.Query {
			t.Errorf("rule %s compares with nothing: %s", r.Name, r.Query)
		}
		all = append(all, bare)
	}
	if len(all) < 30 {
		t.Errorf("found only %d expressions", len(all))
	}
	for _, expr := range all {
		caddyrun.Eventually(t, patience, "there is a series of "+expr, func() bool {
			n, err := p.series(expr)
			if err != nil {
				t.Fatalf("%s: %v", expr, err)
			}
			return n > 0
		})
	}
	t.Logf("%d expressions have series", len(all))
}
