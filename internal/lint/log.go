package lint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/quantity"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/replay"
	"github.com/slidingwindow/caddy-sliding-window/internal/replay/accesslog"
)

// evidence is what an access log adds to a configuration.
type evidence struct {
	decided map[string]replay.Zone // by name
	// tenths has, for limits by zone and index, what a tenth of them would have decided.
	tenths map[limitOf]replay.Zone
	// address is the one that has sent more than half of the requests, with its share; empty if no address has.
	address string
	share   float64
	span    time.Duration
}

// limitOf is a limit of a zone.
type limitOf struct {
	zone  string
	index int
}

// memoryOfLogs is what keys of a replay take at most, in bytes.
const memoryOfLogs = 1 << 30

// ReadLogs replays access logs, for the rules that need them. config is that of Load, and file its name. Logs are read three
// times, so that none can be stdin.
func (c *Config) ReadLogs(file string, config []byte, logs []string) error {
	e := &evidence{decided: make(map[string]replay.Zone), tenths: make(map[limitOf]replay.Zone)}
	if slices.Contains(logs, "-") {
		return fmt.Errorf("--log -: a log is read several times; name a file")
	}
	if err := e.countAddresses(logs); err != nil {
		return err
	}
	run := func(config []byte) (*replay.Report, error) {
		return replay.Run(replay.Options{Logs: logs, Config: replay.Config{File: file, JSON: config}, Reorder: time.Minute, Memory: memoryOfLogs})
	}
	report, err := run(config)
	if err != nil {
		return err
	}
	for _, z := range report.Zones {
		e.decided[z.Zone] = z
	}
	from, _ := time.Parse(time.RFC3339, report.Log.From) // both are empty without a request
	to, _ := time.Parse(time.RFC3339, report.Log.To)
	e.span = to.Sub(from)
	tenths, names, err := tenthsOf(config)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		if report, err = run(tenths); err != nil {
			return err
		}
	}
	for name, limit := range names {
		if i := slices.IndexFunc(report.Zones, func(z replay.Zone) bool { return z.Zone == name }); i >= 0 {
			e.tenths[limit] = report.Zones[i]
		}
	}
	c.log = e
	return nil
}

// counted is how many addresses are counted at a time. One that has sent more than half of the requests is always among
// them, and its count is too low by 1/(counted+1) of the requests at most.
const counted = 256

// countAddresses finds the address that has sent more than half of the requests, by the summary of Misra and Gries.
func (e *evidence) countAddresses(logs []string) error {
	r, err := accesslog.Open(logs, accesslog.Options{})
	if err != nil {
		return err
	}
	counts, total := make(map[string]int64), int64(0)
	for line := range r.All() {
		address := cmp.Or(line.ClientIP, line.RemoteIP)
		total++
		if _, there := counts[address]; there || len(counts) < counted {
			counts[address]++
			continue
		}
		for other := range counts {
			if counts[other]--; counts[other] == 0 {
				delete(counts, other)
			}
		}
	}
	for address, n := range counts {
		if share := float64(n) / float64(total); share > 0.5 && total >= fewest {
			e.address, e.share = address, share
		}
	}
	return r.Err()
}

// tenthsOf returns the configuration with a zone of its own for each limit that has no placeholder, of which it is a
// tenth. All count in shadow, so that none keeps requests from the others. names has their limits.
func tenthsOf(config []byte) (text []byte, names map[string]limitOf, err error) {
	var root any
	if err := json.Unmarshal(config, &root); err != nil {
		return nil, nil, err
	}
	names = make(map[string]limitOf)
	eachHandler(root, func(h map[string]any) {
		var zones []any
		all, _ := h["zones"].([]any)
		for _, z := range all {
			if zone, ok := z.(map[string]any); ok {
				zones = append(zones, tenthsOfZone(zone, names)...)
			}
		}
		if h["zones"] = zones; zones == nil {
			clear(h)
			h["handler"] = "vars"
		}
	})
	text, err = json.Marshal(root)
	return text, names, err
}

