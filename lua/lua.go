// Package lua holds the scripts that decide inside Redis: one file per
// algorithm, a record that some of them keep, and the driver that calls them; and one
// that counts those who ask. The header of each file names its keys, arguments and reply.
package lua

import (
	"embed"
	"strings"
)

//go:embed *.lua
var files embed.FS

// Algorithms are the names of the algorithms that have a script.
var Algorithms = []string{"zset", "log", "stream", "slices", "layers", "gcra"}

// Script is the one script that the Redis store runs: the record, every algorithm,
// then the driver.
var Script = build()

// Instances is the script by which processes that share a store count each other.
var Instances = read("instances")

func build() string {
	var s strings.Builder
	s.WriteString("local modules = {}\n")
	for _, name := range append([]string{"record"}, Algorithms...) {
		s.WriteString("modules." + name + " = function()\n" + read(name) + "end\n")
	}
	s.WriteString(read("driver"))
	return s.String()
}

func read(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // embedded at build time: it cannot be missing
	}
	return string(text)
}
