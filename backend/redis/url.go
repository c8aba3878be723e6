package redis

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hitline/hitline/internal/regularfile"
)

// endpoint is a parsed URL.
type endpoint struct {
	network        string // "tcp" or "unix"
	addrs          []string
	cluster        bool
	user, password string
	db             int
	tls            *tls.Config // nil for plaintext
}

// String returns the addresses, and nothing secret.
func (e *endpoint) String() string { return strings.Join(e.addrs, ",") }

// host returns the host of the first address.
func (e *endpoint) host() string {
	host, _, _ := net.SplitHostPort(e.addrs[0])
	return host
}

// scheme is what the scheme of a URL stands for.
type scheme struct{ unix, tls, cluster bool }

var schemes = map[string]scheme{
	"redis": {}, "rediss": {tls: true}, "redis-cluster": {cluster: true}, "rediss-cluster": {tls: true, cluster: true},
	"valkey": {}, "valkeys": {tls: true}, "valkey-cluster": {cluster: true}, "valkeys-cluster": {tls: true, cluster: true},
	"unix": {unix: true},
}

const defaultPort = "6379"

// parseURL parses a URL. Its errors never repeat a part of the URL: if the special
// characters of a password are not encoded, any part may contain it.
func parseURL(text string) (*endpoint, error) {
	const encode = "; is a special character of the password not percent-encoded?"
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Fragment != "" {
		return nil, errors.New("cannot be read as scheme://[user:password@]host[:port]" + encode)
	}
	kind, ok := schemes[u.Scheme]
	if !ok {
		return nil, errors.New("must begin with redis://, rediss:// (TLS), redis-cluster://, rediss-cluster:// or unix:// (or valkey for redis)")
	}
	e := &endpoint{network: "tcp", cluster: kind.cluster}
	if u.User != nil {
		e.user = u.User.Username()
		if e.password, _ = u.User.Password(); e.password == "" {
			return nil, errors.New("names a user and no password; a password alone is written redis://:PASSWORD@host")
		}
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("has an unreadable part after the ?" + encode)
	}
	params := []string{"addr", "db", "ca", "cert", "key", "server_name", "skip_verify"}
	for name, values := range query {
		if !slices.Contains(params, name) || len(values) > 1 && name != "addr" {
			return nil, fmt.Errorf("may have, after the ?, one each of %s%s", strings.Join(params, ", "), encode)
		}
	}
	db := query.Get("db")
	if kind.unix {
		if u.Host != "" || u.Path == "" {
			return nil, errors.New("needs the path of a socket: unix:///path or unix://user:password@/path")
		}
		e.network, e.addrs = "unix", []string{u.Path}
	} else {
		if path := strings.Trim(u.Path, "/"); path != "" {
			db = path
		}
		if u.Hostname() == "" {
			return nil, errors.New("names no host" + encode)
		}
		e.addrs = []string{withPort(u.Host)}
	}
	if db != "" {
		if e.db, err = strconv.Atoi(db); err != nil || e.db < 0 {
			return nil, errors.New("has a database that is not a number" + encode)
		}
	}
	for _, addr := range query["addr"] {
		if addr == "" || strings.ContainsAny(addr, "@/ ") {
			return nil, errors.New("has an addr that is not host:port")
		}
		e.addrs = append(e.addrs, withPort(addr))
	}
	return e, e.setTLS(kind.tls, query)
}

// withPort adds the default port if host has none.
func withPort(host string) string {
	name, port, err := net.SplitHostPort(host)
	switch {
	case err != nil:
		name = strings.Trim(host, "[]")
	case port != "":
		return host
	}
	return net.JoinHostPort(name, defaultPort)
}

// setTLS sets e.tls from the parameters of the URL. secure reports whether the scheme is one of TLS.
func (e *endpoint) setTLS(secure bool, query url.Values) error {
	if !secure {
		if query.Has("ca") || query.Has("cert") || query.Has("key") || query.Has("server_name") || query.Has("skip_verify") {
			return errors.New("says something about TLS, which only rediss:// and rediss-cluster:// use")
		}
		return nil
	}
	e.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if name := query.Get("server_name"); name != "" {
		e.tls.ServerName = name
	}
	if text := query.Get("skip_verify"); text != "" {
		skip, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("has a skip_verify that is neither true nor false")
		}
		e.tls.InsecureSkipVerify = skip
	}
	if file := query.Get("ca"); file != "" {
		pem, err := regularfile.Read(file)
		if err != nil {
			return fmt.Errorf("ca: %w", err)
		}
		e.tls.RootCAs = x509.NewCertPool()
		if !e.tls.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("ca: %s holds no certificate in PEM", file)
		}
	}
	if cert, key := query.Get("cert"), query.Get("key"); cert != "" || key != "" {
		pair, err := readPair(cert, key)
		if err != nil {
			return fmt.Errorf("cert and key: %w", err)
		}
		e.tls.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// readPair reads a certificate and its key.
func readPair(cert, key string) (tls.Certificate, error) {
	first, err := regularfile.Read(cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	second, err := regularfile.Read(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(first, second)
}
