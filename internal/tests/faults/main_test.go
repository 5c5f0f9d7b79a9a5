package faults_test

import (
	"os"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(holderOf); address != "" {
		hold(address)
		return
	}
	os.Exit(caddyrun.Main(m, func() {}))
}
