package httpapi

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/bits"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

func TestByRules(t *testing.T) {
	tenant := []string{"", "team"}
	rules, err := access.NewRules(access.ReadOnly, []access.Credential{
		{Name: "admin", Digest: access.DigestOf([]byte("all")), Permissions: access.All},
		{Name: "old", Digest: access.DigestOf([]byte("old")), Permissions: access.All, Expires: time.Now().Add(-time.Second)},
		{Name: "tenant", Digest: access.DigestOf([]byte("tenant")), Permissions: access.All, Pools: tenant},
		{Name: "router", Certificate: "spiffe://router", Permissions: access.Holders},
	})
	require.NoError(t, err)
	authorize := ByRules(func() *access.Rules { return rules })
	spiffe, err := url.Parse("spiffe://router")
	require.NoError(t, err)
	certificate := &x509.Certificate{Subject: pkix.Name{CommonName: "x"}, URIs: []*url.URL{spiffe}}
	verified := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}, VerifiedChains: [][]*x509.Certificate{{certificate}}}
	for _, test := range []struct {
		header string
		tls    *tls.ConnectionState
		want   Access
		err    error
	}{
		{"", nil, Access{Permissions: access.ReadOnly}, nil},
		{"Bearer all", nil, Access{Name: "admin", Permissions: access.All, Admin: true}, nil},
		{"bearer all", verified, Access{Name: "admin", Permissions: access.All, Admin: true}, nil},
		{"Bearer tenant", nil, Access{Name: "tenant", Permissions: access.All, Pools: tenant}, nil},
		{"Bearer old", nil, Access{}, errExpired},
		{"Bearer nothing", nil, Access{}, errToken},
		{"Bearer", nil, Access{}, errNotBearer},
		{"Basic all", nil, Access{}, errNotBearer},
		{"", verified, Access{Name: "router", Permissions: access.Holders}, nil},
		{"", &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}, Access{Permissions: access.ReadOnly}, nil},
		{"", &tls.ConnectionState{}, Access{Permissions: access.ReadOnly}, nil},
	} {
		r := httptest.NewRequest(http.MethodGet, "/services", nil)
		r.TLS = test.tls
		if test.header != "" {
			r.Header.Set("Authorization", test.header)
		}
		got, err := authorize(r)
		require.Equal(t, test.want, got, test.header)
		require.ErrorIs(t, err, test.err)
	}
	ask := func(token string) error {
		r := httptest.NewRequest(http.MethodGet, "/services", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		_, err := authorize(r)
		return err
	}
	rotated, err := access.NewRules(access.Ping, []access.Credential{{Name: "admin", Digest: access.DigestOf([]byte("next")), Permissions: access.All}})
	require.NoError(t, err)
	require.ErrorIs(t, ask("next"), errToken)
	rules = rotated
	require.NoError(t, ask("next"))
	require.ErrorIs(t, ask("all"), errToken)

	anybody, err := access.NewRules(access.All, nil)
	require.NoError(t, err)
	authorize, r := ByRules(func() *access.Rules { return anybody }), httptest.NewRequest(http.MethodGet, "/", nil)
	got, err := authorize(r)
	require.NoError(t, err)
	require.True(t, got.Admin, "on loopback without credentials")
	r.Header.Set("Authorization", "Bearer all")
	_, err = authorize(r)
	require.ErrorIs(t, err, errNoTokens)
}

// somePermissions returns none, each alone, pairs of them, all but one, and all.
func somePermissions() (list []access.Permissions) {
	for p := access.Permissions(0); p <= access.All; p++ {
		if n := bits.OnesCount16(uint16(p)); n <= 2 || n >= bits.OnesCount16(uint16(access.All))-1 {
			list = append(list, p)
		}
	}
	return list
}

