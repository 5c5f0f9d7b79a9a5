package control

import "runtime/debug"

const (
	modulePath = "github.com/slidingwindow/caddy-sliding-window"
	unknown    = "(devel)"
	// noRelease is the version that a build has which says no other, such as one of a folder.
	noRelease = "v0.0.0"
)

// Version returns the version of this module in the program: a release, or the commit that Go built from; else `(devel)`.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	return versionIn(info)
}

func versionIn(info *debug.BuildInfo) string {
	version := ""
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path != modulePath {
			continue
		}
		if version = m.Version; m.Replace != nil && m.Replace.Version != "" {
			version = m.Replace.Version
		}
	}
	if version != "" && version != unknown && version != noRelease {
		return version
	}
	if commit := commitIn(info); commit != "" && info.Main.Path == modulePath {
		return commit
	}
	return unknown
}

// commitIn returns the commit of the main module, with +dirty if files were changed since; empty if Go has stamped none.
func commitIn(info *debug.BuildInfo) string {
	stamp := make(map[string]string)
	for _, s := range info.Settings {
		stamp[s.Key] = s.Value
	}
	commit := stamp["vcs.revision"]
	if commit != "" && stamp["vcs.modified"] == "true" {
		commit += "+dirty"
	}
	return commit
}
