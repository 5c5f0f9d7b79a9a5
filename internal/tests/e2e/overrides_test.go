package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// postOverrides posts JSON to the API, and returns the status and the body of the answer.
func postOverrides(t *testing.T, client *http.Client, admin, path, body, ifMatch string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+admin+"/sliding_window/overrides/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if ifMatch != "" {
		req.Header.Set("If-Match", ifMatch)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// changed wants a change to succeed, and returns the answer.
func changed(t *testing.T, client *http.Client, admin, path, body string) (c control.OverrideChange) {
	t.Helper()
	status, text := postOverrides(t, client, admin, path, body, "")
	if status != http.StatusOK || json.Unmarshal([]byte(text), &c) != nil {
		t.Fatalf("%s %s: got %d %s", path, body, status, text)
	}
	return c
}

// overridden has two zones with overrides.
const overridden = `handle /api {
	sliding_window {
		zone api {
			key {header.X-Key}
			limit 2 1h
		}
		headers legacy
	}
	respond ok
}
handle /two {
	sliding_window {
		zone two {
			key {header.X-Tenant}/{header.X-User}
			limit 2 1h
		}
	}
	respond ok
}`

// overrideState returns what the status says of the overrides of the only store.
func (c *controlled) overrideState() control.OverrideState {
	c.Helper()
	var s control.Status
	if _, text := c.ask(http.MethodGet, "/sliding_window/status", "", ""); json.Unmarshal([]byte(text), &s) != nil || len(s.Stores) != 1 {
		c.Fatalf("status: got %s", text)
	}
	return s.Stores[0].Overrides
}

// The API sets, lists, deletes and replaces overrides, inspect shows them, and what is wrong is refused with the
// field and the cure.
func TestOverridesAPI(t *testing.T) {
	c := newControlled(t, "", overridden)
	t.Cleanup(func() { postOverrides(t, c.client, c.admin, "replace", `{"records":[]}`, "") })
	change := func(path, body string) control.OverrideChange {
		t.Helper()
		return changed(t, c.client, c.admin, path, body)
	}
	refused := func(path, body, ifMatch string, status int, want string) {
		t.Helper()
		got, text := postOverrides(t, c.client, c.admin, path, body, ifMatch)
		if got != status || !strings.Contains(text, want) {
			t.Errorf("%s %s: got %d %s, want %d %s", path, body, got, text, status, want)
		}
	}
	first := change("set", `{"zone":"api","key":"anna","limits":[{"max":50,"window":"60m"}],"ttl":"1h","reason":"TICKET-7","by":"otto"}`)
	if _, remaining, _ := c.request("api", "anna"); remaining != 49 {
		t.Errorf("anna: %d remaining, want 49", remaining)
	}
	if i := c.inspect("api", "anna"); i.Override == nil || i.Override.Reason != "TICKET-7" || i.Limits[0].Source != "override" || i.Limits[0].Max != 50 {
		t.Errorf("inspect says %+v", i)
	}
	second := change("set", `[{"zone":"api","key":"anna","factor":2},{"zone":"api","pattern":"b*","deny":true},{"zone":"two","values":["acme","anna"],"exempt":true}]`)
	if i := c.inspect("api", "bert"); i.Passes() || i.DecidedBy != "override" {
		t.Errorf("inspect says %+v", i)
	}
	var list control.OverrideList
	_, text := postOverrides(t, c.client, c.admin, "list", `{}`, "")
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Stores) != 1 || len(list.Stores[0].Records) != 3 || list.Stores[0].Version != second.Version {
		t.Errorf("list: got %s", text)
	}
	if status, _, _ := c.request("api", "bert"); status != http.StatusTooManyRequests {
		t.Errorf("bert: got %d", status)
	}
	if got := c.overrideState(); got.Version != second.Version || got.Count != 3 || got.Misfits != 0 || got.Age != nil || got.Lost {
		t.Errorf("status: got %+v", got)
	}
	misfit := change("set", `{"zone":"api","key":"huge","factor":1000}`)
	if err := c.load("", strings.ReplaceAll(overridden, "limit 2 1h", "limit 1000000000 1h")); err != nil {
		t.Fatal(err)
	}
	c.client.CloseIdleConnections()
	if got := c.overrideState(); got.Version != misfit.Version || got.Count != 4 || got.Misfits != 1 {
		t.Errorf("status with a factor that is too large: got %+v", got)
	}
	if err := c.load("", overridden); err != nil {
		t.Fatal(err)
	}
	c.client.CloseIdleConnections()
	second = change("delete", `{"zone":"api","key":"huge"}`)
	refused("set", `{"zone":"api","key":"carl","deny":true}`, first.Version, http.StatusPreconditionFailed, second.Version)
	refused("set", `{"zone":"none","key":"carl","deny":true}`, "", http.StatusNotFound, "zone: no zone of this name runs")
	refused("set", `{"zone":"api","key":"carl"}`, "", http.StatusBadRequest, "limits: 0 of limits or concurrent, factor, deny and exempt")
	refused("set", `{"zone":"two","key":"carl","deny":true}`, "", http.StatusBadRequest, "send values")
	refused("set", `{"zone":"two","cidr":"192.0.2.0/24","deny":true}`, "", http.StatusBadRequest, "cidr: the zone's key is more than one placeholder")
	refused("set", `{"zone":"api","key":"carl","factor":1000000,"limits":[]}`, "", http.StatusBadRequest, "send exactly one")
	refused("set", `[]`, "", http.StatusBadRequest, "an empty list")
	refused("set", `[{"zone":"api","key":"carl","deny":true},{"zone":"api","key":"carl","exempt":true}]`, "", http.StatusBadRequest, "key: another override of the list has the same selector")
	refused("delete", `{"id":"0123"}`, "", http.StatusNotFound, "there is no such override")
	refused("delete", `{"zone":"api","key":"carl"}`, "", http.StatusNotFound, "there is no such override")
	refused("delete", `{}`, "", http.StatusBadRequest, "id: required")
	refused("list", `{"zone":"none"}`, "", http.StatusNotFound, "zone: no zone of this name runs")
	refused("replace", `{"records":[{"zone":"api","all":true}]}`, "", http.StatusBadRequest, "records: number 1: limits: 0 of")
	refused("replace", `{"records":[{"zone":"api","key":"a","deny":true},{"zone":"api","key":"a","exempt":true}]}`, "", http.StatusBadRequest, "number 2: key: another override has the same selector")
	refused("replace", `{}`, "", http.StatusBadRequest, "records: required")
	if status, text := c.ask(http.MethodGet, "/sliding_window/overrides/list", "", ""); status != http.StatusMethodNotAllowed {
		t.Errorf("GET: got %d %s", status, text)
	}
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, `{"zone":"api","key":"key-%d","deny":true},`, i)
	}
	change("replace", `{"records":[`+strings.TrimSuffix(many.String(), ",")+`]}`)
	refused("set", `{"zone":"api","key":"one too many","deny":true}`, "", http.StatusConflict, "more than 1000 overrides")
	if gone := change("delete", `{"zone":"api","key":"key-7"}`); len(gone.Records) != 1 || *gone.Records[0].Key != "key-7" {
		t.Errorf("delete: got %+v", gone)
	}
	if status, _, _ := c.request("api", "key-8"); status != http.StatusTooManyRequests {
		t.Errorf("key-8: got %d", status)
	}
	if got := change("replace", `{"records":[]}`); len(got.Records) != 0 {
		t.Errorf("replace: got %+v", got)
	}
	if status, _, _ := c.request("api", "key-8"); status != http.StatusOK {
		t.Errorf("key-8: got %d", status)
	}
}

