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
	dir   string // of ca.pem, cert.pem and key.pem
	roots *x509.CertPool
	key   *ecdsa.PrivateKey
}

// NewCertificate makes one for the time of the test.
func NewCertificate(tb testing.TB) *Certificate {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	c := &Certificate{dir: tb.TempDir(), roots: x509.NewCertPool(), key: key}
	c.write(tb, "key.pem", "PRIVATE KEY", private)
	valid := c.sign(tb, time.Now().Add(time.Hour))
	c.roots.AppendCertsFromPEM(c.write(tb, "ca.pem", "CERTIFICATE", valid))
	c.write(tb, "cert.pem", "CERTIFICATE", valid)
	return c
}

// Expire makes the certificate that servers show one that has expired. Those that run
// read it when Reload says so.
func (c *Certificate) Expire(tb testing.TB) {
	tb.Helper()
	c.write(tb, "cert.pem", "CERTIFICATE", c.sign(tb, time.Now().Add(-time.Minute)))
}

// Renew undoes Expire: servers show what clients trust.
func (c *Certificate) Renew(tb testing.TB) {
	tb.Helper()
	valid, err := os.ReadFile(c.CA())
	if err == nil {
		err = os.WriteFile(filepath.Join(c.dir, "cert.pem"), valid, 0o600)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// Reload makes a running server read the certificate again.
func (c *Certificate) Reload(tb testing.TB, s *Server) {
	tb.Helper()
	do(tb, s, "CONFIG", "SET", "tls-cert-file", filepath.Join(c.dir, "cert.pem"), "tls-key-file", filepath.Join(c.dir, "key.pem"))
}

// CA is the file with what a client trusts.
func (c *Certificate) CA() string { return filepath.Join(c.dir, "ca.pem") }

// sign returns the certificate, good until a time.
func (c *Certificate) sign(tb testing.TB, until time.Time) []byte {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(until.UnixNano()), Subject: pkix.Name{CommonName: "redistest"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, c.key.Public(), c.key)
	if err != nil {
		tb.Fatal(err)
	}
	return der
}

// write writes a file in PEM, and returns its text.
func (c *Certificate) write(tb testing.TB, name, kind string, der []byte) []byte {
	tb.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(filepath.Join(c.dir, name), text, 0o600); err != nil {
		tb.Fatal(err)
	}
	return text
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
