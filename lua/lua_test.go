package lua

import (
	"encoding/json"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

func TestEveryFileIsUsed(t *testing.T) {
	names, err := fs.Glob(files, "*.lua")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"bans.lua", "constants.lua", "driver.lua", "enforce.lua", "instances.lua", "overrides.lua"}
	for _, name := range slices.Concat(parts, Algorithms) {
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
		t.Errorf("files %v, want those of Algorithms, Passing and parts, the constants, the driver, the instances, the overrides, the orders and the bans: %v", names, want)
	}
}

func TestHeaders(t *testing.T) {
	for name, parts := range map[string][]string{"driver": {"KEYS", "ARGV", "Reply"}} {
		header(t, name, "The driver", parts...)
	}
	header(t, "constants", "constants:")
	header(t, "record", "record:", "Key ", "values(", "get(", "set(", "drop(")
	header(t, "horizon", "horizon:", "after(", "renewed(")
	header(t, "verdict", "verdict:", "verdict(")
	header(t, "logchunk", "logchunk:", "Chunk ", "read(", "write(")
	header(t, "logring", "logring:", "Ring ", "load(", "locate(")
	header(t, "logpages", "logpages:", "push(", "forget(")
	header(t, "logchange", "logchange:", "pull_back(", "give_back(")
	header(t, "slicespack", "slicespack:", "Key ", "read(", "write(")
	header(t, "layershistory", "layershistory:", "Key ", "open(", "save(")
	header(t, "layersback", "layersback:", "take_back(")
	header(t, "streamentries", "streamentries:", "Entry ", "read(", "write(")
	header(t, "streamback", "streamback:", "Root ", "Leaf ", "left(", "number(")
	header(t, "instances", "instances:", "KEYS", "ARGV", "Reply")
	header(t, "overrides", "overrides:", "KEYS", "ARGV", "Reply")
	header(t, "enforce", "enforce:", "KEYS", "ARGV", "Reply")
	header(t, "bans", "bans:", "KEYS", "ARGV", "Reply")
	for _, name := range Algorithms {
		header(t, name, name+":", "Key ", "Options")
		for _, function := range []string{"look", "spend", "explain", "settle"} {
			if !strings.Contains(read(name), " = "+function) || !regexp.MustCompile(`local (function )?([a-z]+, )*`+function+`(\(c, _?now|, | = verdict\()`).MatchString(read(name)) {
				t.Errorf("%s.lua has no %s", name, function)
			}
		}
	}
	for _, name := range Passing {
		header(t, "pass/"+name, "pass/"+name+": "+name+".lua for ", "make(")
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

// TestOneVerdict holds that look, spend and explain are written once for what counts the units of
// a window.
func TestOneVerdict(t *testing.T) {
	for _, function := range []string{"look", "spend", "explain"} {
		definition := regexp.MustCompile(`function ([a-z]+\.)?` + function + `\(c, _?now`)
		var in []string
		for _, name := range modules() {
			if definition.MatchString(read(name)) {
				in = append(in, name)
			}
		}
		if want := []string{"gcra", "concurrent", "verdict"}; !slices.Equal(in, want) { // in gcra and concurrent no unit leaves a window
			t.Errorf("%s is in %v, want it in %v", function, in, want)
		}
	}
}

var (
	functions    = regexp.MustCompile(`\bfunction +([a-z_]+) *\(`)
	atTop        = regexp.MustCompile(`^local ([a-z_, ]+) = (.*)$`)
	member       = regexp.MustCompile(`^[a-z]+\.[a-z_]+$`)
	declarations = []*regexp.Regexp{
		regexp.MustCompile(`\blocal ([a-z_][\w, ]*)`),
		regexp.MustCompile(`\bfunction *[\w.]*\(([\w, .]*)\)`),
		regexp.MustCompile(`\bfor ([\w, ]+?) *(?:=|in\b)`),
	}
	word    = regexp.MustCompile(`\w+`)
	comment = regexp.MustCompile(`--.*`)
)

// shadows returns the names of a file that stand for a function and for something else, too: a
// local, a parameter or the variable of a loop takes the name of a function of the file, of
// one in a local at its top, or of Lua's own.
func shadows(text string) (names []string) {
	text = comment.ReplaceAllString(text, "")
	uses := make(map[string]int) // as a function
	for _, name := range strings.Fields("assert error ipairs next pairs pcall rawget select tonumber tostring type") {
		uses[name]++
	}
	for _, f := range functions.FindAllStringSubmatch(text, -1) {
		uses[f[1]]++
	}
	declared := make(map[string]int) // as a function, too
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if top := atTop.FindStringSubmatch(line); top != nil {
			left, right := strings.Split(top[1], ", "), strings.Split(top[2], ", ")
			for i := range min(len(left), len(right)) {
				if member.MatchString(right[i]) {
					uses[left[i]]++
					declared[left[i]]--
				}
			}
		}
		for i, d := range declarations {
			for _, found := range d.FindAllStringSubmatch(line, -1) {
				if i == 0 && strings.HasPrefix(found[1], "function") {
					continue
				}
				for _, name := range word.FindAllString(found[1], -1) {
					declared[name]++
				}
			}
		}
	}
	for name, n := range uses {
		if n > 1 || declared[name] > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// TestShadows holds that no name means a function here and a number there.
func TestShadows(t *testing.T) {
	for _, name := range append(modules(), "constants", "driver", "instances", "overrides", "enforce", "bans") {
		if found := shadows(read(name)); found != nil {
			t.Errorf("%s.lua: %v: also the names of functions", name, found)
		}
	}
	// What the test has to find.
	for text, want := range map[string][]string{
		"local function level(c)\n  local level = level(c)\nend\n":                            {"level"},
		"local function level(c)\nend\nlocal function times(c, level)\nend\n":                 {"level"},
		"local function each(c)\n  for a, each in pairs(c) do\n  end\nend\n":                  {"each"},
		"local function any()\n  local function at()\n  end\nend\nlocal function at()\nend":   {"at"},
		"local call, byte = redis.call, string.byte\nlocal function f()\n  local byte\nend\n": {"byte"},
		"local function f(a)\n  local x, next = 1, a -- local f\nend\n":                       {"next"},
		"local call, one = redis.call, 1\nlocal function f(a)\n  local one = call(a)\nend\n":  nil,
	} {
		if found := shadows(text); !slices.Equal(found, want) {
			t.Errorf("%q shadows %v, want %v", text, found, want)
		}
	}
}

// TestFields holds that headers list what a charge holds: the driver's fields, those of record
// and horizon, and those of an algorithm.
func TestFields(t *testing.T) {
	listed := func(name string) map[string]bool {
		text, _, _ := strings.Cut(read(name), "\nlocal ")
		if name == "driver" {
			_, text, _ = strings.Cut(text, "A charge c is a table")
		}
		words := make(map[string]bool)
		for _, w := range word.FindAllString(text, -1) {
			words[w] = true
		}
		return words
	}
	of := make(map[string]map[string]bool) // what the headers of an algorithm's files list
	for _, algorithm := range Algorithms {
		of[algorithm] = make(map[string]bool)
		for _, name := range modules() {
			if strings.HasPrefix(name, algorithm) {
				maps.Copy(of[algorithm], listed(name))
			}
		}
	}
	shared := listed("driver")
	maps.Copy(shared, listed("record"))
	maps.Copy(shared, listed("horizon"))
	field, own := regexp.MustCompile(`\bc\.([a-z_]+)`), regexp.MustCompile(`\bown\.([a-z_]+)`)
	fields, owns := 0, 0
	for _, name := range append(modules(), "driver") {
		text := comment.ReplaceAllString(read(name), "")
		for _, found := range field.FindAllStringSubmatch(text, -1) {
			if fields++; !shared[found[1]] {
				t.Errorf("%s.lua: no header lists c.%s", name, found[1])
			}
		}
		for algorithm, all := range of {
			if !strings.HasPrefix(name, algorithm) {
				continue
			}
			for _, found := range own.FindAllStringSubmatch(text, -1) {
				if owns++; !all[found[1]] {
					t.Errorf("%s.lua: no header of %s lists c.own.%s", name, algorithm, found[1])
				}
			}
		}
	}
	if fields < 100 || owns < 100 {
		t.Errorf("%d uses of fields, and %d of an algorithm's own; are there no more?", fields, owns)
	}
}

// TestConstants holds that what a module and a quick path share is written once.
func TestConstants(t *testing.T) {
	var names [][]string
	for line := range strings.Lines(read("constants")) {
		names = append(names, atTop.FindAllStringSubmatch(strings.TrimSuffix(line, "\n"), -1)...)
	}
	if len(names) < 5 {
		t.Fatalf("constants %q", names)
	}
	for _, found := range names {
		for _, name := range strings.Split(found[1], ", ") {
			var in []string
			for _, file := range modules() {
				text := comment.ReplaceAllString(read(file), "")
				if regexp.MustCompile(`\b` + name + `\b`).MatchString(text) {
					in = append(in, file)
				}
				if regexp.MustCompile(`\blocal [\w, ]*\b` + name + `\b`).MatchString(text) {
					t.Errorf("%s.lua has a local %s, which is a constant", file, name)
				}
			}
			if len(in) < 2 {
				t.Errorf("constant %s is used in %v; one module alone needs a local", name, in)
			}
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
		if found := regexp.MustCompile(pattern).FindString(Script + Instances + Overrides + Enforce + Bans); found != "" {
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
		} else if name == "concurrent" {
			plan = append(plan, -1, 1, 1, 7, 0, 0)
		} else {
			plan = append(plan, 1, 1)
		}
		want := []int64{1_800_000_000_000, -5, 1, 9, 0, 60_000, 60_000}
		switch name {
		case "zset", "log", "slices":
			want = []int64{1_800_000_000_000, 9}
		case "gcra": // a tenth was spent
			want = []int64{1_800_000_000_000, -4, 9, 6_000, 6_000}
		case "concurrent": // no time frees units
			want = []int64{1_800_000_000_000, -5, 1, 9, 0, 0, 0}
		}
		got, err := c.EvalSha(t.Context(), sha, []string{"key:" + name}, "1800000000000", "take", "id", pack(t, c, plan)).Int64Slice()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}
}

// pack makes the server write a list in MessagePack.
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