// eachHandler calls f with the sliding_window handlers in a configuration.
func eachHandler(value any, f func(map[string]any)) {
	switch v := value.(type) {
	case []any:
		for _, e := range v {
			eachHandler(e, f)
		}
	case map[string]any:
		if v["handler"] == "sliding_window" {
			f(v)
			return
		}
		for _, e := range v {
			eachHandler(e, f)
		}
	}
}

// tenthsOfZone returns a zone for each limit of a zone of which a tenth makes sense.
func tenthsOfZone(zone map[string]any, names map[string]limitOf) (zones []any) {
	name, _ := zone["name"].(string)
	limits, _ := zone["limits"].([]any)
	if algorithm, ok := zone["algorithm"].(map[string]any); ok && algorithm["name"] == "gcra" || zone["count_if"] != nil || zone["settle"] != nil {
		return nil // gcra lets more pass than its limit, and the others cannot be in shadow
	}
	for i, l := range limits {
		limit, _ := l.(map[string]any)
		n, err := quantity.Int(fmt.Sprint(limit["max"]))
		if f, ok := limit["max"].(float64); ok {
			n, err = int64(f), nil
		}
		if err != nil || n < 10 {
			continue
		}
		key := limitOf{name, i}
		own := fmt.Sprintf("tenth_%d", len(names))
		for other, of := range names {
			if of == key { // the same zone in another handler
				own = other
			}
		}
		names[own] = key
		tenth := map[string]any{"name": own, "enforce": "shadow", "limits": []any{map[string]any{"max": n / 10, "window": limit["window"]}}}
		tier, isTiered := limit["tier"].(string)
		for _, option := range []string{"match", "key", "cost", "algorithm", "ipv4_prefix", "ipv6_prefix", "fold_case", "empty_key", "empty_key_status"} {
			if value, ok := zone[option]; ok {
				tenth[option] = value
			}
		}
		if networks, err := template.ParseTier(tier); isTiered && err == nil {
			tenth["ipv4_prefix"], tenth["ipv6_prefix"] = networks.V4, networks.V6
		}
		zones = append(zones, tenth)
	}
	return zones
}

// fewest requests tell something.
const fewest = 1000

func oneAddress(c *Config, z *zone) []problem {
	if c.log == nil || c.log.address == "" || !z.Key.IsAddress() || z.server != nil && z.server.TrustedProxies != nil {
		return nil
	}
	return []problem{{what: fmt.Sprintf("one address has sent %.0f %% of the requests in the log", 100*c.log.share), option: "key"}}
}

// muchDenied is the share of requests from which on a limit denies much.
const muchDenied = 0.01

func deniesMuch(c *Config, z *zone) (all []problem) {
	if c.log == nil {
		return nil
	}
	decided := c.log.decided[z.Name]
	nth := 0 // of the limits that have windows
	for i, l := range decided.Limits {
		p := problem{option: "limit", nth: nth}
		if z.Configured.Limits[i].Concurrent {
			p = problem{option: "concurrent"}
		} else {
			nth++
		}
		if share := float64(l.Denied) / float64(decided.Requests); decided.Requests >= fewest && share > muchDenied {
			p.what = fmt.Sprintf("limit %s would have denied %.1f %% of %d requests in the log", l.Limit, 100*share, decided.Requests)
			all = append(all, p)
		}
	}
	return all
}

// windowsSeen is how many windows of a limit a log has to cover to tell what keys use of it.
const windowsSeen = 10

func neverNear(c *Config, z *zone) (all []problem) {
	if c.log == nil {
		return nil
	}
	for i, l := range z.AllLimits() {
		tenth, known := c.log.tenths[limitOf{z.Name, i}]
		if known && tenth.Requests >= fewest && tenth.Denied == 0 && c.log.span >= windowsSeen*l.Known.Window {
			all = append(all, problem{what: fmt.Sprintf("no key has used more than a tenth of limit %s in the log", limitText(&l)), option: "limit", nth: i})
		}
	}
	return all
}