// Each path needs its permissions, and no others.
func TestPermissions(t *testing.T) {
	s := newService(t, router.Config{Models: []router.Model{{ModelKey: llama, Pool: newPool(t, 1)}}})
	var sender Access
	h := New(Config{Service: s, Authorize: func(*http.Request) (Access, error) { return sender, nil }})
	query := `{"seq_hashes": [1]}`
	loadable := `{"seq_hashes": ` + hexOf(chain(1)) + `, "loadable": true}`
	for _, test := range []struct {
		method, path, body string
		needs              access.Permissions
		admin              bool
	}{
		{"POST", "/query_by_hash", query, access.Holders, false},
		{"POST", "/query_by_hash", loadable, access.Holders | access.Lookup, false},
		{"POST", "/predict", `{"instance_id": "a", "seq_hashes": [1]}`, access.Store, false},
		{"POST", "/register", `{}`, 0, true},
		{"POST", "/unregister", `{}`, 0, true},
		{"GET", "/services", "", access.Holders, false},
		{"GET", "/health", "", 0, false},
		{"GET", "/ready", "", 0, false},
		{"GET", "/openapi.yaml", "", 0, false},
		{"GET", "/dump", "", 0, true},
	} {
		for _, p := range somePermissions() {
			for _, admin := range []bool{false, true} {
				sender = Access{Name: "x", Permissions: p, Admin: admin}
				status, reply := do(t, h, test.method, test.path, test.body)
				allowed := p&test.needs == test.needs && (admin || !test.admin)
				require.Equal(t, allowed, status != http.StatusForbidden, "%s with %v, %v: %s", test.path, p, admin, reply)
				if admin && p == access.All {
					require.NotEqual(t, http.StatusForbidden, status)
				}
			}
		}
		sender = Access{}
		status, _ := do(t, h, test.method, test.path, test.body)
		require.Equal(t, test.needs != 0 || test.admin, status == http.StatusUnauthorized, "%s: a token may help", test.path)
	}
}

// Where engines publish, and what answered there, only an administrator sees.
func TestServicesHideEndpoints(t *testing.T) {
	s := newService(t, router.Config{Models: []router.Model{{ModelKey: router.ModelKey{Name: "m"}, Fleet: fleet.Config{BlockSize: 16}}}})
	src := router.Source{Model: "m", Engine: "i", Endpoint: deadEndpoint(t)}
	require.NoError(t, s.Add(src))
	lookuptest.Eventually(t, "the connection fails", func() bool { return s.Status()[0].LastError != "" })
	admin := false
	h := New(Config{Service: s, Authorize: func(*http.Request) (Access, error) {
		return Access{Name: "x", Permissions: access.All, Admin: admin}, nil
	}})
	for _, admin = range []bool{false, true} {
		_, services := do(t, h, "GET", "/services", "")
		require.Contains(t, services, `"instance_id":"i"`)
		require.Equal(t, admin, strings.Contains(services, src.Endpoint), services)
		require.Equal(t, admin, strings.Contains(services, "last_error\":"), services)
	}
}

// For a sender that is bound to pools there are only the models of these pools.
func TestTenants(t *testing.T) {
	named := func(name string) router.ModelKey { return router.ModelKey{Name: name} }
	s := newService(t, router.Config{
		Models: []router.Model{
			{ModelKey: named("own"), Pool: newPool(t, 1)}, {ModelKey: named("team"), Pool: newPool(t, 1), PoolName: "team"},
			{ModelKey: named("none"), Fleet: fleet.Config{BlockSize: 16}}, {ModelKey: named("blank")},
		},
		Allow: []string{"tcp://127.0.0.1:*"},
	})
	for _, model := range []string{"own", "team", "none"} {
		require.NoError(t, s.Add(router.Source{Model: model, Engine: "i-" + model, Endpoint: deadEndpoint(t)}))
	}
	var pools []string
	h := New(Config{Service: s, Authorize: func(*http.Request) (Access, error) {
		return Access{Name: "tenant", Permissions: access.All, Pools: pools}, nil
	}})
	for _, test := range []struct {
		pools []string
		want  string // models
	}{{nil, "own team none blank"}, {[]string{}, ""}, {[]string{""}, "own"}, {[]string{"team"}, "team"}, {[]string{"", "team"}, "own team"}} {
		pools = test.pools
		_, services := do(t, h, "GET", "/services", "")
		for _, model := range []string{"own", "team", "none", "blank"} {
			visible := strings.Contains(" "+test.want+" ", " "+model+" ")
			for path, body := range map[string]string{
				"/query_by_hash": `{"model": "` + model + `", "seq_hashes": [1]}`, "/predict": `{"model": "` + model + `", "seq_hashes": [1], "instance_id": "p"}`,
			} {
				status, reply := do(t, h, "POST", path, body)
				require.Equal(t, visible, status != http.StatusNotFound, "%s of %s: %s", path, model, reply)
			}
			require.Equal(t, visible, strings.Contains(services, `"model":"`+model+`"`), services)
			require.Equal(t, visible && model != "blank", strings.Contains(services, "i-"+model), services)
		}
		hidden := `{"model": "none", "seq_hashes": [1]}`
		unknown := `{"model": "qwen", "seq_hashes": [1]}`
		if test.pools != nil {
			_, a := do(t, h, "POST", "/query_by_hash", hidden)
			_, b := do(t, h, "POST", "/query_by_hash", unknown)
			require.Equal(t, a, b, "a model of others is as one that there is not")
		}
	}
}
