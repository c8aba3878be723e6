package server

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// neededBy returns the name of the permission that a request needs.
func neededBy(request string) string {
	switch request {
	case "load_mask", "store_mask", "lookup_mask":
		return "plan"
	case "lookup_from", "renew":
		return "lookup"
	case "store_prompt":
		return "store"
	case "reset_rank":
		return "reset"
	}
	return request
}

// accessRow is a peer: the listener that it connects to, the token and the certificate that it shows, and what it may
// do then.
type accessRow struct {
	listener    int
	token       string // of tokenOf; "" for none
	certificate string // a name in it; "" for none
	fails       string // why the token is refused
	may         access.Permissions
	pool        string // whose requests these are; "-": it has none
}

// The listeners of the access table.
const (
	forAll = iota // no credentials
	someAllowed
	withTokens
	withCertificates
)

// accessRows are the rows of the access table beside those of accessRowsOfEach.
var accessRows = []accessRow{
	{listener: forAll, may: access.All},
	{listener: forAll, token: "all", fails: "this listener has no tokens", may: access.All},
	{listener: someAllowed, may: access.Lookup | access.Ping},

	{listener: withTokens, may: access.Ping},
	{listener: withTokens, token: "all", may: access.All},
	{listener: withTokens, token: "later", may: access.All},
	{listener: withTokens, token: "expired", fails: "the token has expired", may: access.Ping},
	{listener: withTokens, token: "nobody", fails: "no such token", may: access.Ping},
	{listener: withTokens, token: "writer", may: access.Store | access.Evict}, // what the listener allows does not count
	{listener: withTokens, token: "tenant", may: access.All, pool: "second"},
	{listener: withTokens, token: "own", may: access.All},
	{listener: withTokens, token: "no pool", may: access.All, pool: "-"},

	{listener: withCertificates, certificate: "other.example.com", may: access.Ping},
	{listener: withCertificates, certificate: "engine.example.com", may: access.Lookup | access.Plan},
	{listener: withCertificates, certificate: "tenant.example.com", may: access.All, pool: "second"},
	{listener: withCertificates, certificate: "engine.example.com", token: "all", may: access.All}, // a token replaces it
	{listener: withCertificates, certificate: "engine.example.com", token: "nobody", fails: "no such token", may: access.Lookup | access.Plan},
	{listener: withCertificates, certificate: "tenant.example.com", token: "nobody", fails: "no such token", may: access.All, pool: "second"},
}

// accessRowsOfEach returns a row for each permission alone, and for none, by tokens with these names.
func accessRowsOfEach() (rows []accessRow) {
	for _, name := range append(access.All.Names(), "nothing") {
		only, _ := access.ParsePermissions([]string{name})
		rows = append(rows, accessRow{listener: withTokens, token: name, may: only})
	}
	return rows
}

// startAccess starts a server with the listeners of the access table, over memory, or over a store if there is one.
func startAccess(t *testing.T, store *lookuptest.KeyStore) *Server {
	t.Helper()
	until := func(c access.Credential, expires time.Time) access.Credential { c.Expires = expires; return c }
	all := tokenOf("all", access.All)
	tokens := []access.Credential{
		all, until(tokenOf("later", access.All), time.Now().Add(time.Hour)), until(tokenOf("expired", access.All), time.Now().Add(-time.Hour)),
		tokenOf("writer", access.Store|access.Evict), tokenOf("tenant", access.All, "second"), tokenOf("own", access.All, ""),
		tokenOf("no pool", access.All, "missing"),
	}
	for _, row := range accessRowsOfEach() {
		tokens = append(tokens, tokenOf(row.token, row.may))
	}
	mutual := settingsOf(t, access.Ping, all,
		access.Credential{Name: "engine", Certificate: "engine.example.com", Permissions: access.Lookup | access.Plan},
		access.Credential{Name: "by certificate", Certificate: "tenant.example.com", Permissions: access.All, Pools: []string{"second"}})
	mutual.TLS = tlsOf(authority.Leaf("localhost"), authority)

	cfg, second := blocks16, lookup.ServiceConfig{Pool: modelPool("second")}
	if store != nil {
		cfg.Backend, cfg.Remote = store, patient
	}
	service, err := lookup.NewService(cfg)
	require.NoError(t, err)
	if store != nil {
		second.Backend, second.Shared, second.Remote = store, service.Backend().Shared(), patient
	}
	other, err := lookup.NewService(second)
	require.NoError(t, err)
	dir := t.TempDir()
	server, err := New(service, Config{Loops: 2, Pools: []ServedPool{{Name: "second", Service: other}}, Listeners: []Listener{
		forAll:           {Address: "ipc://" + dir + "/all"},
		someAllowed:      {Address: "ipc://" + dir + "/some", Settings: settingsOf(t, access.Lookup|access.Ping)},
		withTokens:       {Address: "tcp://127.0.0.1:0", Settings: settingsOf(t, access.Ping, tokens...)},
		withCertificates: {Address: "tls://127.0.0.1:0", Settings: mutual},
	}})
	require.NoError(t, err)
	startTest(t, server)
	return server
}

