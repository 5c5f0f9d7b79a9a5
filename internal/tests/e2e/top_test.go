package e2e_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// top asks for the top talkers of a zone.
func (c *controlled) top(zone, by string) (answer control.Top) {
	c.Helper()
	c.post("top", map[string]any{"zone": zone, "by": by}, http.StatusOK, &answer)
	since, err := time.Parse(time.RFC3339, answer.Since)
	if answer.Zone != zone || answer.By != by || err != nil || time.Since(since) < -2*time.Second || time.Since(since) > 3*time.Minute {
		c.Errorf("%s by %s: got %+v", zone, by, answer)
	}
	return answer
}

// wantTop wants keys with their counts, without any error, before others.
func (c *controlled) wantTop(zone, by string, total int64, want ...control.TopKey) {
	c.Helper()
	answer := c.top(zone, by)
	if answer.Total != total || len(answer.Keys) < len(want) {
		c.Errorf("%s by %s: got %+v, want %d of %+v", zone, by, answer, total, want)
		return
	}
	for i, key := range want {
		if answer.Keys[i] != key {
			c.Errorf("%s by %s: got %+v, want %+v", zone, by, answer.Keys, want)
		}
	}
}

const topZones = `handle /plain {
	sliding_window {
		zone plain {
			key {header.X-Key}
			limit 7 1h
			cost 2
			top_talkers
		}
	}
	respond ok
}
handle /counted {
	sliding_window {
		zone counted {
			key {header.X-Key}
			limit 9 1h
			count_if status 401
			top_talkers
		}
	}
	respond /counted 401
}
handle /shadow {
	sliding_window {
		zone shadow {
			key {header.X-Key}
			limit 2 1h
			enforce shadow
			empty_key deny
			top_talkers
		}
	}
	respond ok
}
handle /keyless {
	sliding_window {
		zone keyless {
			key {header.X-Key}
			limit 2 1h
			empty_key deny
			top_talkers
		}
	}
	respond ok
}
handle /without {
	sliding_window without {header.X-Key} 3 1h
	respond ok
}
`

