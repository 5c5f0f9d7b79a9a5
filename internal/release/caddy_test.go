package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/sassoftware/go-rpmutils"
)

// TestCaddy releases Caddy for linux/amd64 from two clones of this repository, looks at what comes out, and follows every
// route from there to a denied request. It tests what is committed. All builds share the build cache: TestSameDigests
// has one that starts empty.
func TestCaddy(t *testing.T) {
	repository := strings.TrimSpace(run(t, ".", "git", "rev-parse", "--show-toplevel"))
	dist := releaseOf(t, repository, "one", platforms[:1])
	t.Run("digests", func(t *testing.T) {
		again := releaseOf(t, repository, "two/a longer name", platforms[:1])
		if one, two := read(t, dist, checksums), read(t, again, checksums); one != two {
			t.Errorf("two folders give other files:\n%s\n%s", one, two)
		}
	})
	unpacked := t.TempDir()
	run(t, unpacked, "tar", "xzf", find(t, dist, "*_linux_amd64.tar.gz"))
	t.Run("sbom", func(t *testing.T) {
		checkSBOM(t, find(t, dist, "*_linux_amd64.cdx.json"), filepath.Join(unpacked, "caddy"))
	})
	t.Run("Caddy of the image", func(t *testing.T) {
		for _, from := range regexp.MustCompile(`(?m)^FROM (?:--\S+ )?caddy:([\d.]+)`).FindAllStringSubmatch(read(t, root, "Dockerfile"), -1) {
			if !strings.Contains(run(t, ".", "go", "version", "-m", filepath.Join(unpacked, "caddy")), "\tgithub.com/caddyserver/caddy/v2\tv"+from[1]+"\t") {
				t.Errorf("the Dockerfile begins with the image of Caddy %s, and releases have another", from[1])
			}
		}
	})
	t.Run("deb", func(t *testing.T) { checkDeb(t, find(t, dist, "*_amd64.deb"), filepath.Join(unpacked, "caddy")) })
	t.Run("rpm", func(t *testing.T) { checkRPM(t, find(t, dist, "*.x86_64.rpm"), filepath.Join(unpacked, "caddy")) })
	t.Run("routes", func(t *testing.T) { checkRoutes(t, repository, dist) })
}

// find returns the only file in a folder that fits a pattern.
func find(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s has %q, %v; want one file %s", dir, found, err, pattern)
	}
	return found[0]
}

// checkSBOM holds that a bill of materials names every module that go version finds in the binary, and nothing else.
func checkSBOM(t *testing.T, path, binary string) {
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(strings.NewReader(read(t, path)), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"std": strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range regexp.MustCompile(`(?m)^\t(?:mod|dep)\t(\S+)\t(\S+)`).FindAllStringSubmatch(run(t, ".", "go", "version", "-m", binary), -1) {
		want[m[1]] = m[2]
	}
	if len(want) < 100 {
		t.Fatalf("go version finds only %d modules", len(want))
	}
	for _, part := range append(*bom.Components, *bom.Metadata.Component) {
		if want[part.Name] != part.Version || !strings.HasPrefix(part.PackageURL, "pkg:golang/"+part.Name+"@") {
			t.Errorf("the bill names %s %s as %s, and the binary has %q", part.Name, part.Version, part.PackageURL, want[part.Name])
		}
		delete(want, part.Name)
	}
	if len(want) > 0 {
		t.Errorf("the bill leaves out %v", want)
	}
}

// asRoot runs a command as root.
func asRoot(t *testing.T, args ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		args = append([]string{"sudo", "-n"}, args...)
	}
	run(t, ".", args[0], args[1:]...)
}

// dpkg runs dpkg on a root of its own.
func dpkg(t *testing.T, root string, args ...string) {
	t.Helper()
	asRoot(t, append([]string{"dpkg", "--root=" + root, "--force-script-chrootless"}, args...)...)
}

