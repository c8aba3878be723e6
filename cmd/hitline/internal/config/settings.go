package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/server"
)

const (
	// maxFile bounds the bytes of a tokens file or a PEM file: 10,000 tokens take less.
	maxFile = 4 << 20
	// expiresSoon is how long before its end a certificate is warned of.
	expiresSoon = 7 * 24 * time.Hour
)

// ReadSettings reads the files of listen[i] and returns its settings for the server, and warnings,
// each of one line. now is the time at which credentials and certificates should be valid. An
// error says which field or line of which file is wrong. Neither has a token in it.
func (c *Config) ReadSettings(i int, now time.Time) (server.Settings, []string, error) {
	l, path := &c.Listen[i], listenPath(i)
	s := server.Settings{}
	var credentials []access.Credential
	var warnings []string
	if l.Tokens != "" {
		text, err := ReadRegular(l.Tokens)
		if err != nil {
			return s, nil, c.wrong(path+".tokens", "%v", err)
		}
		if credentials, warnings, err = readTokens(l.Tokens, text, now, c.knowsPool); err != nil {
			return s, nil, err
		}
	}
	if !l.isDefault() {
		var err error
		if s.Rules, err = access.NewRules(l.Permissions(), credentials); err != nil {
			return s, nil, c.wrong(path, "%v", err)
		}
	}
	warnings = append(c.listenWarnings(path, l, credentials, s.Rules), warnings...)
	if l.TLS == nil {
		return s, warnings, nil
	}
	var ends []string
	var err error
	s.TLS, ends, err = c.readTLS(l.TLS, path+".tls", now)
	return s, append(warnings, ends...), err
}

// listenWarnings returns what may not be meant in an entry.
func (c *Config) listenWarnings(path string, l *Listener, credentials []access.Credential, rules *access.Rules) []string {
	var warnings []string
	warn := func(path, format string, args ...any) {
		warnings = append(warnings, c.wrong(path, format, args...).Error())
	}
	takesCertificates := l.TLS != nil && l.TLS.ClientCA != ""
	switch {
	case l.Allow == nil && l.Tokens == "" && !takesCertificates && !l.IsLocal():
		warn(path, "%q is not on loopback, and has no allow, tokens or client_ca: its peers may only %v; the plug-in for vLLM needs pool too", l.Address, l.Permissions())
	case len(credentials) > 0 && rules.HasTokens() && l.TLS == nil && !l.IsLocal():
		warn(path+".tokens", "tokens for %q cross the network in clear text; use tls://", l.Address)
	case len(credentials) > 0 && !rules.HasTokens() && !takesCertificates:
		warn(path+".tokens", "%s has certificates alone, and there is no client_ca", l.Tokens)
	}
	return warnings
}

// knowsPool reports whether the server may have a pool of this name, "" for its own.
func (c *Config) knowsPool(name string) bool {
	_, ok := c.Pools[name]
	return ok || c.Accepts() || name == "" && c.ServesPool()
}

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
			return nil, nil, c.wrong(join(path, file.field), "%v", err)
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

// ReadRegular returns the bytes of a regular file of at most maxFile bytes. It follows links. It
// refuses anything else, as a pipe could make the reader wait for ever.
func ReadRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read it: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s has %d bytes, more than %d", path, info.Size(), maxFile)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read it: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read it: %w", err)
	case len(text) > maxFile: // it has grown meanwhile
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return text, nil
}