// connect connects the peer of a row.
func (row accessRow) connect(t *testing.T, server *Server) *lookuptest.Peer {
	t.Helper()
	addr := server.Addrs()[row.listener]
	if row.certificate == "" {
		return lookuptest.DialPeer(t, addr)
	}
	_, host, err := api.SplitAddress(addr)
	require.NoError(t, err)
	conn := tls.Client(lookuptest.DialPeer(t, host).Conn, clientTLS(authority.Leaf(row.certificate)))
	require.NoError(t, conn.Handshake())
	return &lookuptest.Peer{Conn: conn}
}

// Each request of each peer: it is served if the peer has the permission that it needs, and otherwise refused and
// counted. Who may not say which pool it asks about cannot say who it is either.
func TestAccessTable(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		server := startAccess(t, store)
		refused, failed, named := map[string]int64{}, int64(0), []string{}
		for i, row := range append(accessRowsOfEach(), accessRows...) {
			p := row.connect(t, server)
			what := fmt.Sprintf("%+v", row)
			if row.token != "" {
				reply := p.Ask(t, authFrames(row.token)...)
				if row.fails == "" {
					require.Equal(t, []byte{netproto.StatusDone}, reply[0], what)
				} else {
					require.Equal(t, &api.Refusal{Refusal: api.RefusalNotAuthenticated, Request: "auth"}, refusalIn(reply), what)
					require.Contains(t, string(reply[1]), row.fails, what)
					failed++
				}
			}
			described := blocks16.Pool
			if row.pool == "second" {
				described = modelPool("second")
			}
			for _, frames := range requestsOf(described) {
				name := string(frames[0])
				reply := p.Ask(t, frames...)
				needed, err := access.ParsePermissions([]string{neededBy(name)})
				require.NoError(t, err)
				if row.may&needed == 0 {
					require.Equal(t, &api.Refusal{Refusal: api.RefusalNotAllowed, Request: name}, refusalIn(reply), "%s: %s %q", what, name, reply)
					require.Equal(t, fmt.Sprintf("not allowed: %s; this connection may: %s", name, cmp.Or(row.may.String(), "nothing")), string(reply[1]))
					refused[name]++
					continue
				}
				cannot := ""
				switch {
				case row.pool == "-" && name != "ping" && name != "stat":
					cannot = api.RefusalNoPool
				case store != nil && name == "reset_rank", name == "renew": // this store has no leases
					cannot = api.RefusalUnsupported
				}
				if cannot == "" {
					require.Nil(t, refusalIn(reply), "%s: %s %q", what, name, reply)
				} else {
					require.Equal(t, &api.Refusal{Refusal: cannot, Request: name}, refusalIn(reply), "%s: %s %q", what, name, reply)
				}
			}
			if row.may&access.Stat != 0 && row.pool != "-" {
				require.Equal(t, row.pool, poolOf(t, p).Pool, what)
			}
			process := fmt.Sprint("row ", i)
			if p.Ask(t, []byte("pool"), fmt.Appendf(nil, `{"name":%q,"client":{"process":%q}}`, row.pool, process)); row.may&access.Pool == 0 {
				refused["pool"]++
			} else if row.may&access.Lookup != 0 && row.pool != "-" {
				named = append(named, process)
			}
			if p.Ask(t, requestsOf(described)[0]...); row.may&access.Lookup == 0 {
				refused["lookup"]++
			}
			require.NoError(t, p.Close())
		}
		require.Equal(t, refused, server.Stat().NotAllowed)
		require.Len(t, refused, len(RequestNames()))
		require.Equal(t, failed, server.Stat().AuthFailures)
		tokensAfter(t, server)
		asked := []string{}
		for _, st := range server.PoolStats() {
			for _, a := range st.Askers {
				if a.Name != "unix" && a.Name != "127.0.0.1" { // by their hosts
					asked = append(asked, a.Name)
				}
			}
		}
		require.ElementsMatch(t, named, asked)
	})
}
