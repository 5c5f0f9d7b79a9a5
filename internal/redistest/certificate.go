package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificate is one for 127.0.0.1 that signs itself.
type Certificate struct {
	dir   string // of cert.pem and key.pem
	roots *x509.CertPool
}

// NewCertificate makes one for the time of the test.
func NewCertificate(tb testing.TB) *Certificate {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redistest"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	c := &Certificate{dir: tb.TempDir(), roots: x509.NewCertPool()}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	c.roots.AppendCertsFromPEM(public)
	for name, text := range map[string][]byte{"cert.pem": public, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(filepath.Join(c.dir, name), text, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return c
}

// Client is what a client trusts.
func (c *Certificate) Client() *tls.Config {
	return &tls.Config{RootCAs: c.roots, MinVersion: tls.VersionTLS12}
}

// args are what a server is told.
func (c *Certificate) args(port string) []string {
	cert := filepath.Join(c.dir, "cert.pem")
	return []string{
		"--tls-port", port, "--tls-auth-clients", "no",
		"--tls-cert-file", cert, "--tls-key-file", filepath.Join(c.dir, "key.pem"), "--tls-ca-cert-file", cert,
		"--tls-replication", "yes", "--tls-cluster", "yes",
	}
}
