package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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

// Authority signs certificates for servers on 127.0.0.1. Its files are in PEM.
type Authority struct {
	CA, Cert, Key string // files; of the last two there is one pair at a time

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority writes the certificate of an authority to a directory.
func NewAuthority(tb testing.TB, dir string) *Authority {
	tb.Helper()
	a := &Authority{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	a.key = newKey(tb)
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redistest"},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	if err != nil {
		tb.Fatal(err)
	}
	writePEM(tb, a.CA, "CERTIFICATE", der)
	return a
}

// Issue writes a server's certificate, good until a time, and its key.
func (a *Authority) Issue(tb testing.TB, until time.Time) {
	tb.Helper()
	key := newKey(tb)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(until.UnixNano()), Subject: pkix.Name{CommonName: "127.0.0.1"},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), a.key)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	writePEM(tb, a.Cert, "CERTIFICATE", der)
	writePEM(tb, a.Key, "PRIVATE KEY", private)
}

// Args are those of a redis-server that shows the certificate on a port.
func (a *Authority) Args(port string) []string {
	return []string{
		"--tls-port", port, "--tls-auth-clients", "no",
		"--tls-cert-file", a.Cert, "--tls-key-file", a.Key, "--tls-ca-cert-file", a.CA,
	}
}

// Roots is the authority's certificate for a client.
func (a *Authority) Roots(tb testing.TB) *x509.CertPool {
	tb.Helper()
	text, err := os.ReadFile(a.CA)
	if err != nil {
		tb.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return roots
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func writePEM(tb testing.TB, file, kind string, der []byte) {
	tb.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		tb.Fatal(err)
	}
}
