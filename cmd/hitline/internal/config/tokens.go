package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/netproto"
)

// tokensFile is what the file of Listener.Tokens holds.
type tokensFile struct {
	Tokens []tokenEntry `yaml:"tokens"`
}

// tokenEntry is a credential. It has one of token, sha256 and certificate.
type tokenEntry struct {
	Name        string   `yaml:"name"`        // in logs and replies
	Token       string   `yaml:"token"`       // 16 to 255 bytes
	SHA256      string   `yaml:"sha256"`      // of the token, 64 hexadecimal digits
	Certificate string   `yaml:"certificate"` // a name in a client certificate
	Allow       Allow    `yaml:"allow"`       // all, or a list
	Pools       []string `yaml:"pools"`       // nil: every pool; "": the server's own
	Expires     string   `yaml:"expires"`     // RFC 3339; "": never
}

// tokensReader reads a tokens file. No error has a token in it.
type tokensReader struct {
	name     string
	origins  origins
	now      time.Time
	knows    func(pool string) bool
	warnings []string
	names    map[string]int      // positions of the entries
	secrets  map[tokenSecret]int // likewise
}

// tokenSecret is what a peer proves: that it has a token, or a certificate.
type tokenSecret struct {
	digest      [sha256.Size]byte
	certificate string
}

// readTokens reads the text of a tokens file. knows reports whether there is a pool of a name. secret says that a token
// is in it, and not only digests and names. A credential that has expired, or of an unknown pool, is a warning.
func readTokens(name string, text []byte, now time.Time, knows func(pool string) bool) (list []access.Credential, secret bool, warnings []string, err error) {
	t := &tokensReader{name: name, origins: origins{}, now: now, knows: knows, names: map[string]int{}, secrets: map[tokenSecret]int{}}
	var file tokensFile
	r := reader{name: name, origins: t.origins, secret: true}
	if err := r.document(fieldsOf(&file), text, ""); err != nil {
		return nil, false, nil, err
	}
	if file.Tokens == nil { // not even an empty list: more likely a file that is not finished
		return nil, false, nil, &problem{at: origin{name: name}, path: "tokens", text: "is missing"}
	}
	list = make([]access.Credential, len(file.Tokens))
	for i := range file.Tokens {
		if list[i], err = t.credential(&file.Tokens[i], tokenPath(i)); err != nil {
			return nil, false, nil, err
		}
		if err := t.compare(&list[i], i); err != nil {
			return nil, false, nil, err
		}
		secret = secret || file.Tokens[i].Token != ""
	}
	return list, secret, t.warnings, nil
}

func tokenPath(i int) string { return fmt.Sprintf("tokens[%d]", i) }

func (t *tokensReader) wrong(path, format string, args ...any) error {
	return &problem{at: t.origins.find(path), path: path, text: fmt.Sprintf(format, args...)}
}

func (t *tokensReader) warn(path, format string, args ...any) {
	t.warnings = append(t.warnings, t.wrong(path, format, args...).Error())
}

// credential returns that of an entry.
func (t *tokensReader) credential(e *tokenEntry, path string) (access.Credential, error) {
	c := access.Credential{Name: e.Name, Certificate: e.Certificate, Permissions: e.Allow.permissions(), Pools: e.Pools}
	if e.Name == "" || strings.ContainsFunc(e.Name, unicode.IsControl) {
		return c, t.wrong(path+".name", "is missing, or has control characters")
	}
	var err error
	if c.Digest, err = t.digest(e, path); err != nil {
		return c, err
	}
	if i := e.Allow.unknown(); i >= 0 {
		return c, t.wrong(fmt.Sprintf("%s.allow[%d]", path, i), "%s", unknownRequest)
	}
	if e.Pools != nil && len(e.Pools) == 0 {
		return c, t.wrong(path+".pools", "names no pool; leave it out for every pool")
	}
	for i, pool := range e.Pools {
		if !t.knows(pool) {
			t.warn(fmt.Sprintf("%s.pools[%d]", path, i), "the server has no such pool")
		}
	}
	if c.Expires, err = t.expires(e.Expires, path+".expires"); err == nil && e.Allow == nil {
		// Without a default, a file that is cut off gives nobody everything.
		err = t.wrong(path, "has no allow; give all, or a list such as [lookup, ping]")
	}
	return c, err
}

// digest returns that of the entry's token, zero for a certificate.
func (t *tokensReader) digest(e *tokenEntry, path string) (digest [sha256.Size]byte, err error) {
	var given []string
	for _, name := range []string{"token", "sha256", "certificate"} {
		if _, written := t.origins[join(path, name)]; written {
			given = append(given, name)
		}
	}
	switch len(given) {
	case 0:
		return digest, t.wrong(path, "needs one of token, sha256 and certificate")
	case 1:
	default:
		return digest, t.wrong(path, "has %s; give one of them", strings.Join(given, " and "))
	}
	at := join(path, given[0])
	switch {
	case given[0] == "certificate" && e.Certificate == "":
		return digest, t.wrong(at, "is empty; give a name in the client's certificate")
	case given[0] == "certificate":
		return digest, nil
	case given[0] == "sha256":
		n, err := hex.Decode(digest[:], []byte(e.SHA256[:min(len(e.SHA256), 2*len(digest))]))
		if err != nil || n != len(digest) || len(e.SHA256) != 2*n || digest == [sha256.Size]byte{} {
			return digest, t.wrong(at, "is not the SHA-256 digest of a token: 64 hexadecimal digits")
		}
		return digest, nil
	case strings.ContainsFunc(e.Token, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }):
		return digest, t.wrong(at, "has white space or control characters")
	case len(e.Token) < access.MinToken || len(e.Token) > netproto.MaxToken:
		return digest, t.wrong(at, "has %d bytes, must have %d to %d", len(e.Token), access.MinToken, netproto.MaxToken)
	}
	return access.DigestOf([]byte(e.Token)), nil
}

// expires returns the time, zero for none.
func (t *tokensReader) expires(text, path string) (time.Time, error) {
	if _, written := t.origins[path]; !written {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.IsZero() {
		return at, t.wrong(path, "is not a time such as 2027-01-01T00:00:00Z")
	}
	if !t.now.Before(at) {
		t.warn(path, "has passed; the credential is not valid")
	}
	return at, nil
}

// compare refuses entry i if it has the name or the token of one before it.
func (t *tokensReader) compare(c *access.Credential, i int) error {
	secret := tokenSecret{c.Digest, c.Certificate}
	if j, twice := t.names[c.Name]; twice {
		return t.wrong(tokenPath(i)+".name", "is that of %s too", tokenPath(j))
	}
	if j, twice := t.secrets[secret]; twice {
		return t.wrong(tokenPath(i), "is the same credential as %s", tokenPath(j))
	}
	t.names[c.Name], t.secrets[secret] = i, i
	return nil
}
