package server

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server/internal/listen"
	"github.com/hitline/hitline/netproto"
)

// tokenOf returns the credential of the token that is "token of " and its name.
func tokenOf(name string, permissions access.Permissions, pools ...string) access.Credential {
	return access.Credential{Name: name, Digest: access.DigestOf([]byte("token of " + name)), Permissions: permissions, Pools: pools}
}

// settingsOf returns settings with these credentials.
func settingsOf(t testing.TB, anonymous access.Permissions, credentials ...access.Credential) Settings {
	t.Helper()
	rules, err := access.NewRules(anonymous, credentials)
	require.NoError(t, err)
	return Settings{Rules: rules}
}

// startWith starts a server over memory, or over a store if there is one.
func startWith(t testing.TB, store *lookuptest.KeyStore, settings Settings) *Server {
	t.Helper()
	cfg := blocks16
	if store != nil {
		cfg.Backend, cfg.Remote = store, patient
	}
	service, err := lookup.NewService(cfg)
	require.NoError(t, err)
	server, err := New(service, Config{Listeners: []Listener{{Address: "tcp://127.0.0.1:0", Settings: settings}}, Loops: 2})
	require.NoError(t, err)
	startTest(t, server)
	return server
}

// overBoth runs a test over the memory index and over a store.
func overBoth(t *testing.T, test func(t *testing.T, store *lookuptest.KeyStore)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { test(t, nil) })
	t.Run("remote", func(t *testing.T) { test(t, &lookuptest.KeyStore{}) })
}

// authFrames are those of an auth request with the token of tokenOf.
func authFrames(name string) [][]byte { return [][]byte{[]byte("auth"), []byte("token of " + name)} }

// auth gives a connection a credential of tokenOf.
func auth(t testing.TB, p *lookuptest.Peer, name string) {
	t.Helper()
	frames := p.Ask(t, authFrames(name)...)
	require.Equal(t, []byte{netproto.StatusDone}, frames[0], "%s", frames)
}

// refusalIn returns what the last frame of a refusal says, nil if the reply is no such refusal.
func refusalIn(frames [][]byte) (r *api.Refusal) {
	if len(frames) != 3 || string(frames[0]) != "\x00" || json.Unmarshal(frames[2], &r) != nil {
		return nil
	}
	return r
}

// requestsOf returns a request of each kind that needs a permission, pool last.
func requestsOf(pool coordinator.Pool) [][][]byte {
	blob, tokens, hashLen := lookuptest.Chain("r", 4, 32), []byte{0, 0, 0, 64}, []byte{0, 32}
	rank, numbers := make([]byte, 6), func(n ...byte) (b []byte) {
		for _, v := range n {
			b = append(b, 0, 0, 0, v)
		}
		return b
	}
	description, _ := json.Marshal(pool)
	return [][][]byte{
		{[]byte("lookup"), tokens, hashLen, blob}, {[]byte("explain"), numbers(64, 0), hashLen, blob}, {[]byte("plan"), numbers(64, 0), hashLen, blob},
		{[]byte("load_mask"), numbers(64, 4)}, {[]byte("store_mask"), numbers(64, 0, 64)}, {[]byte("lookup_mask"), numbers(64)},
		{[]byte("store"), rank, hashLen, blob}, {[]byte("store_prompt"), numbers(64, 0, 64, 0), nil, nil, hashLen, blob},
		{[]byte("evict"), rank, hashLen, blob}, {[]byte("reset")}, {[]byte("reset_rank"), rank},
		{[]byte("lookup_from"), numbers(64, 0), hashLen, blob}, {[]byte("renew"), hashLen, blob},
		{[]byte("ping")}, {[]byte("stat")}, {[]byte("pool"), description},
	}
}

// No work is begun for a request that may not be made.
func TestRefusedDoesNotBegin(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		service, err := lookup.NewService(lookup.ServiceConfig{Pool: blocks16.Pool})
		if store != nil {
			service, err = lookup.NewService(lookup.ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: patient})
		}
		require.NoError(t, err)
		server, err := New(service, Config{})
		require.NoError(t, err)
		for _, frames := range requestsOf(blocks16.Pool)[:12] {
			message := lookuptest.Encode(frames...)
			if len(frames) < 4 {
				continue // it has no hashes
			}
			for _, allowed := range []access.Permissions{access.Ping, access.All} {
				ses, _ := fedSession(t, server, settingsOf(t, allowed), new(allReplies))
				require.NoError(t, serveTurn(ses, message[:len(message)-1]))
				begun := ses.inline.active || ses.jobs.current != nil
				require.Equal(t, allowed == access.All, begun, "%s", frames[0])
				ses.conn.close()
			}
		}
	})
}

