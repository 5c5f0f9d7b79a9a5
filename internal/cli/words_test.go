package cli

import (
	"errors"
	"testing"
)

// Errors of the endpoint name flags and commands.
func TestInWordsOfFlags(t *testing.T) {
	for text, want := range map[string]string{
		`zone: no zone of this name runs; use one of "a"; GET /sliding_window/zones lists the zones`:                                                              `--zone: no zone of this name runs; use one of "a"; caddy sliding-window zones lists the zones`,
		"zone: required; GET /sliding_window/zones lists the zones; or send all":                                                                                  "--zone: required; caddy sliding-window zones lists the zones; or write --all",
		`store: has no zone of this name; use one of "memory"`:                                                                                                    `--store: has no zone of this name; use one of "memory"`,
		"there is no such override; POST /sliding_window/overrides/list lists them":                                                                               "there is no such override; caddy sliding-window override list shows them",
		"key: the zone's key has 2 placeholders; send values, in order":                                                                                           "--key: the zone's key has 2 placeholders; write --value for each, in order",
		"cidr: the zone's key is more than one placeholder; send values":                                                                                          "--cidr: the zone's key is more than one placeholder; write --value for each placeholder of the key",
		"cidr: is longer than /32, by which the zone groups addresses; send key, or a shorter network":                                                            "--cidr: is longer than /32, by which the zone groups addresses; write --key, or a shorter network",
		"values: the zone's key has one placeholder; send key":                                                                                                    "--value: the zone's key has one placeholder; write --key",
		"limits: window: must be a duration such as 90s, 5m, 1h, 1d or 1w":                                                                                        "--limit: window: must be a duration such as 90s, 5m, 1h, 1d or 1w",
		"request.remote: required; send the address that the connection comes from":                                                                               "--remote: required; write the address that the connection comes from",
		"redis 192.0.2.1:6379/0 sw: no answer; nothing was changed, and the overrides that hold stay in force; repeat it when GET /sliding_window/status says ok": "redis 192.0.2.1:6379/0 sw: no answer; nothing was changed, and the overrides that hold stay in force; repeat it when caddy sliding-window status says ok",
	} {
		if got := inWordsOfFlags(errors.New(text)).Error(); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestCounted(t *testing.T) {
	for n, want := range map[int]string{0: "0 overrides", 1: "1 override", 2: "2 overrides"} {
		if got := counted(n, "override"); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
