package control

import "runtime/debug"

const modulePath = "github.com/slidingwindow/caddy-sliding-window"

// Version returns the version of this module in the program, or `(devel)`.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(devel)"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == modulePath && m.Version != "" {
			return m.Version
		}
	}
	return "(devel)"
}