// install makes a root for dpkg, and installs a package there.
func install(t *testing.T, deb string) (root string) {
	t.Helper()
	root = t.TempDir()
	t.Cleanup(func() { asRoot(t, "chown", "-R", strconv.Itoa(os.Geteuid()), root) })
	for _, dir := range []string{"info", "updates"} {
		if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, root, map[string]string{"var/lib/dpkg/status": ""})
	dpkg(t, root, "-i", deb)
	return root
}

// stock returns a package caddy of a version, with the paths that Caddy's own has.
func stock(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{"caddy": version, "caddy.service": "[Service]\nExecStart=/usr/bin/caddy run --environ --config /etc/caddy/Caddyfile\n"})
	info := nfpm.WithDefaults(&nfpm.Info{Name: "caddy", Arch: "amd64", Version: version, Maintainer: "test"})
	info.Contents = files.Contents{
		{Source: filepath.Join(dir, "caddy"), Destination: "/usr/bin/caddy"},
		{Source: filepath.Join(dir, "caddy.service"), Destination: "/lib/systemd/system/caddy.service"},
	}
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		t.Fatal(err)
	}
	packager, err := nfpm.Get("deb")
	if err != nil {
		t.Fatal(err)
	}
	var deb bytes.Buffer
	if err := packager.Package(info, &deb); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "caddy.deb")
	if err := os.WriteFile(path, deb.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkDeb installs the package beside a package caddy, of which an upgrade follows. Each keeps its files, and goes alone.
func checkDeb(t *testing.T, deb, binary string) {
	root := install(t, stock(t, "2.11.8"))
	dpkg(t, root, "-i", deb)
	ours := filepath.Join(root, binaryPath)
	for _, version := range []string{"2.11.9", "2.11.10"} {
		dpkg(t, root, "-i", stock(t, version))
		if got := read(t, root, "usr/bin/caddy"); got != version {
			t.Errorf("the package caddy %s has the binary of %s", version, got)
		}
		if read(t, ours) != read(t, binary) {
			t.Errorf("the package caddy %s replaces the binary", version)
		}
		if !strings.Contains(read(t, root, dropInPath), "\nExecStart=\nExecStart="+binaryPath+" run ") {
			t.Errorf("beside the package caddy %s, the service does not run %s", version, binaryPath)
		}
	}
	if version := run(t, ".", ours, "version"); !strings.HasPrefix(version, "v2.") {
		t.Errorf("the installed binary is of version %q", version)
	}
	dpkg(t, root, "-i", deb) // an upgrade of it
	dpkg(t, root, "-r", name)
	if _, err := os.Stat(filepath.Join(root, "usr/bin/caddy")); err != nil {
		t.Errorf("without the package, the package caddy has no binary: %v", err)
	}
	for _, path := range []string{binaryPath, dropInPath, docPath} {
		if _, err := os.Stat(filepath.Join(root, path)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the removed package leaves %s, %v", path, err)
		}
	}
}

// checkRPM holds that the rpm has the same files as the deb.
func checkRPM(t *testing.T, path, binary string) {
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	rpm, err := rpmutils.ReadRpm(file)
	if err != nil {
		t.Fatal(err)
	}
	if nevra, err := rpm.Header.GetNEVRA(); err != nil || nevra.Name != name || nevra.Arch != "x86_64" {
		t.Errorf("the rpm is %v, %v", nevra, err)
	}
	payload, err := rpm.PayloadReaderExtended()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{binaryPath: true, dropInPath: true, docPath + "sbom" + sbomSuffix: true}
	for _, text := range texts {
		want[docPath+text] = true
	}
	for {
		info, err := payload.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if info.UserName() != "root" || !want[info.Name()] && !strings.HasSuffix(docPath, info.Name()+"/") {
			t.Errorf("the rpm has %s of %s", info.Name(), info.UserName())
		}
		delete(want, info.Name())
		if info.Name() == binaryPath {
			if content, err := io.ReadAll(payload); err != nil || string(content) != read(t, binary) {
				t.Errorf("the rpm has another binary, %v", err)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("the rpm leaves out %v", want)
	}
}
