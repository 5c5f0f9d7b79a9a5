// Package scripts tells what servers call the scripts of package lua.
package scripts

import (
	"crypto/sha1" //nolint:gosec // the name under which Redis keeps a script
	"encoding/hex"

	"github.com/slidingwindow/caddy-sliding-window/lua"
)

// Names of the scripts, as EVALSHA takes them.
var Decide, Instances, Overrides, Enforce string

func init() { Name() }

// Name sets the names. Tests call it after they have changed a script.
func Name() {
	Decide, Instances, Overrides, Enforce = sha(lua.Script), sha(lua.Instances), sha(lua.Overrides), sha(lua.Enforce)
}

func sha(script string) string {
	sum := sha1.Sum([]byte(script)) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}

// All returns the scripts themselves.
func All() []string { return []string{lua.Script, lua.Instances, lua.Overrides, lua.Enforce} }
