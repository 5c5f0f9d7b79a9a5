package faults_test

import (
	"context"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// network is a proxy between Caddy and a server that fails on demand.
type network struct{ *toxiproxy.Proxy }

// startNetwork listens on an address, "127.0.0.1:0" for any port.
func startNetwork(t *testing.T, listen, server string) network {
	t.Helper()
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	n := network{toxiproxy.NewProxy(api, "redis", listen, server)}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	return n
}

// fail adds a fault, as toxiproxy describes it.
func (n network) fail(t *testing.T, toxic string) {
	t.Helper()
	if _, err := n.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		t.Fatal(err)
	}
}

// heal ends all faults.
func (n network) heal() { n.Toxics.ResetToxics(context.Background()) }
