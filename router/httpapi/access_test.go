package httpapi

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/bits"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

// What counts is the rules at the time of a request: the token, else the certificate that is verified.
func TestByRules(t *testing.T) {
	tenant := []string{"", "team"}
	newRules := func(anonymous access.Permissions, credentials ...access.Credential) *access.Rules {
		rules, err := access.NewRules(anonymous, credentials)
		require.NoError(t, err)
		return rules
	}
	admin := access.Credential{Name: "admin", Digest: access.DigestOf([]byte("all")), Permissions: access.All}
	rules := newRules(access.ReadOnly, admin,
		access.Credential{Name: "old", Digest: access.DigestOf([]byte("old")), Permissions: access.All, Expires: time.Now().Add(-time.Second)},
		access.Credential{Name: "tenant", Digest: access.DigestOf([]byte("tenant")), Permissions: access.All, Pools: tenant},
		access.Credential{Name: "router", Certificate: "spiffe://router", Permissions: access.Holders})
	rotated := newRules(access.Ping, access.Credential{Name: "admin", Digest: access.DigestOf([]byte("next")), Permissions: access.All})
	open := newRules(access.All)
	ca := certtest.NewCA("ca")
	certificate := ca.Leaf("spiffe://router", "CN=x").Leaf
	verified := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}, VerifiedChains: [][]*x509.Certificate{{certificate}}}
	unverified := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}
	everything := Access{Name: "admin", Permissions: access.All, Admin: true}
	var now *access.Rules
	var authorities *x509.CertPool
	authorize := ByRules(func() (*access.Rules, *x509.CertPool) { return now, authorities })
	for _, test := range []struct {
		rules  *access.Rules
		header string
		tls    *tls.ConnectionState
		want   Access
		err    error
	}{
		{rules, "", nil, Access{Permissions: access.ReadOnly}, nil},
		{rules, "Bearer all", nil, everything, nil},
		{rules, "bearer all", verified, everything, nil},
		{rules, "Bearer tenant", nil, Access{Name: "tenant", Permissions: access.All, Pools: tenant}, nil},
		{rules, "Bearer old", nil, Access{}, errExpired},
		{rules, "Bearer nothing", verified, Access{}, errToken},
		{rules, "Bearer", nil, Access{}, errNotBearer},
		{rules, "Basic all", nil, Access{}, errNotBearer},
		{rules, "", verified, Access{Name: "router", Permissions: access.Holders}, nil},
		{rules, "", unverified, Access{Permissions: access.ReadOnly}, nil},
		{rotated, "Bearer all", nil, Access{}, errToken},
		{rotated, "Bearer next", nil, everything, nil},
		{open, "", nil, Access{Permissions: access.All, Admin: true}, nil},
		{open, "Bearer all", nil, Access{}, errNoTokens},
	} {
		if now, authorities = test.rules, nil; test.tls == verified {
			authorities = ca.Pool()
		}
		r := httptest.NewRequest(http.MethodGet, "/services", nil)
		r.TLS = test.tls
		if test.header != "" {
			r.Header.Set("Authorization", test.header)
		}
		got, err := authorize(r)
		require.Equal(t, test.want, got, test.header)
		require.ErrorIs(t, err, test.err)
	}
}

