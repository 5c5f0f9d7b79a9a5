// Package lua holds the scripts that run inside Redis. The script that decides is made of
//
//   - the driver, which is called, and calls the algorithms;
//   - a file per algorithm, and files of its own for how it reads and writes keys;
//   - what algorithms share: the verdict, the horizon, the record and some constants;
//   - for some algorithms, a quick path in pass, which decides where all is simple.
//
// Four small scripts count processes, keep overrides, exchange orders to enforce zones, and keep bans. The header of each
// script names its keys, arguments and reply; that of each module what it returns, and what it keeps.
package lua

import (
	"embed"
	"slices"
	"strings"
)

//go:embed *.lua pass/*.lua
var files embed.FS

// Algorithms are the names of the algorithms that have a script.
var Algorithms = []string{"zset", "log", "stream", "slices", "layers", "gcra", "concurrent"}

// Passing are those that have one more, in pass, for most requests.
var Passing = []string{"zset", "log", "slices", "gcra"}

// parts are the modules of which algorithms are made: those that several share, then those of
// one, which begin with its name.
var parts = []string{
	"verdict", "horizon", "record",
	"logchunk", "logring", "logpages", "logchange",
	"streamentries", "streamback",
	"slicespack",
	"layershistory", "layersback",
}

// Script is the one script that the Redis store runs: the constants, the modules, then the
// driver.
var Script = build()

// Instances is the script by which processes that share a store count each other.
var Instances = read("instances")

// Overrides is the script that keeps what operators set while Caddy runs.
var Overrides = read("overrides")

// Enforce is the script by which Caddys tell each other how operators have zones enforced.
var Enforce = read("enforce")

// Bans is the script that keeps who is banned.
var Bans = read("bans")

func build() string {
	var s strings.Builder
	s.Grow(150_000)
	// A run makes a module once: what the module notes of a key holds for all who write the key.
	s.WriteString("local spending, made = false, {}\nlocal function module(name)\nif made[name] then return made[name] end\nlocal function make()\n")
	for _, name := range modules() {
		s.WriteString("if name == '" + name + "' then\n" + WithValues(read(name)) + "end\n")
	}
	s.WriteString("end\nmade[name] = make()\nreturn made[name]\nend\n")
	s.WriteString(read("driver"))
	return s.String()
}

// WithValues returns the text of a module as Script has it, with values in place of constants.
func WithValues(module string) string { return literals.Replace(module) }

var literals = constants()

// constants returns what writes the value of each constant in place of its name. As a local that a
// function uses, each would cost 300 instructions a call, of 140,000 that a decision alone takes.
func constants() *strings.Replacer {
	var lines [][2]string // name and value
	for line := range strings.Lines(read("constants")) {
		names, values, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " = ")
		if names, ok := strings.CutPrefix(names, "local "); ok {
			of := strings.Split(values, ", ")
			for i, name := range strings.Split(names, ", ") {
				lines = append(lines, [2]string{name, "(" + of[i] + ")"})
			}
		}
	}
	// A name may begin with another one.
	slices.SortFunc(lines, func(a, b [2]string) int { return len(b[0]) - len(a[0]) })
	var pairs []string
	for _, l := range lines {
		pairs = append(pairs, l[:]...)
	}
	return strings.NewReplacer(pairs...)
}

// modules are the files that the driver loads, each when it needs it: first those that most
// calls need, for make compares one name after the other.
func modules() []string {
	var all []string
	for _, name := range Passing {
		all = append(all, "pass/"+name)
	}
	return slices.Concat(all, Algorithms, parts)
}

func read(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // embedded at build time: it cannot be missing
	}
	return string(text)
}
