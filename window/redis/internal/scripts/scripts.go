// Package scripts tells what servers call the scripts of package lua.
package scripts

import (
	"crypto/sha1" //nolint:gosec // the name under which Redis keeps a script
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/slidingwindow/caddy-sliding-window/lua"
)

// Names of the scripts, as EVALSHA takes them.
var Decide, Instances, Overrides, Enforce, Bans string

func init() { Name() }

// Name sets the names. Tests call it after they have changed a script.
func Name() {
	Decide, Instances, Overrides = sha(lua.Script), sha(lua.Instances), sha(lua.Overrides)
	Enforce, Bans = sha(lua.Enforce), sha(lua.Bans)
}

func sha(script string) string {
	sum := sha1.Sum([]byte(script)) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}

// All returns the scripts themselves.
func All() []string {
	return []string{lua.Script, lua.Instances, lua.Overrides, lua.Enforce, lua.Bans}
}

// called is how a script calls a command.
var called = regexp.MustCompile(`\bcall[(,] ?'([A-Z]+)'`)

// Commands returns the commands that the scripts call.
var Commands = sync.OnceValue(func() []string { return commandsIn(strings.Join(All(), "\n")) })

// CommandsAt returns the commands that the script of a name calls in a line, counted from 1.
func CommandsAt(name string, line int) []string {
	for _, script := range All() {
		if lines := strings.Split(script, "\n"); sha(script) == name && line >= 1 && line <= len(lines) {
			return commandsIn(lines[line-1])
		}
	}
	return nil
}

func commandsIn(text string) (commands []string) {
	for _, found := range called.FindAllStringSubmatch(text, -1) {
		commands = append(commands, found[1])
	}
	slices.Sort(commands)
	return slices.Compact(commands)
}
