package main

import (
	"embed"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// Where packages put things. The package caddy has none of these paths, so that neither of the two replaces the other.
const (
	binaryPath = "/usr/bin/" + name
	dropInPath = "/usr/lib/systemd/system/caddy.service.d/sliding-window.conf"
	docPath    = "/usr/share/doc/" + name + "/"
)

//go:embed packaging
var packaging embed.FS

// writePackages writes a deb and an rpm for a platform of Linux, and nothing for others.
func writePackages(b built, source, out string) error {
	if b.os != "linux" {
		return nil
	}
	scratch, err := os.MkdirTemp("", "packages-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	if err := os.CopyFS(scratch, packaging); err != nil {
		return err
	}
	dropIn, reload := filepath.Join(scratch, "packaging/sliding-window.conf"), filepath.Join(scratch, "packaging/reload.sh")

	place := func(from, to string, mode os.FileMode) *files.Content {
		return &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: b.time}}
	}
	for _, format := range []string{"deb", "rpm"} {
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: name, Arch: b.arch + b.arm, Platform: b.os, Version: b.version, Release: "1", MTime: b.time,
			Section: "httpd", Priority: "optional", License: "Apache-2.0", DisableGlobbing: true,
			Maintainer:  "The authors of caddy-sliding-window",
			Homepage:    "https://" + b.info.Main.Path,
			Description: "Caddy with sliding_window, a distributed rate limiter\nIts binary is " + binaryPath + ". The service of the package caddy runs it.",
		})
		info.Recommends = []string{"caddy"}
		info.RPM.BuildHost = "localhost"
		info.Scripts.PostInstall, info.Scripts.PostRemove = reload, reload
		info.Contents = files.Contents{place(b.path, binaryPath, 0o755), place(dropIn, dropInPath, 0o644), place(filepath.Join(out, b.file(sbomSuffix)), docPath+"sbom"+sbomSuffix, 0o644)}
		for _, text := range texts {
			info.Contents = append(info.Contents, place(filepath.Join(source, text), docPath+text, 0o644))
		}
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return err
		}
		file, err := os.Create(filepath.Join(out, packager.ConventionalFileName(info)))
		if err != nil {
			return err
		}
		if err := packager.Package(info, file); err != nil {
			_ = file.Close()
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return nil
}
