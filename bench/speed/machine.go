package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
)

// peers are the modules whose versions the description of the machine names.
var compared = []string{
	"github.com/caddyserver/caddy/v2",
	"github.com/mholt/caddy-ratelimit",
	"github.com/go-redis/redis_rate/v10",
	"github.com/redis/rueidis/rueidislimiter",
	"github.com/throttled/throttled/v2",
	"github.com/ulule/limiter/v3",
}

// describeMachine names what figures depend on: hardware and versions.
func describeMachine() (string, error) {
	redis, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("redis-server: %w; install it: apt-get install redis-server", err)
	}
	version := "?"
	for _, word := range strings.Fields(string(redis)) {
		if v, ok := strings.CutPrefix(word, "v="); ok {
			version = v
		}
	}
	kernel, err := exec.Command("uname", "-sr").Output()
	if err != nil {
		return "", err
	}
	lines := []string{fmt.Sprintf("%s, %d cores, %s; %s, Redis %s.", processor(), runtime.NumCPU(),
		strings.TrimSpace(string(kernel)), runtime.Version(), version)}
	if info, ok := debug.ReadBuildInfo(); ok {
		var modules []string
		for _, want := range compared {
			for _, m := range info.Deps {
				if m.Path == want {
					modules = append(modules, strings.TrimPrefix(m.Path, "github.com/")+" "+m.Version)
				}
			}
		}
		lines = append(lines, "Compared: "+strings.Join(modules, ", ")+".")
	}
	return strings.Join(lines, "\n"), nil
}

// processor returns the name of the processor as Linux has it.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // none elsewhere
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