// shown returns a client certificate as if it were verified with roots.
func shown(c *x509.Certificate, roots *x509.CertPool) access.Certificates {
	chain := []*x509.Certificate{c}
	return access.CertificatesOf(&tls.ConnectionState{PeerCertificates: chain, VerifiedChains: [][]*x509.Certificate{chain}}, roots)
}

// Peers of addresses that other machines reach may only read, unless the rules say more or they
// have a certificate.
func TestDefaultRules(t *testing.T) {
	for _, test := range []struct {
		local    bool
		settings Settings
		want     access.Permissions
	}{
		{true, Settings{}, access.All},
		{false, Settings{}, access.ReadOnly},
		{false, Settings{TLS: &tls.Config{}}, access.ReadOnly},
		{false, Settings{TLS: &tls.Config{ClientCAs: x509.NewCertPool()}}, access.All},
		{true, Settings{Rules: rulesOf(access.Ping)}, access.Ping},
	} {
		l := &listener{Socket: &listen.Socket{Local: test.local}}
		l.setSettings(test.settings)
		require.Equal(t, test.want, l.settings.Load().Rules.Anonymous)
	}
	ctx := t.Context()
	b := listen.Binder{Mode: DefaultIPCMode}
	for address, local := range map[string]bool{
		"tcp://127.0.0.1:0": true, "[::1]:0": true, "[::ffff:127.0.0.1]:0": true, "localhost:0": true, "ipc://" + t.TempDir() + "/s": true,
		"[::]:0": false, "[::ffff:0.0.0.0]:0": false,
	} {
		bound, err := b.BindAll(ctx, []string{address})
		require.NoError(t, err)
		require.Equal(t, local, bound[0].Local, address)
		require.NoError(t, bound[0].Close())
	}
}

// An auth request gives a connection its credential, from the next request on.
func TestAuth(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		expires := time.Now().Add(time.Hour)
		timed, late := tokenOf("timed", access.Stat|access.Ping), tokenOf("late", access.All)
		timed.Expires, late.Expires = expires, time.Now().Add(-time.Second)
		settings := settingsOf(t, access.Ping, tokenOf("all", access.All), timed, late)
		server := startWith(t, store, settings)
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		ping, stat := [][]byte{[]byte("ping")}, [][]byte{[]byte("stat")}
		may := func(request [][]byte) bool { return refusalIn(p.Ask(t, request...)) == nil }

		require.True(t, may(ping))
		require.False(t, may(stat))
		reply := p.Ask(t, authFrames("timed")...)
		require.JSONEq(t, `{"name":"timed","allow":["stat","ping"],"expires":"`+expires.UTC().Format(time.RFC3339)+`"}`, string(reply[1]))
		require.True(t, may(stat))

		unknown, malformed := api.Refusal{Refusal: api.RefusalNotAuthenticated, Request: "auth"}, api.Refusal{Refusal: api.RefusalBadRequest, Request: "auth", Frame: 1}
		for name, want := range map[string]struct {
			text    string
			refusal *api.Refusal
		}{
			"token of none": {"no such token", &unknown}, "token of late": {"the token has expired", &unknown},
			"token of all ": {"no such token", &unknown}, "": {"token is empty", &malformed},
		} {
			auth(t, p, "timed")
			reply := p.Ask(t, []byte("auth"), []byte(name))
			require.Equal(t, want.refusal, refusalIn(reply), "%q", reply)
			require.Contains(t, string(reply[1]), want.text)
			require.False(t, may(stat), "the credential is gone")
			require.True(t, may(ping))
		}
		require.EqualValues(t, 4, server.Stat().AuthFailures)

		// Sent at once, each request is served by the credential of the auth in front of it.
		var all []byte
		for _, frames := range [][][]byte{stat, authFrames("all"), stat, authFrames("none"), stat, authFrames("timed"), stat} {
			all = append(all, lookuptest.Encode(frames...)...)
		}
		p.Send(t, all)
		for i, want := range []string{"\x00", "\x01", "\x01", "\x00", "\x00", "\x01", "\x01"} {
			require.Equal(t, want, string(p.Next(t)[0]), i)
		}
	})
}