// fleet is three Caddys with one Redis and one storage.
type fleet struct {
	*testing.T
	config    string // as caddyrun.Sharing
	server    *redistest.Server
	client    *http.Client
	storage   string
	addresses [3]string
	caddys    [3]*caddyrun.Process
}

func startFleet(t *testing.T) *fleet {
	t.Helper()
	return startFleetOf(t, caddyrun.Sharing)
}

func startFleetOf(t *testing.T, config string) *fleet {
	t.Helper()
	f := &fleet{T: t, config: config, server: redistest.Start(t), client: caddyrun.NewClient(t), storage: t.TempDir()}
	for i := range f.addresses {
		f.addresses[i] = caddyrun.FreeAddress(t)
		f.start(i)
	}
	return f
}

func (f *fleet) start(i int) {
	f.Helper()
	f.caddys[i] = caddyrun.Start(f, fmt.Sprintf(f.config, f.storage, "address "+f.server.Addr, f.addresses[i]), f.addresses[i])
}

func (f *fleet) holds(i int, key string, status int) bool {
	f.Helper()
	return caddyrun.MustGet(f, f.client, f.addresses[i], key).Status == status
}

// everywhere waits until requests with each of the keys have a status at each Caddy.
func (f *fleet) everywhere(what string, status int, keys ...string) {
	f.Helper()
	begin := time.Now()
	for i := range f.caddys {
		for _, key := range keys {
			caddyrun.Eventually(f, 20*time.Second, fmt.Sprint(what, " at Caddy ", i, " for ", key), func() bool { return f.holds(i, key, status) })
		}
	}
	f.Logf("%s after %s", what, time.Since(begin))
}

