package client

import (
	"context"
	"crypto/tls"
	"net"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/fakeserver"
	"github.com/hitline/hitline/internal/lookuptest"
)

// Every option, and every field of a pool that is described, changes what is sent.
func TestWhatIsSent(t *testing.T) {
	s := fakeserver.Start(t, fakeserver.Config{})
	sent := func(opts ...Option) string {
		c, err := Dial(background, s.Lookup, opts...)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		return s.Sent()
	}
	for name, set := range lookuptest.Fields[coordinator.Pool]() {
		var pool coordinator.Pool
		set(&pool)
		field, _ := reflect.TypeFor[coordinator.Pool]().FieldByName(name)
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		got := sent(WithPool("p", pool))
		require.Contains(t, got, `"`+key+`":`, name)
		require.NotEqual(t, sent(WithPool("p", coordinator.Pool{})), got, name)
	}
	ca := certtest.NewCA("ca")
	secure := fakeserver.Start(t, fakeserver.Config{TLS: &tls.Config{Certificates: []tls.Certificate{ca.Leaf("127.0.0.1")}}})
	effects := map[string]func(){
		"WithToken": func() { require.Contains(t, sent(WithToken("a-token")), "auth a-token\n") },
		"WithPool": func() {
			require.Contains(t, sent(WithPool("p", coordinator.Pool{})), `pool {"name":"p","hash_block_size":`)
		},
		"WithPoolName": func() { require.Contains(t, sent(WithPoolName("p")), `pool {"name":"p"}`) },
		"WithClientInfo": func() {
			said := map[string]any{"process": "one"}
			require.Contains(t, sent(WithPoolName("p"), WithClientInfo(said)), `pool {"name":"p","client":{"process":"one"}}`)
		},
		"WithTimeout": func() {
			_, err := Dial(background, s.Lookup, WithTimeout(1))
			require.ErrorIs(t, err, ErrConnect)
		},
		"WithDialer": func() {
			dialed := ""
			sent(WithDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
				dialed = network + "://" + address
				return new(net.Dialer).DialContext(ctx, network, address)
			}))
			require.Equal(t, s.Lookup, dialed)
		},
		"WithTLS": func() {
			_, err := Dial(background, secure.Lookup)
			require.ErrorIs(t, err, ErrConnect)
			c, err := Dial(background, secure.Lookup, WithTLS(&tls.Config{RootCAs: ca.Pool()}))
			require.NoError(t, err)
			require.NoError(t, c.Close())
		},
	}
	for _, name := range lookuptest.Options(t) {
		require.Contains(t, effects, name)
		effects[name]()
	}
}
