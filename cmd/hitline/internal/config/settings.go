package config

import (
	"time"

	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/server"
)

// ReadSettings reads the files of listen[i] and returns its settings for the server, and warnings,
// each of one line. now is the time at which credentials and certificates should be valid. An
// error says which field or line of which file is wrong. Neither has a token in it.
func (c *Config) ReadSettings(i int, now time.Time) (server.Settings, []string, error) {
	return c.readSettings(&c.Listen[i], listenPath(i), now)
}

// ReadRouterSettings is ReadSettings for router.listen, which must be configured. Its settings always have Rules.
func (c *Config) ReadRouterSettings(now time.Time) (server.Settings, []string, error) {
	s, warnings, err := c.readSettings(c.Router.Listen, routerListenPath, now)
	if err == nil && s.Rules == nil {
		s.Rules, err = access.NewRules(c.Router.Listen.Permissions(), nil)
	}
	return s, warnings, err
}

// readSettings reads the files of the entry at path.
func (c *Config) readSettings(l *Listener, path string, now time.Time) (server.Settings, []string, error) {
	s := server.Settings{}
	var credentials []access.Credential
	var warnings []string
	if l.Tokens != "" {
		text, err := ReadRegular(l.Tokens)
		if err != nil {
			return s, nil, c.wrong(path+".tokens", "cannot read it: %v", err)
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
	hint := "; the plug-in for vLLM needs pool too"
	if path == routerListenPath {
		hint = ""
	}
	takesCertificates := l.TLS != nil && l.TLS.ClientCA != ""
	switch {
	case l.Allow == nil && l.Tokens == "" && !takesCertificates && !l.IsLocal():
		warn(path, "%q is not on loopback, and has no allow, tokens or client_ca: its peers may only %v%s", l.Address, l.Permissions(), hint)
	case len(credentials) > 0 && rules.HasTokens() && l.TLS == nil && !l.IsLocal():
		warn(path+".tokens", "tokens come to %q in plain text, for all on the way to read; use tls://", l.Address)
	case len(credentials) > 0 && !rules.HasTokens() && !takesCertificates:
		warn(path+".tokens", "%s has certificates alone, and there is no client_ca", l.Tokens)
	}
	if path == routerListenPath && l.Permissions() == access.All && !takesCertificates && !l.IsLocal() && len(c.HTTPHosts) == 0 {
		warn(path, "%q is not on loopback, and every peer may register sources and read dumps, also a page in a browser by DNS rebinding; "+
			"set tokens or client_ca, or the names that clients use in http_hosts", l.Address)
	}
	return warnings
}

// knowsPool reports whether the server may have a pool of this name, "" for its own.
func (c *Config) knowsPool(name string) bool {
	_, ok := c.Pools[name]
	return ok || c.Accepts() || name == "" && c.ServesPool()
}
