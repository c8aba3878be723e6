package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// expiresSoon is how long before its end a certificate is warned of.
const expiresSoon = 7 * 24 * time.Hour

// readTLS returns the configuration of a tls:// address.
func (c *Config) readTLS(t *TLS, path string, now time.Time) (*tls.Config, []string, error) {
	texts := map[string][]byte{}
	var warnings []string
	for _, file := range t.files() {
		if file.name == "" {
			continue
		}
		text, err := ReadRegular(file.name)
		if err != nil {
			return nil, nil, c.wrong(join(path, file.field), "cannot read it: %v", err)
		}
		texts[file.field] = text
		if file.field == "key" {
			continue
		}
		list, err := certificates(text)
		if err != nil {
			return nil, nil, c.wrong(join(path, file.field), "%s: %v", file.name, err)
		}
		for _, certificate := range list {
			if end := certificate.NotAfter; end.Before(now.Add(expiresSoon)) {
				warnings = append(warnings, c.wrong(join(path, file.field), "%s: %s", file.name, endOf(end, now)).Error())
			}
		}
	}
	pair, err := tls.X509KeyPair(texts["cert"], texts["key"])
	if err != nil { // of the key: the certificates have been read
		return nil, nil, c.wrong(path+".key", "%s: %v", t.Key, err)
	}
	tc := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
	if t.ClientCA != "" {
		tc.ClientCAs, tc.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		tc.ClientCAs.AppendCertsFromPEM(texts["client_ca"])
	}
	return tc, warnings, nil
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