// A change of the settings applies to open connections.
func TestSetListener(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		server := startWith(t, store, settingsOf(t, access.Ping, tokenOf("stays", access.All), tokenOf("goes", access.All)))
		addr := server.Addrs()[0]
		stays, goes, idle, anonymous := lookuptest.DialPeer(t, addr), lookuptest.DialPeer(t, addr), lookuptest.DialPeer(t, addr), lookuptest.DialPeer(t, addr)
		auth(t, stays, "stays")
		auth(t, goes, "goes")
		auth(t, idle, "goes")
		require.NotNil(t, refusalIn(anonymous.Ask(t, []byte("stat"))))

		require.NoError(t, server.SetListener(addr, settingsOf(t, access.Stat, tokenOf("stays", access.Ping))))
		goes.Send(t, lookuptest.Encode([]byte("stat")))
		goes.ClosedWithin(t)
		idle.ClosedWithin(t)
		require.NotNil(t, refusalIn(stays.Ask(t, []byte("stat"))))
		require.Nil(t, refusalIn(stays.Ask(t, []byte("ping"))))
		require.Nil(t, refusalIn(anonymous.Ask(t, []byte("stat"))))
		lookuptest.Eventually(t, "both are counted", func() bool { return server.Stat().Closed["credential_revoked"] == 2 })

		require.NoError(t, server.SetListener("tcp://127.0.0.1:0", Settings{}), "as configured")
		stays.ClosedWithin(t)
		require.Nil(t, refusalIn(anonymous.Ask(t, []byte("reset"))))
	})
}

func TestSetListenerErrors(t *testing.T) {
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	server, err := New(service, Config{Listeners: []Listener{{Address: "tcp://127.0.0.1:0"}}})
	require.NoError(t, err)
	require.ErrorIs(t, server.SetListener("tcp://127.0.0.1:0", Settings{}), ErrNotReady)
	startTest(t, server)
	certificate := certtest.NewCA("ca").Leaf("localhost")
	withTLS := Settings{TLS: tlsOf(certificate, nil)}
	require.ErrorIs(t, server.SetListener("tcp://127.0.0.1:1", Settings{}), api.ErrConfig)
	require.ErrorIs(t, server.SetListener("nonsense://", Settings{}), api.ErrConfig)
	require.ErrorIs(t, server.SetListener(server.Addrs()[0], withTLS), api.ErrConfig)
	for _, l := range []Listener{
		{Address: "tls://127.0.0.1:0"}, {Address: "tcp://127.0.0.1:0", Settings: withTLS}, {Address: "nonsense://"},
		{Address: "tls://127.0.0.1:0", Settings: Settings{TLS: tlsOf(certificate, nil)}},
	} {
		if l.TLS != nil && l.Address[:3] == "tls" {
			l.TLS.Certificates = nil
		}
		_, err := New(service, Config{Listeners: []Listener{l}})
		require.ErrorIs(t, err, api.ErrConfig, l.Address)
	}
}

// tlsOf returns a TLS configuration. ca may be nil: then clients need no certificate.
func tlsOf(certificate tls.Certificate, ca *certtest.CA) *tls.Config {
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}
	if ca != nil {
		config.ClientCAs = ca.Pool()
	}
	return config
}

// fedSession returns a session that a test feeds, with the listener that authorizes it.
func fedSession(t *testing.T, server *Server, settings Settings, got replyWriter) (*session, *listener) {
	t.Helper()
	l := &listener{Socket: &listen.Socket{Address: "tcp://test"}}
	l.setSettings(settings)
	ses := openSession(server, got)
	ses.listener, ses.settings = l, l.settings.Load()
	ses.begin()
	return ses, l
}

