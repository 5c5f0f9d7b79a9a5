package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/package-url/packageurl-go"
)

const sbomSuffix = ".cdx.json"

// writeSBOM writes the bill of materials of a binary: the modules that Go compiled into it, and Go itself.
func writeSBOM(b built, _, out string) error {
	binary, err := os.ReadFile(b.path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(binary)
	main := component(b.info.Main.Path, b.info.Main.Version)
	main.Type = cyclonedx.ComponentTypeApplication
	main.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}

	parts := []cyclonedx.Component{component("std", strings.TrimPrefix(b.info.GoVersion, "go"))}
	for _, module := range b.info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		parts = append(parts, component(module.Path, module.Version))
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: b.time.Format(time.RFC3339), Component: &main}
	bom.Components = &parts

	file, err := os.Create(filepath.Join(out, b.file(sbomSuffix)))
	if err != nil {
		return err
	}
	if err := cyclonedx.NewBOMEncoder(file, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

// component returns a module as a bill of materials names it. Scanners find it by its package URL.
func component(module, version string) cyclonedx.Component {
	namespace, base := path.Split(module)
	purl := packageurl.NewPackageURL(packageurl.TypeGolang, strings.TrimSuffix(namespace, "/"), base, version, nil, "").ToString()
	return cyclonedx.Component{BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: module, Version: version, PackageURL: purl}
}