// What is set at one of three Caddys with one Redis holds on all within 3 s. It survives a restart of a
// Caddy while Redis is away, and a Redis that has lost it.
func TestOverridesInAFleet(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	f := startFleet(t)
	server, client, caddys := f.server, f.client, &f.caddys
	everywhere := func(what, key string, status int) {
		t.Helper()
		f.everywhere(what, status, key)
	}
	changed(t, client, caddys[0].Admin, "set", `{"zone":"api","key":"banned","deny":true}`)
	everywhere("deny holds", "banned", http.StatusTooManyRequests)
	changed(t, client, caddys[1].Admin, "set", `{"zone":"api","key":"banned","exempt":true}`)
	everywhere("exempt holds", "banned", http.StatusOK)
	changed(t, client, caddys[2].Admin, "set", `{"zone":"api","key":"banned","deny":true}`)
	everywhere("deny holds again", "banned", http.StatusTooManyRequests)

	admin := server.Client(t)
	if err := admin.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	caddyrun.Eventually(t, 20*time.Second, "the override is written again", func() bool {
		return len(admin.Keys(t.Context(), "*{overrides}").Val()) == 1
	})
	var status control.Status
	_, text := caddys[0].Tell(t, http.MethodGet, "/sliding_window/status", "", "")
	if err := json.Unmarshal([]byte(text), &status); err != nil || len(status.Stores) != 1 || status.Stores[0].Overrides.Count != 1 || status.Stores[0].Overrides.Age == nil || status.Stores[0].Overrides.Lost {
		t.Errorf("status after the loss: %s", text)
	}
	everywhere("deny outlives FLUSHALL", "banned", http.StatusTooManyRequests)
	changed(t, client, caddys[1].Admin, "set", `{"zone":"api","key":"other","deny":true}`)
	everywhere("the other record holds", "other", http.StatusTooManyRequests)
	everywhere("the first record still holds", "banned", http.StatusTooManyRequests)

	server.Kill()
	caddys[0].End(t)
	f.start(0)
	if !f.holds(0, "banned", http.StatusTooManyRequests) || !f.holds(0, "free", http.StatusOK) {
		t.Error("a start without Redis lacks the overrides")
	}
	if status, text := postOverrides(t, client, caddys[0].Admin, "set", `{"zone":"api","key":"x","deny":true}`, ""); status != http.StatusServiceUnavailable || !strings.Contains(text, "; nothing was changed, and the overrides that hold stay in force; repeat it when GET /sliding_window/status says ok") {
		t.Errorf("set while Redis is away: got %d %s", status, text)
	}
}

// To inspect a request shows the overrides of its keys. One that denies ends the way of the request, unless the zone
// is in shadow.
func TestOverridesInspectRequest(t *testing.T) {
	c := newControlled(t, "", `sliding_window {
	zone watched {
		key {header.X-Key}
		limit 5 1h
		enforce shadow
	}
	zone inspected {
		key {header.X-Key}
		limit 2 1h
	}
	zone last {
		key all
		limit 1000 1h
	}
}
respond ok`)
	t.Cleanup(func() { postOverrides(t, c.client, c.admin, "replace", `{"records":[]}`, "") })
	changed(t, c.client, c.admin, "set", `[{"zone":"watched","key":"seen","deny":true},{"zone":"inspected","key":"seen","limits":[{"max":7,"window":"1h"}]},
		{"zone":"inspected","key":"banned","deny":true},{"zone":"inspected","key":"free","exempt":true}]`)
	for key, want := range map[string]string{
		"none":   "watched config 5, inspected config 2, last config 1000",
		"seen":   "watched override denies shadow, inspected override 7, last config 1000",
		"banned": "inspected override denies on",
		"free":   "watched config 5, inspected override passes on, last config 1000",
	} {
		var got []string
		for _, z := range c.inspectRequest("/", map[string]string{"X-Key": key}).Zones {
			switch {
			case z.DecidedBy == "override" && z.Passes():
				got = append(got, z.Zone+" override passes "+z.Enforce)
			case z.DecidedBy == "override":
				got = append(got, z.Zone+" override denies "+z.Enforce)
			default:
				got = append(got, fmt.Sprint(z.Zone, " ", z.Limits[0].Source, " ", z.Limits[0].Max))
			}
		}
		slices.Sort(got)
		wanted := strings.Split(want, ", ")
		slices.Sort(wanted)
		if !slices.Equal(got, wanted) {
			t.Errorf("%s: got %v, want %v", key, got, wanted)
		}
	}
}
