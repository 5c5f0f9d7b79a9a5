package control

import (
	"runtime/debug"
	"testing"
)

// A fleet can tell which build runs where: by its release, or by the commit that Go has stamped.
func TestVersion(t *testing.T) {
	const caddy, commit = "example.com/caddy", "5493c4d0123456789abcdef0123456789abcdef0"
	stamp := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "-buildmode", Value: "exe"}, {Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: modified}}
	}
	for want, info := range map[string]*debug.BuildInfo{
		"v0.3.1":                             {Main: debug.Module{Path: caddy, Version: "(devel)"}, Settings: stamp("false"), Deps: []*debug.Module{{Path: "example.com/other", Version: "v9.0.0"}, {Path: modulePath, Version: "v0.3.1"}}},
		"v0.4.0":                             {Main: debug.Module{Path: caddy}, Deps: []*debug.Module{{Path: modulePath, Version: "v0.3.1", Replace: &debug.Module{Path: "example.com/fork", Version: "v0.4.0"}}}},
		"v0.0.0-20261126195832-5493c4d01234": {Main: debug.Module{Path: modulePath, Version: "v0.0.0-20261126195832-5493c4d01234"}, Settings: stamp("false")},
		commit:                               {Main: debug.Module{Path: modulePath, Version: "(devel)"}, Settings: stamp("false")},
		commit + "+dirty":                    {Main: debug.Module{Path: modulePath}, Settings: stamp("true")},
		"(devel)":                            {Main: debug.Module{Path: modulePath, Version: "(devel)"}},
	} {
		if got := versionIn(info); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	// The commit is that of another module.
	folder := &debug.Module{Path: "/home/me/plugin"}
	info := &debug.BuildInfo{Main: debug.Module{Path: caddy}, Settings: stamp("false"), Deps: []*debug.Module{{Path: modulePath, Version: "v0.0.0", Replace: folder}}}
	if got := versionIn(info); got != "(devel)" {
		t.Errorf("built into another program: got %s, want (devel)", got)
	}
}