// Requests after the one that is being served, those that are kept included, and the rest of one that
// has begun, are not served by an authorization that is gone.
func TestAuthorizationGoneInARequest(t *testing.T) {
	blob := lookuptest.Chain("s", 400, 32)
	store := lookuptest.Encode([]byte("store"), make([]byte, 6), []byte{0, 32}, blob)
	half := len(store) - 200*32
	for name, c := range map[string]struct {
		then access.Permissions
		want error // of receive
	}{"permission": {access.Ping, nil}, "credential": {0, errRevoked}} {
		t.Run(name, func(t *testing.T) {
			server := unstarted(t)
			var got allReplies
			ses, l := fedSession(t, server, settingsOf(t, access.Ping, tokenOf("a", access.All)), &got)
			require.NoError(t, serveTurn(ses, lookuptest.Encode(authFrames("a")...)))
			require.NoError(t, serveTurn(ses, store[:half]))
			if c.then == 0 {
				l.setSettings(settingsOf(t, access.All))
			} else {
				l.setSettings(settingsOf(t, 0, tokenOf("a", c.then)))
			}
			got.Reset()
			err := serveTurn(ses, append(store[half:len(store):len(store)], lookuptest.Encode([]byte("reset"))...))
			require.ErrorIs(t, err, c.want)
			require.EqualValues(t, 200, server.Stat().Stored, "what has arrived before")
			if c.then != 0 {
				require.Equal(t, 2, got.count(t))
				require.Contains(t, got.String(), `{"refusal":"partly_done","request":"store"`, "200 keys are stored")
				require.Equal(t, map[string]int64{"store": 1, "reset": 1}, server.Stat().NotAllowed)
			} else {
				require.Zero(t, got.Len())
			}
		})
	}
}

// A request that waits for a change is not served by an authorization that is gone.
func TestAuthorizationGoneWhilePending(t *testing.T) {
	gate := lookuptest.NewGate()
	store := &lookuptest.KeyStore{}
	store.Holding(gate, "store", "")
	server := startWith(t, store, settingsOf(t, 0, tokenOf("a", access.All)))
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	auth(t, p, "a")
	p.Send(t, lookuptest.Encode(requestsOf(blocks16.Pool)[7]...), lookuptest.Encode([]byte("reset")), lookuptest.Encode([]byte("ping")))
	lookuptest.Eventually(t, "the store is at the gate", func() bool { return gate.Held.Load() == 1 && server.numKeeping() == 1 })
	require.NoError(t, server.SetListener(server.Addrs()[0], settingsOf(t, 0, tokenOf("a", access.Ping))))
	close(gate.Open)
	require.Equal(t, []byte{netproto.StatusDone}, p.Next(t)[0])
	require.Equal(t, &api.Refusal{Refusal: api.RefusalNotAllowed, Request: "reset"}, refusalIn(p.Next(t)))
	require.Equal(t, []byte{netproto.StatusDone}, p.Next(t)[0])
	require.Zero(t, store.Resets.Load())
}

// A credential that expires closes the connection: before the next request, and if there is none
// by the sweep.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := unstarted(t)
		timed := tokenOf("timed", access.All)
		timed.Expires = time.Now().Add(time.Minute)
		var got allReplies
		ses, _ := fedSession(t, server, settingsOf(t, access.Ping, timed), &got)
		require.NoError(t, serveTurn(ses, lookuptest.Encode(authFrames("timed")...)))
		time.Sleep(time.Minute - time.Nanosecond)
		require.Equal(t, notClosed, ses.conn.overdue(0))
		require.NoError(t, serveTurn(ses, lookuptest.Encode(requestsOf(blocks16.Pool)[8]...)))
		require.Equal(t, 2, got.count(t))

		time.Sleep(time.Nanosecond)
		require.Equal(t, closedExpired, ses.conn.overdue(0))
		require.ErrorIs(t, serveTurn(ses, lookuptest.Encode([]byte("ping"))), errExpired)
		require.Equal(t, 2, got.count(t))
		require.Equal(t, closedExpired, reasonOf(errExpired))

		idle, l := fedSession(t, server, settingsOf(t, access.Ping, timed), &got)
		l.setSettings(settingsOf(t, access.Ping, tokenOf("timed", access.All)))
		require.NoError(t, wake(idle), "an anonymous one")
	})
}

