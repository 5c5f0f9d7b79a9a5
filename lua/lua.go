// Package lua holds the scripts that decide inside Redis: one file per
// algorithm, for some a second one in pass that is quick where all is simple, a record
// that some of them keep, the horizon of those that keep units, and the driver that calls
// them; one that counts those who ask, and one that keeps overrides. The header of each file names its keys, arguments and reply.
package lua

import (
	"embed"
	"strings"
)

//go:embed *.lua pass/*.lua
var files embed.FS

// Algorithms are the names of the algorithms that have a script.
var Algorithms = []string{"zset", "log", "stream", "slices", "layers", "gcra"}

// Passing are those that have one more, in pass, for most requests.
var Passing = []string{"zset", "log", "slices", "gcra"}

// Script is the one script that the Redis store runs: the record, the horizon, every
// algorithm and what it has in pass, then the driver.
var Script = build()

// Instances is the script by which processes that share a store count each other.
var Instances = read("instances")

// Overrides is the script that keeps what operators set while Caddy runs.
var Overrides = read("overrides")

func build() string {
	var s strings.Builder
	// One of each in a run: what a module notes of a key holds for all who write it.
	s.WriteString("local spending, made = false, {}\nlocal function module(name)\nif made[name] then return made[name] end\nlocal function make()\n")
	for _, name := range modules() {
		s.WriteString("if name == '" + name + "' then\n" + read(name) + "end\n")
	}
	s.WriteString("end\nmade[name] = make()\nreturn made[name]\nend\n")
	s.WriteString(read("driver"))
	return s.String()
}

// modules are the files that the driver loads, each when it needs it.
func modules() []string {
	all := append([]string{"record", "horizon"}, Algorithms...)
	for _, name := range Passing {
		all = append(all, "pass/"+name)
	}
	return all
}

func read(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // embedded at build time: it cannot be missing
	}
	return string(text)
}
