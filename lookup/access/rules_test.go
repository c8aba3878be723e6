package access

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ofToken returns the credential of a token.
func ofToken(name, token string) Credential {
	return Credential{Name: name, Digest: DigestOf([]byte(token))}
}

func newRules(t *testing.T, credentials ...Credential) *Rules {
	t.Helper()
	rules, err := NewRules(Ping, credentials)
	require.NoError(t, err)
	return rules
}

func TestRulesRefused(t *testing.T) {
	good := ofToken("engines", "token")
	for name, c := range map[string]struct {
		second Credential
		want   string
	}{
		"no name":             {ofToken("", "other"), "1 has no name"},
		"same name":           {ofToken("engines", "other"), `"engines" is there twice`},
		"same name, other":    {Credential{Name: "engines", Certificate: "host"}, `"engines" is there twice`},
		"same token":          {ofToken("other", "token"), `"other" is the same as one before it`},
		"neither":             {Credential{Name: "other"}, `"other" must be a token or the name in a certificate`},
		"both":                {Credential{Name: "other", Digest: DigestOf([]byte("x")), Certificate: "host"}, `"other" must be a token`},
		"same certificate":    {Credential{Name: "other", Certificate: "first"}, `"other" is the same as one before it`},
		"no name nor anybody": {Credential{}, "1 has no name"},
	} {
		credentials := []Credential{good, c.second}
		if name == "same certificate" {
			credentials[0] = Credential{Name: "first", Certificate: "first"}
		}
		rules, err := NewRules(Ping, credentials)
		require.ErrorIs(t, err, errCredential, name)
		require.ErrorContains(t, err, c.want, name)
		require.Nil(t, rules, name)
	}
}

func TestFindToken(t *testing.T) {
	var credentials []Credential
	tokens := []string{"a", "b", strings.Repeat("c", 255), "\x00", "é"}
	for i, token := range tokens {
		credentials = append(credentials, ofToken(fmt.Sprint(i), token))
	}
	credentials = append(credentials, Credential{Name: "host", Certificate: "host"})
	rules := newRules(t, credentials...)
	credentials[0] = ofToken("changed", "changed")
	for i, token := range tokens {
		c := rules.FindToken([]byte(token))
		require.NotNil(t, c, token)
		require.Equal(t, fmt.Sprint(i), c.Name)
	}
	zero := [32]byte{}
	digest := DigestOf([]byte("a"))
	for _, wrong := range []string{"", "A", "aa", "c", strings.Repeat("c", 254), "host", "changed", string(zero[:]), string(digest[:])} {
		require.Nil(t, rules.FindToken([]byte(wrong)), wrong)
	}
	require.True(t, rules.HasTokens())
	require.False(t, newRules(t, Credential{Name: "host", Certificate: "host"}).HasTokens())
	require.False(t, newRules(t).HasTokens())
	require.Nil(t, newRules(t).FindToken([]byte("a")))
}

// TestFindTokenComparesAll shows that the search goes on behind the credential that it finds: of
// equal ones, which NewRules refuses, it returns the last. That it compares digests alone shows in
// that nothing else of a token is kept.
func TestFindTokenComparesAll(t *testing.T) {
	same := DigestOf([]byte("token"))
	rules := &Rules{credentials: []Credential{
		{Name: "first", Digest: same}, ofToken("between", "other"), {Name: "last", Digest: same}, ofToken("behind", "another"),
	}}
	require.Equal(t, "last", rules.FindToken([]byte("token")).Name)
}

func TestFindCertificate(t *testing.T) {
	rules := newRules(t, ofToken("token", "host"), Credential{Name: "a", Certificate: "a.example"}, Credential{Name: "b", Certificate: "b.example"})
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"a.example"}, "a"},
		{[]string{"b.example", "a.example"}, "b"}, // the certificate's order, not that of the rules
		{[]string{"", "other", "a.example"}, "a"},
		{[]string{"A.example", "a.example."}, ""},
		{[]string{"", "host", "token"}, ""}, // tokens have no name in a certificate
		{nil, ""},
	} {
		got := rules.FindCertificate(c.names)
		require.Equal(t, c.want != "", got != nil, "%q", c.names)
		if got != nil {
			require.Equal(t, c.want, got.Name)
		}
	}
}

func TestRenew(t *testing.T) {
	old := newRules(t, ofToken("kept", "1"), ofToken("renamed", "2"), ofToken("replaced", "3"), ofToken("gone", "4"),
		Credential{Name: "host", Certificate: "host"}, Credential{Name: "host gone", Certificate: "gone"})
	next := newRules(t, Credential{Name: "host", Certificate: "host", Permissions: Store}, ofToken("replaced", "new"),
		ofToken("another name", "2"), Credential{Name: "kept", Digest: DigestOf([]byte("1")), Permissions: Evict, Pools: []string{"llama"}})
	for name, want := range map[string]string{"kept": "kept", "renamed": "another name", "replaced": "", "gone": "", "host": "host", "host gone": ""} {
		var c *Credential
		for i := range old.credentials {
			if old.credentials[i].Name == name {
				c = next.Renew(&old.credentials[i])
			}
		}
		require.Equal(t, want != "", c != nil, name)
		if c != nil {
			require.Equal(t, want, c.Name)
		}
	}
	kept := next.Renew(&old.credentials[0])
	require.Equal(t, Evict, kept.Permissions)
	require.True(t, kept.IsTenant())
}

func TestExpired(t *testing.T) {
	at := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	c := &Credential{Expires: at}
	require.False(t, c.Expired(at.Add(-1)))
	require.True(t, c.Expired(at))
	require.True(t, c.Expired(at.Add(1)))
	require.True(t, c.Expired(at.In(time.FixedZone("", 3600))), "an instant, whatever the zone")
	require.False(t, (&Credential{}).Expired(at.AddDate(1000, 0, 0)))
}

func TestTenants(t *testing.T) {
	var anonymous *Credential
	for name, c := range map[string]struct {
		credential *Credential
		tenant     bool
		own, llama bool
	}{
		"anonymous":    {credential: anonymous, own: true, llama: true},
		"not bound":    {credential: &Credential{}, own: true, llama: true},
		"bound":        {credential: &Credential{Pools: []string{"llama"}}, tenant: true, llama: true},
		"bound to own": {credential: &Credential{Pools: []string{""}}, tenant: true, own: true},
		"to none":      {credential: &Credential{Pools: []string{}}, tenant: true},
	} {
		require.Equal(t, c.tenant, c.credential.IsTenant(), name)
		require.Equal(t, c.own, c.credential.MayUse(""), name)
		require.Equal(t, c.llama, c.credential.MayUse("llama"), name)
		require.Equal(t, !c.tenant, c.credential.MayUse("other"), name)
	}
}
