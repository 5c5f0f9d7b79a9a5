package redis

import (
	"os"
	"path/filepath"

	"github.com/slidingwindow/caddy-sliding-window/lua"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/scripts"
)

// Scripts are read from the directory that a variable names, for make mutants.
func init() {
	dir := os.Getenv("SLIDING_WINDOW_SCRIPTS")
	if dir == "" {
		return
	}
	for file, script := range map[string]*string{"script.lua": &lua.Script, "instances.lua": &lua.Instances, "overrides.lua": &lua.Overrides, "enforce.lua": &lua.Enforce, "bans.lua": &lua.Bans} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			panic(err)
		}
		*script = string(text)
	}
	scripts.Name()
}
