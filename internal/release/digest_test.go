package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// run runs a command in a folder, and returns what it prints.
func run(t *testing.T, dir, command string, args ...string) string {
	t.Helper()
	cmd := exec.Command(command, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// write writes files below a folder.
func write(t *testing.T, dir string, texts map[string]string) {
	t.Helper()
	for path, text := range texts {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// read returns the text of a file.
func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// small returns a repository with a small program in the place of Caddy, tagged as v0.1.0.
func small(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"go.mod":                    "module example.com/small\n\ngo 1.26.0\n",
		"newest.mod":                "module example.com/small\n\ngo 1.26.0\n",
		"cmd/caddy/main.go":         "package main\n\nfunc main() { println(\"small\") }\n",
		"scripts/release-binary.sh": read(t, "../../scripts/release-binary.sh"),
		"Caddyfile.example":         ":8080\n", "LICENSE": "Apache 2.0\n", "README.md": "# Small\n",
	})
	run(t, dir, "git", "init", "-q")
	run(t, dir, "git", "add", ".")
	commit(t, dir)
	run(t, dir, "git", "tag", "v0.1.0")
	return dir
}

func commit(t *testing.T, dir string) {
	t.Helper()
	run(t, dir, "git", "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "-q", "-m", "small")
}

// releaseOf releases a clone of a repository in a folder of this name, and returns the folder of the files.
func releaseOf(t *testing.T, repository, folder string, platforms []platform) string {
	t.Helper()
	clone, out := filepath.Join(t.TempDir(), folder), filepath.Join(t.TempDir(), "dist")
	run(t, ".", "git", "clone", "-q", repository, clone)
	if err := release(clone, out, platforms); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSameDigests releases a small program twice for every platform: in folders of other names, with other permissions
// and times of the files on disk, and the second time with an empty build cache.
func TestSameDigests(t *testing.T) {
	repository := small(t)
	first := releaseOf(t, repository, "one", platforms)
	t.Setenv("GOCACHE", t.TempDir())
	defer syscall.Umask(syscall.Umask(0o077))
	second := releaseOf(t, repository, "two/a longer name", platforms)
	sums := read(t, first, checksums)
	if other := read(t, second, checksums); other != sums {
		t.Errorf("two folders give other files:\n%s\n%s", sums, other)
	}
	var files []string
	for line := range strings.Lines(sums) {
		files = append(files, strings.Fields(line)[1])
	}
	want := []string{
		"caddy-sliding-window-0.1.0-1.aarch64.rpm", "caddy-sliding-window-0.1.0-1.armv7hl.rpm", "caddy-sliding-window-0.1.0-1.i386.rpm", "caddy-sliding-window-0.1.0-1.x86_64.rpm",
		"caddy-sliding-window_0.1.0-1_amd64.deb", "caddy-sliding-window_0.1.0-1_arm64.deb", "caddy-sliding-window_0.1.0-1_armhf.deb", "caddy-sliding-window_0.1.0-1_i386.deb",
		"caddy-sliding-window_0.1.0_darwin_amd64.cdx.json", "caddy-sliding-window_0.1.0_darwin_amd64.tar.gz", "caddy-sliding-window_0.1.0_darwin_arm64.cdx.json", "caddy-sliding-window_0.1.0_darwin_arm64.tar.gz",
		"caddy-sliding-window_0.1.0_freebsd_amd64.cdx.json", "caddy-sliding-window_0.1.0_freebsd_amd64.tar.gz", "caddy-sliding-window_0.1.0_freebsd_arm64.cdx.json", "caddy-sliding-window_0.1.0_freebsd_arm64.tar.gz",
		"caddy-sliding-window_0.1.0_linux_386.cdx.json", "caddy-sliding-window_0.1.0_linux_386.tar.gz", "caddy-sliding-window_0.1.0_linux_amd64.cdx.json", "caddy-sliding-window_0.1.0_linux_amd64.tar.gz",
		"caddy-sliding-window_0.1.0_linux_arm64.cdx.json", "caddy-sliding-window_0.1.0_linux_arm64.tar.gz", "caddy-sliding-window_0.1.0_linux_armv7.cdx.json", "caddy-sliding-window_0.1.0_linux_armv7.tar.gz",
		"caddy-sliding-window_0.1.0_windows_amd64.cdx.json", "caddy-sliding-window_0.1.0_windows_amd64.zip", "caddy-sliding-window_0.1.0_windows_arm64.cdx.json", "caddy-sliding-window_0.1.0_windows_arm64.zip",
	}
	if !slices.Equal(files, want) {
		t.Errorf("the release has the files\n%s\nwant\n%s", strings.Join(files, "\n"), strings.Join(want, "\n"))
	}
	for archive, want := range map[string]string{
		"caddy-sliding-window_0.1.0_linux_arm64.tar.gz": "caddy", "caddy-sliding-window_0.1.0_windows_arm64.zip": "caddy.exe",
	} {
		want := []string{"-rwxr-xr-x " + want, "-rw-r--r-- Caddyfile.example", "-rw-r--r-- LICENSE", "-rw-r--r-- README.md"}
		if got := contents(t, filepath.Join(first, archive)); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", archive, got, want)
		}
	}
}

// contents returns permissions and names of what an archive has.
func contents(t *testing.T, path string) []string {
	t.Helper()
	var found []string
	if filepath.Ext(path) == ".zip" {
		archive, err := zip.OpenReader(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = archive.Close() }()
		for _, file := range archive.File {
			found = append(found, file.Mode().String()+" "+file.Name)
		}
		return found
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	compressed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, header.FileInfo().Mode().String()+" "+header.Name)
	}
}

// TestChangedByte holds that the command of docs/releasing.md finds one byte of a release that is not that of the release.
func TestChangedByte(t *testing.T) {
	command := "sha256sum --ignore-missing -c " + checksums
	if !strings.Contains(read(t, root, "docs/releasing.md"), "```sh\n"+command+"\n```\n") {
		t.Errorf("docs/releasing.md does not say %s", command)
	}
	dist := releaseOf(t, small(t), "one", platforms[:1])
	run(t, dist, "sh", "-c", command)
	archive := filepath.Join(dist, "caddy-sliding-window_0.1.0_linux_amd64.tar.gz")
	content := []byte(read(t, archive))
	content[len(content)/2] ^= 1
	if err := os.WriteFile(archive, content, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = dist
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), filepath.Base(archive)+": FAILED") {
		t.Errorf("a changed byte passes: %v\n%s", err, out)
	}
}

// TestVersions holds the versions that files have between tags, and that a commit is required.
func TestVersions(t *testing.T) {
	repository := small(t)
	write(t, repository, map[string]string{"README.md": "# Changed\n"})
	out := t.TempDir()
	if err := release(repository, out, platforms[:1]); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(out, "caddy-sliding-window_0.1.0+dirty_linux_amd64.tar.gz")); err != nil {
		t.Errorf("a changed file is not in the version: %v", err)
	}
	run(t, repository, "git", "add", ".")
	commit(t, repository)
	if err := release(repository, out, platforms[:1]); err != nil {
		t.Fatal(err)
	}
	if found, _ := filepath.Glob(filepath.Join(out, "caddy-sliding-window_0.1.1-0.*_linux_amd64.tar.gz")); len(found) != 1 {
		t.Errorf("a commit behind the tag gives %q", found)
	}
	if err := os.RemoveAll(filepath.Join(repository, ".git")); err != nil {
		t.Fatal(err)
	}
	if err := release(repository, out, platforms[:1]); err == nil || !strings.Contains(err.Error(), "git checkout") {
		t.Errorf("without a commit: %v", err)
	}
}

// TestEpoch holds what a time of files is that is set from outside.
func TestEpoch(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	if at, err := epoch(nil); err != nil || at.Unix() != 1000000000 {
		t.Errorf("got %s, %v", at, err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "today")
	if _, err := epoch(nil); err == nil {
		t.Error("SOURCE_DATE_EPOCH=today passes")
	}
}
