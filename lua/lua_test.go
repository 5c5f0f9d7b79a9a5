package lua

import (
	"encoding/json"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
)

func TestEveryFileIsUsed(t *testing.T) {
	names, err := fs.Glob(files, "*.lua")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"driver.lua", "horizon.lua", "instances.lua", "overrides.lua", "record.lua"}
	for _, name := range Algorithms {
		want = append(want, name+".lua")
	}
	passing, err := fs.Glob(files, "pass/*.lua")
	if err != nil {
		t.Fatal(err)
	}
	names = append(names, passing...)
	for _, name := range Passing {
		want = append(want, "pass/"+name+".lua")
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("files %v, want those of Algorithms and Passing, the record, the driver, the instances and the overrides: %v", names, want)
	}
}

func TestHeaders(t *testing.T) {
	for name, parts := range map[string][]string{"driver": {"KEYS", "ARGV", "Reply"}} {
		header(t, name, "The driver", parts...)
	}
	header(t, "record", "record:", "Key ")
	header(t, "horizon", "horizon:", "after(")
	header(t, "instances", "instances:", "KEYS", "ARGV", "Reply")
	header(t, "overrides", "overrides:", "KEYS", "ARGV", "Reply")
	for _, name := range Algorithms {
		header(t, name, name+":", "Key ", "Options")
		for _, function := range []string{"look", "spend", "explain", "settle"} {
			if !strings.Contains(read(name), "function "+name+"."+function+"(c, now") {
				t.Errorf("%s.lua has no %s", name, function)
			}
		}
	}
	for _, name := range Passing {
		header(t, "pass/"+name, "pass/"+name+": "+name+".lua for ")
	}
}

// header holds that the comment at the head of a file says what it has to.
func header(t *testing.T, name, begin string, parts ...string) {
	t.Helper()
	text := read(name)
	if !strings.HasPrefix(text, "-- "+begin) || !strings.HasSuffix(text, "\n") {
		t.Errorf("%s.lua does not begin with %q, or has no end of line", name, begin)
	}
	comment, _, _ := strings.Cut(text, "\nlocal ")
	for _, part := range parts {
		if !strings.Contains(comment, "\n-- "+part) {
			t.Errorf("the header of %s.lua does not name %s", name, part)
		}
	}
}

// TestPortable looks for what some server does not have or allow.
func TestPortable(t *testing.T) {
	for what, pattern := range map[string]string{
		"what only Lua 5.1 has":     `table\.maxn|table\.getn|setfenv|getfenv|loadstring|math\.pow|math\.mod\b|string\.gfind`,
		"what Lua 5.1 has not":      `//|goto |<const>|utf8\.|table\.move|math\.type|\\z`,
		"another name of the API":   `server\.|redis\.pcall`,
		"a global function":         `(?m)^function [a-z_]+\(`,
		"a global variable":         `(?m)^[a-z_]+ *=|_G\b|rawset`,
		"a shebang":                 `^#!`,
		"trailing space or a tab":   `(?m)[ \t]+$|\t`,
		"randomness, or the server": `math\.random|redis\.(setresp|replicate|set_repl|log)`,
	} {
		if found := regexp.MustCompile(pattern).FindString(Script + Instances + Overrides); found != "" {
			t.Errorf("the script has %s: %q", what, found)
		}
	}
	for _, name := range modules() {
		if found := regexp.MustCompile(`KEYS|ARGV|'TIME'`).FindString(read(name)); found != "" {
			t.Errorf("%s.lua uses %s, which is the driver's", name, found)
		}
	}
}

func TestLoads(t *testing.T) {
	c := redistest.Start(t).Client(t)
	sha, err := c.ScriptLoad(t.Context(), Script).Result()
	if err != nil {
		t.Fatal(err)
	}
	options := map[string][]int{"slices": {0, 0, 60, 0, 0}, "layers": {10_000, 1_000}}
	for _, name := range Algorithms {
		if options[name] == nil {
			options[name] = []int{0}
		}
		plan := []any{1, 6 + len(options[name]), name, 0, 60_000, 1, 10, 60_000}
		for _, o := range options[name] {
			plan = append(plan, o)
		}
		if name == "stream" {
			plan = append(plan, -1, 1, 1, 2, "user", "anna")
		} else {
			plan = append(plan, 1, 1)
		}
		want := []int64{1_800_000_000_000, -5, 1, 9, 0, 60_000, 60_000}
		switch name {
		case "zset", "log", "slices":
			want = []int64{1_800_000_000_000, 9}
		case "gcra": // a tenth was spent
			want = []int64{1_800_000_000_000, -4, 9, 6_000, 6_000}
		}
		got, err := c.EvalSha(t.Context(), sha, []string{"key:" + name}, "1800000000000", "take", "id", pack(t, c, plan)).Int64Slice()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}
}

// pack has the server write a list in MessagePack.
func pack(t *testing.T, c *redis.Client, list []any) string {
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := c.Eval(t.Context(), "return cmsgpack.pack(cjson.decode(ARGV[1]))", nil, text).Text()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}
