package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
)

// texts are the files of the source that archives have beside the binary, and packages below /usr/share/doc.
var texts = []string{"Caddyfile.example", "LICENSE", "README.md"}

// member is a file of an archive.
type member struct {
	name, path string
	executable bool
}

// mode returns the permissions of the member, whatever those of the file on disk are.
func (m member) mode() os.FileMode {
	if m.executable {
		return 0o755
	}
	return 0o644
}

// writeArchive writes the binary and the texts as .tar.gz, or as .zip for Windows.
func writeArchive(b built, source, out string) error {
	binary, suffix, pack := "caddy", ".tar.gz", tarball
	if b.os == "windows" {
		binary, suffix, pack = "caddy.exe", ".zip", zipball
	}
	members := []member{{binary, b.path, true}}
	for _, text := range texts {
		members = append(members, member{text, filepath.Join(source, text), false})
	}
	file, err := os.Create(filepath.Join(out, b.file(suffix)))
	if err != nil {
		return err
	}
	if err := pack(file, b, members); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

// tarball writes members as .tar.gz. They belong to root and have the time of the commit.
func tarball(w io.Writer, b built, members []member) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	for _, m := range members {
		content, err := os.ReadFile(m.path)
		if err != nil {
			return err
		}
		header := &tar.Header{
			Name: m.name, Mode: int64(m.mode()), Size: int64(len(content)), ModTime: b.time,
			Uname: "root", Gname: "root", Format: tar.FormatUSTAR,
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}

// zipball writes members as .zip.
func zipball(w io.Writer, b built, members []member) error {
	archive := zip.NewWriter(w)
	for _, m := range members {
		content, err := os.ReadFile(m.path)
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: b.time}
		header.SetMode(m.mode())
		entry, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := entry.Write(content); err != nil {
			return err
		}
	}
	return archive.Close()
}
