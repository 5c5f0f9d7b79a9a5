package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// platform is an operating system and an architecture, in Go's words.
type platform struct{ os, arch, arm string }

// platforms are those that a release has binaries for.
var platforms = []platform{
	{"linux", "amd64", ""},
	{"linux", "arm64", ""},
	{"linux", "386", ""},
	{"linux", "arm", "7"},
	{"darwin", "amd64", ""},
	{"darwin", "arm64", ""},
	{"windows", "amd64", ""},
	{"windows", "arm64", ""},
	{"freebsd", "amd64", ""},
	{"freebsd", "arm64", ""},
}

// String returns the platform as names of files have it: linux_armv7.
func (p platform) String() string {
	if p.arm != "" {
		return p.os + "_" + p.arch + "v" + p.arm
	}
	return p.os + "_" + p.arch
}

// built is a binary, and what it says of itself.
type built struct {
	platform
	path    string
	info    *debug.BuildInfo
	version string    // of the commit, without the v: 0.1.0, or a pseudo-version between tags
	time    time.Time // of every file in archives and packages
}

// file returns the name of a file of the release: caddy-sliding-window_0.1.0_linux_amd64.tar.gz.
func (b built) file(suffix string) string {
	return name + "_" + b.version + "_" + b.String() + suffix
}

// build compiles the source for a platform, into a folder. scripts/release-binary.sh of the source has the flags.
func build(source, dir string, p platform) (built, error) {
	b := built{platform: p, path: filepath.Join(dir, p.String())}
	cmd := exec.Command("sh", filepath.Join(source, "scripts", "release-binary.sh"), b.path)
	cmd.Env = append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "GOARM="+p.arm)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return built{}, fmt.Errorf("%s: %w", cmd, err)
	}
	var err error
	if b.info, err = buildinfo.ReadFile(b.path); err != nil {
		return built{}, err
	}
	var found bool
	if b.version, found = strings.CutPrefix(b.info.Main.Version, "v"); !found {
		return built{}, fmt.Errorf("the binary has the version %q; build from a git checkout", b.info.Main.Version)
	}
	b.time, err = epoch(b.info)
	return b, err
}

// epoch returns SOURCE_DATE_EPOCH, or without it the time of the commit that a binary was built from.
func epoch(info *debug.BuildInfo) (time.Time, error) {
	if text := os.Getenv("SOURCE_DATE_EPOCH"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is not a number of seconds: %w", err)
		}
		return time.Unix(seconds, 0).UTC(), nil
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.time" {
			return time.Parse(time.RFC3339, setting.Value)
		}
	}
	return time.Time{}, errors.New("the binary has no time of a commit; build from a git checkout")
}