// Denied requests and charged units are counted by key, in zones with top_talkers only.
func TestTopTalkers(t *testing.T) {
	c := newControlled(t, "", topZones)
	long := strings.Repeat("long-", 20)
	for range 5 { // 3 of 5 pass
		c.request("plain", "anna")
		c.request("plain", long)
		c.request("counted", "anna")
		c.request("shadow", "anna")
		c.request("keyless", "")
		c.request("without", "anna")
	}
	c.request("shadow", "")
	c.request("plain", "")
	c.wantTop("plain", "denied", 4, control.TopKey{Key: "anna", Count: 2}, control.TopKey{Key: long[:64], Count: 2, Cut: true})
	c.wantTop("plain", "charged", 14, control.TopKey{Key: "anna", Count: 6}, control.TopKey{Key: long[:64], Count: 6, Cut: true}, control.TopKey{Key: "", Count: 2})
	c.wantTop("counted", "charged", 5, control.TopKey{Key: "anna", Count: 5})
	c.wantTop("keyless", "denied", 5, control.TopKey{Key: "", Count: 5})
	c.wantTop("keyless", "charged", 0)
	caddyrun.Eventually(t, 20*time.Second, "the shadow zone has counted", func() bool { return c.top("shadow", "denied").Total == 4 })
	c.wantTop("shadow", "denied", 4, control.TopKey{Key: "anna", Count: 3}, control.TopKey{Key: "", Count: 1})
	c.wantTop("shadow", "charged", 2, control.TopKey{Key: "anna", Count: 2})

	if err := c.load("", topZones+"header X-Reloaded yes"); err != nil {
		t.Fatal(err)
	}
	c.request("plain", "anna")
	c.wantTop("plain", "denied", 5, control.TopKey{Key: "anna", Count: 3})

	for body, want := range map[string]string{
		`{"zone":"without"}`:                `409 {"error":"zone: keeps no top talkers; write top_talkers in it"}`,
		`{"zone":"carmen"}`:                 `404 {"error":"zone: no zone of this name runs; use one of \"counted\", \"keyless\", \"plain\", \"shadow\", \"without\"; GET /sliding_window/zones lists the zones"}`,
		`{"zone":"plain","store":"carmen"}`: `404 {"error":"store: has no zone of this name; use one of \"memory\""}`,
		`{"zone":"plain","by":"carmen"}`:    `400 {"error":"by: must be denied or charged"}`,
	} {
		status, text := c.ask(http.MethodPost, "/sliding_window/top", "application/json", body)
		if got := strconv.Itoa(status) + " " + strings.TrimSpace(text); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
	var one control.Top
	c.post("top", map[string]any{"zone": "plain", "by": "charged", "count": 1}, http.StatusOK, &one)
	if len(one.Keys) != 1 || one.Total != 14 {
		t.Errorf("count 1: got %+v", one)
	}
	_, metrics := c.ask(http.MethodGet, "/metrics", "", "")
	for _, line := range []string{
		`caddy_sliding_window_top_ten_ratio{by="denied",zone="plain"} 1`, `caddy_sliding_window_top_ten_ratio{by="charged",zone="keyless"} 0`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("/metrics has no %s:\n%s", line, regexp.MustCompile(`(?m)^.*top_ten.*$`).FindAllString(metrics, -1))
		}
	}
	if strings.Contains(metrics, "anna") || strings.Contains(metrics, `zone="without"} `) && strings.Contains(metrics, `top_ten_ratio{by="denied",zone="without"`) {
		t.Error("/metrics has a key, or a ratio of a zone without top_talkers")
	}

	// One request tells the status and the zones.
	_, text := c.ask(http.MethodGet, "/sliding_window/status?zones", "", "")
	if !strings.Contains(text, `"stores":[{"name":"memory"`) || !strings.Contains(text, `"name":"plain"`) || strings.Count(text, `"top_talkers":true`) != 4 {
		t.Errorf("status with zones: %s", text)
	}
	if _, text := c.ask(http.MethodGet, "/sliding_window/status", "", ""); strings.Contains(text, "zones") {
		t.Errorf("status: %s", text)
	}
}

// With hash_keys only hashes are kept and shown, also of a zone that had none before a reload. They are
// those of the names in Redis.
func TestTopTalkersHashed(t *testing.T) {
	server := redistest.Start(t)
	const secret = "a secret of 16 bytes or more"
	zone := func(options string) string {
		return "sliding_window {\nzone hashed {\nkey {header.X-Key}\nlimit 2 1h\ntop_talkers\n}\nstore redis {\naddress " + server.Addr + "\ntimeout 10s\n" + options + "}\n}\nrespond ok"
	}
	c := newControlled(t, "", zone(""))
	for range 3 {
		c.request("", "anna carmen")
	}
	c.wantTop("hashed", "denied", 1, control.TopKey{Key: "anna carmen", Count: 1})
	if err := c.load("", zone("hash_keys \""+secret+"\"\n")); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		c.request("", "anna carmen")
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("anna carmen"))
	hash := base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	c.wantTop("hashed", "denied", 2, control.TopKey{Key: hash, Count: 2})
	c.wantTop("hashed", "charged", 2, control.TopKey{Key: hash, Count: 2})
	if _, text := c.ask(http.MethodPost, "/sliding_window/top", "application/json", `{"zone":"hashed"}`); strings.Contains(text, "carmen") || !strings.Contains(text, `"hashed":true`) {
		t.Errorf("the answer is %s", text)
	}
	if name := c.inspect("hashed", "anna carmen").RedisKey; !strings.HasSuffix(name, ":"+hash) {
		t.Errorf("the name in Redis is %s, the hash %s", name, hash)
	}
}
