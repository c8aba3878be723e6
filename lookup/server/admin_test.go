package server

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
)

// Only a valid token with every permission and no pools is an administrator's, whichever listener has it.
func TestIsAdmin(t *testing.T) {
	expired, later := tokenOf("expired", access.All), tokenOf("later", access.All)
	expired.Expires, later.Expires = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	tokens := []access.Credential{
		tokenOf("admin", access.All), tokenOf("reader", access.ReadOnly), tokenOf("no reset", access.All&^access.Reset),
		tokenOf("no holders", access.All&^access.Holders), tokenOf("nothing", 0), tokenOf("tenant", access.All, ""), tokenOf("poolless", access.All),
		expired, later, {Name: "certificate", Certificate: "admin", Permissions: access.All},
	}
	tokens[6].Pools = []string{}
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	var others []Settings
	server, err := New(service, Config{OtherListeners: func() []Settings { return others }, Listeners: []Listener{
		{Address: "tcp://127.0.0.1:0", Settings: settingsOf(t, access.All, tokens...)},
		{Address: "tcp://127.0.0.1:0"},
		{Address: "tcp://127.0.0.1:0", Settings: settingsOf(t, 0, tokenOf("second", access.All))},
	}})
	require.NoError(t, err)
	check := func(when string) {
		t.Helper()
		require.True(t, server.HasCredentials(), when)
		for _, c := range append(tokens, tokenOf("second", 0), tokenOf("unknown", 0)) {
			want := c.Name == "admin" || c.Name == "later" || c.Name == "second" && others == nil
			require.Equal(t, want, server.IsAdmin([]byte("token of "+c.Name)), "%s: %s", when, c.Name)
		}
		for _, text := range []string{"", "admin", "token of admi", "token of admin ", string(make([]byte, 1<<20))} {
			require.False(t, server.IsAdmin([]byte(text)), when)
		}
		digest := access.DigestOf([]byte("token of admin"))
		require.False(t, server.IsAdmin(digest[:]), when)
	}
	check("before it listens")
	startTest(t, server)
	check("while it serves")

	require.NoError(t, server.SetListener(server.Addrs()[0], settingsOf(t, access.All, tokens[1:]...)))
	require.False(t, server.IsAdmin([]byte("token of admin")), "it was removed")
	require.True(t, server.IsAdmin([]byte("token of later")))
	for _, address := range []string{server.Addrs()[0], server.Addrs()[2]} {
		require.True(t, server.HasCredentials())
		require.NoError(t, server.SetListener(address, Settings{}))
	}
	require.False(t, server.HasCredentials())
	require.False(t, server.IsAdmin([]byte("token of second")))

	others = []Settings{settingsOf(t, access.All, tokens...)}
	check("of a listener of the program's")
	others = nil
	require.False(t, server.HasCredentials())
}

// Whoever removes the last credential of a list does not make everybody an administrator, and neither does
// a listener that asks for certificates without naming them.
func TestHasCredentialsWithoutAny(t *testing.T) {
	server := startWith(t, nil, settingsOf(t, access.Ping, tokenOf("admin", access.All)))
	require.True(t, server.HasCredentials())
	require.NoError(t, server.SetListener(server.Addrs()[0], settingsOf(t, access.Ping, []access.Credential{}...)))
	require.True(t, server.HasCredentials())

	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	ca := certtest.NewCA("clients")
	mutual := Settings{TLS: &tls.Config{Certificates: []tls.Certificate{ca.Leaf("127.0.0.1")}, ClientCAs: ca.Pool()}}
	server, err = New(service, Config{Listeners: []Listener{{Address: "tls://127.0.0.1:0", Settings: mutual}}})
	require.NoError(t, err)
	require.True(t, server.HasCredentials())
	startTest(t, server)
	require.True(t, server.HasCredentials())
}
