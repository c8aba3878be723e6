package config

import (
	"time"

	"github.com/hitline/hitline/internal/regularfile"

	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/server"
)

// ReadSettings reads the files of a listener of c, one of Listen or Router.Listen, and returns its settings for the server,
// and warnings, each of one line. now is the time at which credentials and certificates should be valid. An error says
// which field or line of which file is wrong. Neither has a token in it. Those of Router.Listen always have Rules.
func (c *Config) ReadSettings(l *Listener, now time.Time) (s server.Settings, warnings []string, err error) {
	for _, p := range Parts {
		update, more, err := c.ReadPart(l, p, now)
		if err != nil {
			return s, nil, err
		}
		update(&s)
		warnings = append(warnings, more...)
	}
	return s, warnings, nil
}

// Part is what some files of a listener say together. A file that is wrong leaves the other parts as they are.
type Part int

const (
	rulesPart       Part = iota // of the tokens file
	certificatePart             // and its key
	authoritiesPart             // of clients
)

// Parts are all of them.
var Parts = []Part{rulesPart, certificatePart, authoritiesPart}

// Update changes one part of settings, and replaces what it points to.
type Update func(s *server.Settings)

// ReadPart reads the files of a part of a listener, as ReadSettings does. Without such files the update changes nothing, or
// sets what is so without them.
func (c *Config) ReadPart(l *Listener, p Part, now time.Time) (Update, []string, error) {
	path := c.pathOf(l)
	switch {
	case p == rulesPart:
		return c.readRules(l, path, now)
	case p == certificatePart && l.TLS != nil:
		return c.readPair(l.TLS, path+".tls", now)
	case p == authoritiesPart && l.TLS != nil && l.TLS.ClientCA != "":
		return c.readAuthorities(l.TLS, path+".tls", now)
	}
	return func(*server.Settings) {}, nil, nil
}

// readRules reads the tokens file of the entry at path, if it has one.
func (c *Config) readRules(l *Listener, path string, now time.Time) (Update, []string, error) {
	var credentials []access.Credential
	var warnings []string
	var rules *access.Rules
	if l.Tokens != "" {
		text, err := regularfile.Read(l.Tokens)
		if err != nil {
			return nil, nil, c.wrong(path+".tokens", "cannot read it: %v", err)
		}
		var secret bool
		if credentials, secret, warnings, err = readTokens(l.Tokens, text, now, c.knowsPool); err != nil {
			return nil, nil, err
		}
		warnings = append(warnings, c.exposuresOf(path+".tokens", l.Tokens, secret)...)
	}
	if !l.isDefault() || path == routerListenPath {
		var err error
		if rules, err = access.NewRules(l.Permissions(), credentials); err != nil {
			return nil, nil, c.wrong(path, "%v", err)
		}
	}
	warnings = append(c.listenWarnings(path, l, credentials, rules), warnings...)
	return func(s *server.Settings) { s.Rules = rules }, warnings, nil
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
