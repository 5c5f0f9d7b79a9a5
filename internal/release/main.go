// Command release builds what a release consists of, for every platform: an archive, deb and rpm packages, and a
// software bill of materials (SBOM) in CycloneDX; and SHA256SUMS, which names them all. It needs no network if the
// modules are in the cache. The same commit and the same Go give the same bytes in every folder:
//
//	go -C internal/release run . -source "$PWD" -out "$PWD/dist"
package main

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
)

// name is that of the packages, of their binary, and the first word of every file.
const name = "caddy-sliding-window"

// checksums is the file that has the digests of the others, as sha256sum -c reads them.
const checksums = "SHA256SUMS"

func main() {
	log.SetFlags(0)
	log.SetPrefix("release: ")
	source := flag.String("source", ".", "checkout of the commit to release")
	out := flag.String("out", "dist", "folder for the files; it is emptied first")
	flag.Parse()
	if err := release(*source, *out, platforms); err != nil {
		log.Fatal(err)
	}
}

// release writes into out the files of a release of the commit in source, for some platforms.
func release(source, out string, platforms []platform) error {
	var err error
	if source, err = filepath.Abs(source); err != nil {
		return err
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o750); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	for _, p := range platforms {
		log.Print(p)
		b, err := build(source, scratch, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		for _, write := range []func(built, string, string) error{writeSBOM, writeArchive, writePackages} {
			if err := write(b, source, out); err != nil {
				return fmt.Errorf("%s: %w", p, err)
			}
		}
	}
	return writeChecksums(out)
}

// writeChecksums writes SHA256SUMS of the files in a folder, ordered by name.
func writeChecksums(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), file.Name())
	}
	return os.WriteFile(filepath.Join(dir, checksums), sums.Bytes(), 0o600)
}
