package stores

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// TLS says how connections to the server are encrypted.
type TLS struct {
	// File with the certificates, in PEM, of the authorities to trust. Default:
	// those of the system.
	CA string `json:"ca,omitempty"`

	// File with the certificate, in PEM, that this client shows. Default: none.
	Cert string `json:"cert,omitempty"`

	// File with the key to `cert`, in PEM. Required with `cert`.
	Key string `json:"key,omitempty"`

	// The name that the server's certificate must have. Default: the host of the
	// address.
	ServerName string `json:"server_name,omitempty"`

	// Whether to accept any certificate, which leaves the connection open to an attacker in the network. Default: false.
	InsecureSkipVerify bool `json:"insecure_skip_verify,omitempty"`
}

func (t *TLS) check() error {
	if t != nil && (t.Cert == "") != (t.Key == "") {
		return errors.New("tls: cert and key must be set together; add the other one")
	}
	if t != nil && t.CA != "" && t.InsecureSkipVerify {
		return errors.New("tls: ca and insecure_skip_verify cannot be combined: any certificate would be accepted; take out insecure_skip_verify")
	}
	return nil
}

// fields returns what may hold placeholders.
func (t *TLS) fields() map[string]*string {
	if t == nil {
		return nil
	}
	return map[string]*string{"tls ca": &t.CA, "tls cert": &t.Cert, "tls key": &t.Key, "tls server_name": &t.ServerName}
}

// config returns the configuration for a client, nil for a plain connection. Errors
// name files as they were written: what a placeholder gave may be the key itself.
func (t *TLS) config(written *TLS) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // the operator's choice, documented
	}
	if t.CA != "" {
		pem, err := readPEM("ca", t.CA, written.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, ofOption("tls ca", fmt.Errorf("tls: ca %s: holds no certificate", written.CA))
		}
	}
	if t.Cert != "" {
		cert, err := readPEM("cert", t.Cert, written.Cert)
		if err != nil {
			return nil, err
		}
		key, err := readPEM("key", t.Key, written.Key)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, ofOption("tls cert", fmt.Errorf("tls: cert: %w", err))
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// readPEM reads the file of a field.
func readPEM(field, name, written string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if err == nil {
		return b, nil
	}
	if strings.Contains(written, "\n") {
		return nil, ofOption("tls "+field, fmt.Errorf("tls: %s: must be the path of a file, not what is in it", field))
	}
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err // without the path
	}
	return nil, ofOption("tls "+field, fmt.Errorf("tls: %s: open %s: %w", field, written, err))
}

// contents returns what is in the files now.
func (t *TLS) contents() []byte {
	if t == nil {
		return nil
	}
	var all []byte
	for _, name := range []string{t.CA, t.Cert, t.Key} {
		b, _ := os.ReadFile(name) // config reports what cannot be read
		all = append(append(all, b...), 0)
	}
	return all
}