// A client certificate gives a connection its credential, and takes it away again.
func TestCertificates(t *testing.T) {
	ca, other := certtest.NewCA("one"), certtest.NewCA("two")
	certificate := ca.Leaf("engine.example.com", "spiffe://example.com/engine", "CN=engine")
	entry := func(name string, p access.Permissions) access.Credential {
		return access.Credential{Name: "eng", Certificate: name, Permissions: p}
	}
	server := unstarted(t)
	with := func(pool *certtest.CA, credentials ...access.Credential) Settings {
		settings := settingsOf(t, access.Ping, credentials...)
		settings.TLS = tlsOf(ca.Leaf("localhost"), pool)
		return settings
	}
	connect := func(settings Settings) (*session, *listener) {
		l := &listener{Socket: &listen.Socket{}}
		l.setSettings(settings)
		ses := openSession(server, new(allReplies))
		ses.listener, ses.settings, ses.certificates = l, l.settings.Load(), shown(certificate.Leaf, settings.TLS.ClientCAs)
		ses.begin()
		return ses, l
	}
	for _, name := range []string{"engine.example.com", "spiffe://example.com/engine", "engine"} {
		ses, _ := connect(with(ca, entry(name, access.All)))
		require.Equal(t, access.All, ses.permissions, name)
		require.Equal(t, certificate.Leaf.NotAfter.UnixMicro(), ses.conn.times.expires.Load())
	}
	tenant := entry("engine", access.All)
	tenant.Pools = []string{"missing"}
	bound, _ := connect(with(ca, tenant))
	require.Nil(t, bound.pool, "not the server's own")
	ses, l := connect(with(ca))
	require.Equal(t, access.Ping, ses.permissions)
	for _, step := range []struct {
		settings Settings
		want     access.Permissions
	}{
		{with(ca, entry("engine", access.Stat)), access.Stat},
		{with(ca, entry("engine.example.com", access.All)), access.All},
		{with(ca, entry("engine.example.com", access.All), tokenOf("t", access.All)), access.All},
	} {
		l.setSettings(step.settings)
		require.NoError(t, wake(ses))
		require.Equal(t, step.want, ses.permissions)
	}
	for name, settings := range map[string]Settings{
		"no entry": with(ca), "another authority": with(other, entry("engine", access.All)), "no authority": with(nil, entry("engine", access.All)),
	} {
		ses, l := connect(with(ca, entry("engine", access.All)))
		l.setSettings(settings)
		require.ErrorIs(t, wake(ses), errRevoked, name)
	}
	ses, l = fedSession(t, server, with(nil), new(allReplies))
	l.setSettings(with(ca))
	require.ErrorIs(t, wake(ses), errRevoked, "it has no certificate")
}

// An accepted connection that finds other settings than those that it was accepted by follows them.
func TestSettingsChangeWhileAccepting(t *testing.T) {
	server := unstarted(t)
	l := &listener{Socket: &listen.Socket{}}
	l.setSettings(settingsOf(t, access.All))
	old := l.settings.Load()
	l.setSettings(settingsOf(t, access.Ping))
	ses := openSession(server, new(allReplies))
	ses.listener, ses.settings = l, old
	ses.begin()
	require.NoError(t, serveTurn(ses, lookuptest.Encode([]byte("reset"))))
	require.EqualValues(t, 1, server.Stat().NotAllowed["reset"])
}

// The log tells who was refused where, and no token. It names the credential of an expired token, so that it can be
// renewed.
func TestRefusalsAreLogged(t *testing.T) {
	late := tokenOf("late", access.Ping)
	late.Expires = time.Unix(1, 0)
	for token, want := range map[string]string{
		"wrong": `credential=a listen=tcp://test error="not authenticated: no such token"`,
		"late":  `credential=late listen=tcp://test error="not authenticated: the token has expired"`,
	} {
		log, logger := lookuptest.NewLog(slog.LevelInfo)
		server := unstarted(t)
		server.peers = newPeerLog(logger)
		ses, _ := fedSession(t, server, settingsOf(t, 0, tokenOf("a", access.Ping), late), new(allReplies))
		ses.conn.peer = &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 5}
		for _, frames := range [][][]byte{{[]byte("ping")}, authFrames("a"), {[]byte("reset")}, {[]byte("reset")}, authFrames(token), authFrames(token)} {
			require.NoError(t, serveTurn(ses, lookuptest.Encode(frames...)))
		}
		require.Equal(t, []string{
			`level=WARN msg="request not allowed" peer=10.0.0.1:5 listen=tcp://test error="not allowed: ping; this connection may: nothing"`,
			`level=WARN msg="authentication failed" peer=10.0.0.1:5 ` + want,
		}, log.Take())
	}
}

// The checks allocate nothing.
func TestAllowDoesNotAllocate(t *testing.T) {
	timed := tokenOf("timed", access.All)
	timed.Expires = time.Now().Add(time.Hour)
	ses, _ := fedSession(t, unstarted(t), settingsOf(t, access.All, timed), new(allReplies))
	require.NoError(t, serveTurn(ses, lookuptest.Encode(authFrames("timed")...)))
	require.NotZero(t, ses.conn.times.expires.Load())
	q := &netproto.Request{Tag: netproto.TagLookup}
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if !ses.allow(q) {
			panic("refused")
		}
	}))
}
