// Package caddyapi bridges what differs between the Caddys that this plugin builds with, which go.mod and newest.mod name.
package caddyapi

import (
	"errors"
	"path/filepath"
	"strings"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

// LoadConfig is caddycmd.LoadConfig. That function also returns the name of the adapter since Caddy v2.11: before, the
// adapter is told by the name of the file, as Caddy chooses one.
func LoadConfig(file, adapter string) (config []byte, used, by string, err error) {
	switch load := any(caddycmd.LoadConfig).(type) {
	case func(string, string) ([]byte, string, string, error):
		return load(file, adapter)
	case func(string, string) ([]byte, string, error):
		config, used, err = load(file, adapter)
		return config, used, adapterOf(used, adapter), err
	}
	return nil, "", "", errors.New("the LoadConfig of this Caddy is of an unknown kind")
}

func adapterOf(file, adapter string) string {
	name := strings.ToLower(filepath.Base(file))
	ext := filepath.Ext(name)
	if adapter == "" && ext != ".json" && (strings.HasPrefix(name, "caddyfile") || ext == ".caddyfile") {
		return "caddyfile"
	}
	return adapter
}
