// Package connectflags has the flags that commands with a client share: the address of the server,
// the token to send, and TLS. The flags' defaults come from environment variables.
package connectflags

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hitline/hitline/cmd/internal/address"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// The names of the flags.
const (
	tokenFile  = "token-file"
	ca         = "tls-ca"
	cert       = "tls-cert"
	key        = "tls-key"
	serverName = "tls-server-name"
)

// variables are those of the flags that have one.
var variables = map[string]string{
	tokenFile: api.TokenFileVariable,
	ca:        "HITLINE_TLS_CA", cert: "HITLINE_TLS_CERT", key: "HITLINE_TLS_KEY",
}

// Flags are the flags of one command. Add defines those of the token and TLS, AddAddress that of the
// address.
type Flags struct {
	HTTP   bool // the address is that of an HTTP listener
	Single bool // it must not be a list
	set    *pflag.FlagSet
}

// Add defines the flags of the token and of TLS.
func (f *Flags) Add(set *pflag.FlagSet) {
	f.set = set
	set.String(tokenFile, "", "`file` whose first line is the token to send (default $"+variables[tokenFile]+")")
	set.String(ca, "", "`file` of the CAs to trust with TLS (default $"+variables[ca]+", then the system's)")
	set.String(cert, "", "`file` of the client certificate (default $"+variables[cert]+")")
	set.String(key, "", "`file` of its key (default $"+variables[key]+")")
	set.String(serverName, "", "`name` in the server's certificate (default the host of the address)")
}

// value returns the value of a flag, and the flag or the variable that it is from.
func (f *Flags) value(name string) (value, source string) {
	if !f.set.Changed(name) && variables[name] != "" {
		return os.Getenv(variables[name]), variables[name]
	}
	flag := f.set.Lookup(name)
	return flag.Value.String(), "--" + name
}

// Given returns the name of one of the flags that was given, "" if none was.
func (f *Flags) Given() string {
	for _, name := range []string{tokenFile, ca, cert, key, serverName} {
		if f.set.Changed(name) {
			return name
		}
	}
	return ""
}

// check returns an error if the flags do not fit together or the address. It reads no file.
// Variables do not count for an address without TLS: they may be there for others.
func (f *Flags) check(address string) error {
	if !isTLS(address) {
		for _, name := range []string{ca, cert, key, serverName} {
			if f.set.Changed(name) {
				return fmt.Errorf("--%s is for a %s address, and this is %s", name, secureScheme(address), address)
			}
		}
		return nil
	}
	chain, chainSource := f.value(cert)
	secret, secretSource := f.value(key)
	switch {
	case chain != "" && secret == "":
		return fmt.Errorf("%s needs the key too: give --%s or %s", chainSource, key, variables[key])
	case chain == "" && secret != "":
		return fmt.Errorf("%s needs the certificate too: give --%s or %s", secretSource, cert, variables[cert])
	}
	return nil
}

// Connection is what the flags say of connections to one address. Nothing that is printed of it
// has the token.
type Connection struct {
	// Token returns the token to send, "" for none; nil is as none.
	Token func() string
	// TLS is the configuration for a tls:// or https:// address, nil for any other.
	TLS *tls.Config
	// Warning says that the token can be read on the network; empty if it cannot.
	Warning string
}

// Load reads the files for connections to an address. Errors name the flag or the variable.
func (f *Flags) Load(server string) (c Connection, err error) {
	token := ""
	if path, source := f.value(tokenFile); path != "" {
		if token, err = api.ReadTokenFile(path); err != nil {
			return c, fmt.Errorf("%s: %w", source, err)
		}
	}
	c.Token = func() string { return token }
	for _, entry := range api.SplitList(server) {
		if text := address.PlainTextWarning("token", entry); token != "" && text != "" {
			c.Warning = "warning: " + text
		}
	}
	if isTLS(server) {
		c.TLS, err = f.loadTLS()
	}
	return c, err
}

// Options are the options of a client for the connection. Those of the zero Connection are for no
// token, whatever the environment says.
func (c Connection) Options() []client.Option {
	token := ""
	if c.Token != nil {
		token = c.Token()
	}
	return []client.Option{client.WithToken(token), client.WithTLS(c.TLS)}
}

// loadTLS reads the files of TLS.
func (f *Flags) loadTLS() (*tls.Config, error) {
	name, _ := f.value(serverName)
	cfg := &tls.Config{ServerName: name, MinVersion: tls.VersionTLS13}
	if path, source := f.value(ca); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: no certificate in PEM in %s", source, path)
		}
	}
	path, source := f.value(cert)
	secret, _ := f.value(key)
	if path == "" {
		return cfg, nil
	}
	pair, err := tls.LoadX509KeyPair(path, secret)
	if err != nil {
		return nil, fmt.Errorf("%s %s and its key %s: %w", source, path, secret, pathless(err))
	}
	cfg.Certificates = []tls.Certificate{pair}
	return cfg, nil
}

// pathless returns the cause of the error of a file whose path is told already.
func pathless(err error) error {
	if of, ok := errors.AsType[*os.PathError](err); ok {
		return of.Err
	}
	return err
}

// isTLS reports whether an address, or one of a list, has TLS.
func isTLS(server string) bool {
	return slices.ContainsFunc(api.SplitList(server), func(entry string) bool {
		return strings.HasPrefix(entry, httpsScheme) || strings.HasPrefix(entry, "tls://")
	})
}

// secureScheme returns what an address begins with that is as this one, but with TLS.
func secureScheme(server string) string {
	if strings.HasPrefix(server, httpScheme) {
		return httpsScheme
	}
	return "tls://"
}
