package config

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/hitline/hitline/cmd/internal/address"
	"github.com/hitline/hitline/lookup/access"
)

// Listener is an entry of listen. One with an address alone may be written as that address.
type Listener struct {
	Address string `yaml:"address"`          // tcp://host:port, port 0 lets the system choose; tls://host:port; ipc:///path
	Allow   Allow  `yaml:"allow"`            // requests of peers without a credential; nil: see Permissions
	Tokens  string `yaml:"tokens,omitempty"` // path of the tokens file; "": no credentials
	TLS     *TLS   `yaml:"tls,omitempty"`    // of a tls:// address, nil for others
}

// TLS names the files of a tls:// address, all of PEM.
type TLS struct {
	Cert     string `yaml:"cert"`                // the server's certificate and those between it and the CA
	Key      string `yaml:"key"`                 // its private key
	ClientCA string `yaml:"client_ca,omitempty"` // CAs that a client's certificate must be of; "": clients need none
}

// Listeners returns entries of addresses alone.
func Listeners(addresses ...string) []Listener {
	list := make([]Listener, len(addresses))
	for i, text := range addresses {
		list[i].Address = text
	}
	return list
}

// setShort reads the address that stands for the whole.
func (l *Listener) setShort(s scalar) error {
	*l = Listener{}
	return s.set(reflect.ValueOf(&l.Address).Elem())
}

// Allow is the names of requests. Its text is a list, or all.
type Allow []string

var errAllow = errors.New("must be all, or a list such as [lookup, ping]")

// setShort reads all.
func (a *Allow) setShort(s scalar) error {
	switch {
	case s.null:
		return errNoValue
	case s.text != "all":
		return errAllow
	}
	*a = access.All.Names()
	return nil
}

// MarshalYAML returns all or the list.
func (a Allow) MarshalYAML() (any, error) {
	if a.permissions() == access.All {
		return "all", nil
	}
	return append([]string{}, a...), nil
}

// permissions returns the permissions of the names, which must be known.
func (a Allow) permissions() access.Permissions {
	p, _ := access.ParsePermissions(a)
	return p
}

// unknown returns the position of the first name that is none, or -1.
func (a Allow) unknown() int {
	for i, name := range a {
		if _, err := access.ParsePermissions([]string{name}); err != nil {
			return i
		}
	}
	return -1
}

// Permissions returns what peers without a credential may do: allow, or its default. With tokens
// that is ping, as a credential is to be had; with client certificates, or on loopback, everything;
// otherwise what changes nothing.
func (l *Listener) Permissions() access.Permissions {
	switch {
	case l.Allow != nil:
		return l.Allow.permissions()
	case l.Tokens != "":
		return access.Ping
	case l.TLS != nil && l.TLS.ClientCA != "", l.IsLocal():
		return access.All
	}
	return access.ReadOnly
}

// IsLocal reports whether only processes of this machine can connect, as address.Address has it.
func (l *Listener) IsLocal() bool {
	a, err := address.Parse(l.Address)
	return err == nil && a.IsLocal()
}

// isDefault reports whether the address says all: as on loopback.
func (l *Listener) isDefault() bool {
	return l.IsLocal() && l.Allow == nil && l.Tokens == "" && l.TLS == nil
}

// MarshalYAML returns the address, or the fields with the permissions that are in effect. Those
// of a list stay in its order, in which they have their origins.
func (l Listener) MarshalYAML() (any, error) {
	if l.isDefault() {
		return l.Address, nil
	}
	if l.Allow == nil {
		l.Allow = l.Permissions().Names()
	}
	type fields Listener // without this method
	return fields(l), nil
}

func listenPath(i int) string { return fmt.Sprintf("listen[%d]", i) }

// pathOf returns the path of a listener of c.
func (c *Config) pathOf(l *Listener) string {
	for i := range c.Listen {
		if l == &c.Listen[i] {
			return listenPath(i)
		}
	}
	return routerListenPath
}

// checkListener refuses fields of an entry that contradict each other. a is its address.
func (c *Config) checkListener(l *Listener, a address.Address, path string) error {
	if i := l.Allow.unknown(); i >= 0 {
		return c.wrong(fmt.Sprintf("%s.allow[%d]", path, i), "%q %s", l.Allow[i], unknownRequest)
	}
	if err := c.notEmpty(path+".tokens", l.Tokens); err != nil {
		return err
	}
	switch {
	case a.TLS && l.TLS == nil:
		return c.wrong(path, "%q needs tls: {cert: FILE, key: FILE} in the YAML file", l.Address)
	case !a.TLS && l.TLS != nil:
		return c.wrong(path+".tls", "%q is without TLS; write tls://host:port, or remove tls", l.Address)
	case l.TLS == nil:
		return nil
	}
	for _, file := range l.TLS.files() {
		if err := c.notEmpty(path+".tls."+file.field, file.name); err != nil {
			return err
		}
		if file.name == "" && file.field != "client_ca" {
			return c.wrong(path+".tls."+file.field, "is missing; TLS needs cert and key")
		}
	}
	return nil
}

// unknownRequest is the text for a name that is no permission. It does not quote the name: in a
// tokens file it could be a token.
var unknownRequest = "is no permission; known are " + access.All.String() + ", and all without a list"

// notEmpty refuses an empty text that was written.
func (c *Config) notEmpty(path, text string) error {
	if c.isSet(path) && text == "" {
		return c.wrong(path, "is empty; give the path of a file, or leave it out")
	}
	return nil
}

// namedFile is a file by the field that names it.
type namedFile struct{ field, name string }

func (t *TLS) files() []namedFile {
	return []namedFile{{"cert", t.Cert}, {"key", t.Key}, {"client_ca", t.ClientCA}}
}

// Files returns the paths of the files that the entry names.
func (l *Listener) Files() []string {
	var list []string
	for _, p := range Parts {
		list = append(list, l.PartFiles(p)...)
	}
	return list
}

// PartFiles returns the paths of the files of a part.
func (l *Listener) PartFiles(p Part) []string {
	switch {
	case p == rulesPart && l.Tokens != "":
		return []string{l.Tokens}
	case p == certificatePart && l.TLS != nil:
		return []string{l.TLS.Cert, l.TLS.Key}
	case p == authoritiesPart && l.TLS != nil && l.TLS.ClientCA != "":
		return []string{l.TLS.ClientCA}
	}
	return nil
}
