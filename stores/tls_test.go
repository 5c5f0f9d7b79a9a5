package stores

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// writeCertificate makes a new certificate and its key in two files.
func writeCertificate(t *testing.T, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: cert},
		keyFile:  {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTLSConfig(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeCertificate(t, cert, key)
	c, err := (&TLS{CA: cert, Cert: cert, Key: key, ServerName: "redis.internal"}).config(new(TLS))
	if err != nil {
		t.Fatal(err)
	}
	if c.RootCAs == nil || len(c.Certificates) != 1 || c.ServerName != "redis.internal" || c.InsecureSkipVerify {
		t.Errorf("got %d certificates, server name %s, insecure %t", len(c.Certificates), c.ServerName, c.InsecureSkipVerify)
	}
	if c, err := (*TLS)(nil).config(nil); c != nil || err != nil {
		t.Errorf("without tls: got %v, %v, want nothing", c, err)
	}
	if c, err := (&TLS{InsecureSkipVerify: true}).config(new(TLS)); err != nil || !c.InsecureSkipVerify || c.RootCAs != nil {
		t.Errorf("insecure_skip_verify: got %v, %v", c, err)
	}
	writeCertificate(t, filepath.Join(dir, "other.pem"), key)
	if _, err := (&TLS{Cert: cert, Key: key}).config(new(TLS)); err == nil {
		t.Error("a key that does not belong to the certificate: got no error")
	}
}

// A reload takes up what is in the files now, under the same names.
func TestTLSFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("STORES_TEST_DIR", dir)
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	open := func() *Redis {
		t.Helper()
		r := &Redis{TLS: &TLS{CA: "{env.STORES_TEST_DIR}/cert.pem", Cert: cert, Key: key}}
		if err := r.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Cleanup() })
		return r
	}
	writeCertificate(t, cert, key)
	one, two := open(), open()
	if one.Store() != two.Store() {
		t.Error("the same files: got two stores, want one")
	}
	writeCertificate(t, cert, key)
	if open().Store() == one.Store() {
		t.Error("a new certificate: got the store with the old one")
	}
}
