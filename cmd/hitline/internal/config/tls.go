package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/hitline/hitline/internal/regularfile"

	"github.com/hitline/hitline/lookup/server"
)

// expiresSoon is how long before its end a certificate is warned of.
const expiresSoon = 7 * 24 * time.Hour

// readPair reads the server's certificate and its key.
func (c *Config) readPair(t *TLS, path string, now time.Time) (Update, []string, error) {
	cert, warnings, err := c.readCertificates(t.Cert, path+".cert", now)
	if err != nil {
		return nil, nil, err
	}
	key, err := regularfile.Read(t.Key)
	if err != nil {
		return nil, nil, c.wrong(path+".key", "cannot read it: %v", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil { // of the key: the certificates have been read
		return nil, nil, c.wrong(path+".key", "%s: %v", t.Key, err)
	}
	warnings = append(warnings, c.exposuresOf(path+".key", t.Key, true)...)
	return func(s *server.Settings) {
		var clients *x509.CertPool
		if s.TLS != nil {
			clients = s.TLS.ClientCAs
		}
		s.TLS = newTLS([]tls.Certificate{pair}, clients)
	}, warnings, nil
}

// readAuthorities reads client_ca.
func (c *Config) readAuthorities(t *TLS, path string, now time.Time) (Update, []string, error) {
	text, warnings, err := c.readCertificates(t.ClientCA, path+".client_ca", now)
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return func(s *server.Settings) { s.TLS = newTLS(s.TLS.Certificates, pool) }, warnings, nil
}

// newTLS returns the configuration of a tls:// address. clients is nil if clients need no certificate. It is a new one
// each time, without the session tickets of the one before.
func newTLS(certificates []tls.Certificate, clients *x509.CertPool) *tls.Config {
	tc := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: certificates}
	if clients != nil {
		tc.ClientCAs, tc.ClientAuth = clients, tls.RequireAndVerifyClientCert
	}
	return tc
}

// readCertificates reads a PEM file of certificates, the value of path. Those that end soon it warns of.
func (c *Config) readCertificates(name, path string, now time.Time) (text []byte, warnings []string, err error) {
	if text, err = regularfile.Read(name); err != nil {
		return nil, nil, c.wrong(path, "cannot read it: %v", err)
	}
	list, err := certificates(text)
	if err != nil {
		return nil, nil, c.wrong(path, "%s: %v", name, err)
	}
	for _, certificate := range list {
		if end := certificate.NotAfter; end.Before(now.Add(expiresSoon)) {
			warnings = append(warnings, c.wrong(path, "%s: %s", name, endOf(end, now)).Error())
		}
	}
	return text, append(warnings, c.exposuresOf(path, name, false)...), nil
}

// endOf words the end of a certificate that is near.
func endOf(end, now time.Time) string {
	verb := "expires"
	if !now.Before(end) {
		verb = "has expired"
	}
	return fmt.Sprintf("a certificate %s at %s", verb, end.UTC().Format(time.RFC3339))
}

// certificates returns those of a PEM file, at least one.
func certificates(text []byte) ([]*x509.Certificate, error) {
	var list []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		list = append(list, certificate)
	}
	if bytes.Contains(text, []byte("-----BEGIN CERTIFICATE-----")) { // one that pem cannot decode
		return nil, errors.New("a certificate is not whole")
	}
	if len(list) == 0 {
		return nil, errors.New("no certificate in PEM")
	}
	return list, nil
}