// Each path needs its permissions, and no others.
func TestPermissions(t *testing.T) {
	s := newService(t, router.Config{Models: []router.Model{{ModelKey: llama, Pool: newPool(t, 1)}}})
	var sender Access
	h := New(Config{Service: s, Authorize: func(*http.Request) (Access, error) { return sender, nil }})
	for _, test := range []struct {
		method, path, body string
		needs              access.Permissions
		admin              bool
	}{
		{"POST", "/query_by_hash", `{"seq_hashes": [1]}`, access.Holders, false},
		{"POST", "/query", `{"seq_hashes": ` + hexOf(chain(1)) + `, "loadable": true}`, access.Holders | access.Lookup, false},
		{"POST", "/predict", `{"instance_id": "a", "seq_hashes": [1]}`, access.Store, false},
		{"POST", "/register", `{}`, 0, true},
		{"POST", "/unregister", `{}`, 0, true},
		{"GET", "/services", "", access.Holders, false},
		{"GET", "/health", "", 0, false},
		{"GET", "/ready", "", 0, false},
		{"GET", "/openapi.yaml", "", 0, false},
		{"GET", "/dump", "", 0, true},
	} {
		for p := access.Permissions(0); p <= access.All; p++ {
			if n := bits.OnesCount16(uint16(p)); n > 2 && n < bits.OnesCount16(uint16(access.All))-1 {
				continue // none, each alone, pairs of them, all but one, and all
			}
			for _, admin := range []bool{false, true} {
				sender = Access{Name: "x", Permissions: p, Admin: admin}
				status, reply := do(t, h, test.method, test.path, test.body)
				allowed := p&test.needs == test.needs && (admin || !test.admin)
				require.Equal(t, allowed, status != http.StatusForbidden, "%s with %v, %v: %s", test.path, p, admin, reply)
			}
		}
		sender = Access{}
		status, _ := do(t, h, test.method, test.path, test.body)
		require.Equal(t, test.needs != 0 || test.admin, status == http.StatusUnauthorized, "%s: a token may help", test.path)
	}
}

// For a sender that is bound to pools there are only the models of these pools. Where engines publish, and what answered
// there, only an administrator sees.
func TestTenants(t *testing.T) {
	named := func(name string) router.ModelKey { return router.ModelKey{Name: name} }
	models := []string{"own", "team", "none"}
	s := newService(t, router.Config{Models: []router.Model{
		{ModelKey: named("own"), Pool: newPool(t, 1)}, {ModelKey: named("team"), Pool: newPool(t, 1), PoolName: "team"},
		{ModelKey: named("none"), Fleet: fleet.Config{BlockSize: 16}},
	}})
	for i, model := range models { // without names: each has its endpoint as its name
		require.NoError(t, s.Add(router.Source{Model: model, Engine: "i-" + model, Endpoint: fmt.Sprint("tcp://127.0.0.1:", i+1)}))
	}
	lookuptest.Eventually(t, "the connections fail", func() bool {
		return !slices.ContainsFunc(s.Status(), func(st router.SourceStatus) bool { return st.LastError == "" })
	})
	sender := Access{Name: "credential", Permissions: access.All}
	h := New(Config{Service: s, Authorize: func(*http.Request) (Access, error) { return sender, nil }})
	for _, test := range []struct {
		pools   []string
		visible []string
	}{{nil, models}, {[]string{}, nil}, {[]string{""}, models[:1]}, {[]string{"team"}, models[1:2]}, {[]string{"", "team"}, models[:2]}} {
		sender.Pools, sender.Admin = test.pools, test.pools == nil
		_, services := do(t, h, "GET", "/services", "")
		for _, secret := range []string{"tcp://", `"last_error":`} {
			require.Equal(t, sender.Admin, strings.Contains(services, secret), services)
		}
		status, reply := do(t, h, "POST", "/query", `{"seq_hashes": [1]}`)
		require.Equal(t, len(test.visible) == 1, status == http.StatusOK, "the only one that the sender may ask about")
		require.Equal(t, len(test.visible) > 1, strings.Contains(reply, "has several; name a model"), reply)
		for _, model := range models {
			visible := slices.Contains(test.visible, model)
			for _, path := range []string{"/query_by_hash", "/predict"} {
				status, reply := do(t, h, "POST", path, `{"model": "`+model+`", "seq_hashes": [1], "instance_id": "p"}`)
				require.Equal(t, visible, status != http.StatusNotFound, "%s of %s: %s", path, model, reply)
				if !visible {
					_, unknown := do(t, h, "POST", path, `{"model": "qwen", "seq_hashes": [1], "instance_id": "p"}`)
					require.Equal(t, strings.Replace(unknown, "qwen", model, 1), reply, "a model of others is as one that there is not")
					require.NotContains(t, reply, sender.Name)
				}
			}
			require.Equal(t, visible, strings.Contains(services, `"model":"`+model+`"`), services)
			require.Equal(t, visible, strings.Contains(services, `"instance_id":"i-`+model), services)
		}
	}
}
