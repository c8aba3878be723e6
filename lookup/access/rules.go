package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Credential is a token or the name in a client certificate, with what a peer that has it may do.
type Credential struct {
	// Name is that of the credential in logs and replies, which never have the token. It is unique
	// among the credentials of its rules.
	Name string
	// Digest is the SHA-256 digest of the token. It is zero for a certificate.
	Digest [sha256.Size]byte
	// Certificate is a name that the client certificate has, empty for a token.
	Certificate string
	// Permissions are those of the peer. Those of the listener do not count.
	Permissions Permissions
	// Pools are the names of the pools that the peer may use, "" for the server's own; nil: every
	// pool. Its connections begin with the first.
	Pools []string
	// Expires is when the credential is no longer valid, zero for never.
	Expires time.Time
}

// IsTenant reports whether the credential is bound to pools. A nil one is not.
func (c *Credential) IsTenant() bool { return c != nil && c.Pools != nil }

// IsAdmin reports whether the credential, which is not nil, is an administrator's: it has every permission and is bound to
// no pool.
func (c *Credential) IsAdmin() bool { return c.Permissions&All == All && !c.IsTenant() }

// MayUse reports whether a peer with the credential, nil for none, may use a pool.
func (c *Credential) MayUse(pool string) bool {
	return !c.IsTenant() || slices.Contains(c.Pools, pool)
}

// Expired reports whether the credential is no longer valid at a time.
func (c *Credential) Expired(at time.Time) bool { return !c.Expires.IsZero() && !at.Before(c.Expires) }

// DigestOf returns the digest of a token.
func DigestOf(token []byte) [sha256.Size]byte { return sha256.Sum256(token) }

// MinToken is the length in bytes of the shortest token that NewRules should be given: one of
// 128 random bits has no less in any of the usual encodings. Rules cannot check it, as they have
// digests alone.
const MinToken = 16

// Rules say what the peers of a listener may do.
type Rules struct {
	// Anonymous are the permissions of peers without a credential.
	Anonymous Permissions

	credentials []Credential
	tokens      bool // a credential is a token
}

// errCredential begins the errors of NewRules.
var errCredential = errors.New("credential")

// NewRules returns rules, or an error for credentials without a name, of the same name or token,
// or that are neither or both of token and certificate.
func NewRules(anonymous Permissions, credentials []Credential) (*Rules, error) {
	r := &Rules{Anonymous: anonymous, credentials: slices.Clone(credentials)}
	names, tokens, certificates := map[string]bool{}, map[[sha256.Size]byte]bool{}, map[string]bool{}
	for i := range r.credentials {
		c := &r.credentials[i]
		isToken := c.Digest != [sha256.Size]byte{}
		switch {
		case c.Name == "":
			return nil, fmt.Errorf("%w %d has no name", errCredential, i)
		case names[c.Name]:
			return nil, fmt.Errorf("%w %q is there twice", errCredential, c.Name)
		case isToken == (c.Certificate != ""):
			return nil, fmt.Errorf("%w %q must be a token or the name in a certificate", errCredential, c.Name)
		case isToken && tokens[c.Digest], !isToken && certificates[c.Certificate]:
			return nil, fmt.Errorf("%w %q is the same as one before it", errCredential, c.Name)
		}
		names[c.Name] = true
		if isToken {
			r.tokens, tokens[c.Digest] = true, true
		} else {
			certificates[c.Certificate] = true
		}
	}
	return r, nil
}

// HasTokens reports whether a credential is a token.
func (r *Rules) HasTokens() bool { return r.tokens }

// Len returns the number of credentials.
func (r *Rules) Len() int { return len(r.credentials) }

// FindToken returns the credential of a token, nil if there is none. It does not check whether it
// has expired. Its time depends on the length of the token and the number of credentials alone:
// digests are compared whole, and all of them.
func (r *Rules) FindToken(token []byte) *Credential {
	digest := DigestOf(token)
	found := -1
	for i := range r.credentials {
		equal := subtle.ConstantTimeCompare(digest[:], r.credentials[i].Digest[:])
		found = subtle.ConstantTimeSelect(equal, i, found)
	}
	if found < 0 {
		return nil
	}
	return &r.credentials[found]
}

// FindCertificate returns the credential of the first of the names in a client certificate that
// has one, nil if none has.
func (r *Rules) FindCertificate(names []string) *Credential {
	for _, name := range names {
		for i := range r.credentials {
			if c := &r.credentials[i]; name != "" && c.Certificate == name {
				return c
			}
		}
	}
	return nil
}

// Renew returns the credential of these rules that is the same token or certificate as c, which
// is of other rules; nil if there is none.
func (r *Rules) Renew(c *Credential) *Credential {
	for i := range r.credentials {
		if n := &r.credentials[i]; n.Digest == c.Digest && n.Certificate == c.Certificate {
			return n
		}
	}
	return nil
}
