package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// theToken is that of these tests; other secrets are wrong ones.
const theToken = "correct-horse-battery"

// tokenServer is a fakeServer that takes theToken alone and remembers all requests.
type tokenServer struct {
	fakeServer
	refusal func(tag string) (reason string, details *api.Refusal) // nil: none is refused

	mu       sync.Mutex
	requests [][]string // tags, by connection
	number   map[*fakeConn]int
}

func newTokenServer(t *testing.T) *tokenServer {
	s := &tokenServer{number: map[*fakeConn]int{}}
	s.showSetup = true
	s.answer = s.handle
	t.Cleanup(s.all.Wait)
	return s
}

func (s *tokenServer) handle(r *fakeRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.number[r.conn]
	if !ok {
		i = len(s.requests)
		s.number[r.conn], s.requests = i, append(s.requests, nil)
	}
	s.requests[i] = append(s.requests[i], r.tag)
	var reason string
	var details *api.Refusal
	if s.refusal != nil {
		reason, details = s.refusal(r.tag)
	}
	switch {
	case reason == "" && r.tag == "auth" && string(r.frames[1]) != theToken:
		reason, details = "no such token", &api.Refusal{Refusal: api.RefusalNotAuthenticated, Request: r.tag}
	case reason == "" && (r.tag == "auth" || r.tag == "pool"):
		r.conn.send(netproto.AppendDone(nil, r.envelope, netproto.AppendFrame(nil, []byte(`{"name":"x"}`), false)))
		return
	case reason == "":
		r.reply()
		return
	}
	var frame []byte
	if details != nil {
		frame, _ = json.Marshal(details)
	}
	r.conn.send(netproto.AppendRefusal(nil, r.envelope, netproto.StatusFailed, reason, frame))
}

// dialer is the option of clients of the server.
func (s *tokenServer) dialer() Option {
	return WithDialer(func(context.Context, string, string) (net.Conn, error) { return s.connect() })
}

// tags returns the requests of each connection so far.
func (s *tokenServer) tags() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([][]string{}, s.requests...)
}

const fakeAddr = "127.0.0.1:1"

// The token goes first on each connection, in one write with the description of the pool and a ping.
func TestTokenFirst(t *testing.T) {
	noLeaks(t)
	s := newTokenServer(t)
	var writes [][]byte
	dial := func(context.Context, string, string) (net.Conn, error) {
		nc, err := s.connect()
		return writesConn{nc, &writes}, err
	}
	c := dialAs(t, fakeAddr, WithDialer(dial), WithToken(theToken), WithPoolName("x"))
	_, err := c.Lookup(background, 16, someHashes)
	require.NoError(t, err)
	require.Len(t, writes, 2)
	closeConn(c.transport.conn)
	lookuptest.Eventually(t, "the connection is lost", c.hasLost)
	require.NoError(t, c.Reset(background))
	require.Equal(t, [][]string{{"auth", "pool", "ping", "lookup"}, {"auth", "pool", "ping", "reset"}}, s.tags())
	require.Len(t, writes, 4, "the setup is one write")
}

// A refused token is an error of its own, of every call on the connection.
func TestTokenRefused(t *testing.T) {
	noLeaks(t)
	const wrong = "wrong-horse-battery"
	s := newTokenServer(t)
	_, err := Dial(background, fakeAddr, s.dialer(), WithToken(wrong), WithPoolName("x"))
	require.ErrorIs(t, err, ErrNotAuthenticated)
	require.ErrorIs(t, err, ErrRefused)
	require.NotErrorIs(t, err, ErrNotAllowed)
	require.NotErrorIs(t, err, ErrConnect)
	require.EqualError(t, err, "refused by the server: no such token")

	d, err := newConfig([]Option{s.dialer(), WithToken(wrong)}).dialer(fakeAddr)
	require.NoError(t, err)
	c := lazyClient(t, d, defaultTimeout)
	batch := []BatchLookup{{NumTokens: 16, Hashes: someHashes}, {NumTokens: 16, Hashes: someHashes}}
	require.ErrorIs(t, c.Batch(background, batch), ErrNotAuthenticated)
	for _, l := range batch {
		require.ErrorIs(t, l.Err, ErrNotAuthenticated)
		require.Zero(t, l.Hit.Tokens, "the server has answered, to a client without a token")
		require.NotContains(t, l.Err.Error(), wrong)
	}
}

// The file that the environment names is read for each connection.
func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	t.Setenv(api.TokenFileVariable, path)
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	dial := func(opts ...Option) (auths int, c *Client, err error) {
		s := newTokenServer(t)
		if c, err = Dial(background, fakeAddr, append(opts, s.dialer())...); err != nil {
			return 0, nil, err
		}
		t.Cleanup(func() { c.Close() })
		require.NoError(t, ping(c))
		return strings.Count(fmt.Sprint(s.tags()), "auth"), c, nil
	}
	_, _, err := dial()
	require.ErrorIs(t, err, ErrConnect)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, path)

	write("not-the-one")
	_, _, err = dial()
	require.ErrorIs(t, err, ErrNotAuthenticated)

	write(" " + theToken + "\nsomething else")
	auths, c, err := dial()
	require.NoError(t, err)
	require.Equal(t, 1, auths)

	write("another") // that of the next connection
	closeConn(c.transport.conn)
	lookuptest.Eventually(t, "the connection is lost", c.hasLost)
	require.ErrorIs(t, ping(c), ErrNotAuthenticated)

	auths, _, err = dial(WithToken(""))
	require.NoError(t, err)
	require.Zero(t, auths)
	t.Setenv(api.TokenFileVariable, "")
	auths, _, err = dial()
	require.NoError(t, err)
	require.Zero(t, auths)
}

// A token that no request can have is refused before anything is sent.
func TestTokenTooLong(t *testing.T) {
	long := strings.Repeat("x", 256)
	_, err := Dial(background, fakeAddr, WithToken(long))
	require.ErrorIs(t, err, ErrRequest)
	require.NotContains(t, err.Error(), "xx")
	s := newTokenServer(t)
	_, err = Dial(background, fakeAddr, s.dialer(), WithToken(long[1:]))
	require.ErrorIs(t, err, ErrNotAuthenticated, "it is sent")
}

// Nothing that is printed of a client or its configuration has the token.
func TestTokenIsNotPrinted(t *testing.T) {
	s := newTokenServer(t)
	cfg := newConfig([]Option{WithToken(theToken), s.dialer()})
	d, err := cfg.dialer(fakeAddr)
	require.NoError(t, err)
	c := dialAs(t, fakeAddr, s.dialer(), WithToken(theToken))
	require.NoError(t, ping(c))
	for _, value := range []any{cfg, d, c} {
		for _, verb := range []string{"%v", "%+v", "%#v"} {
			require.NotContains(t, fmt.Sprintf(verb, value), theToken)
		}
	}
}

// What a client may not do is told by the last frame of the reply, not by its text.
func TestNotAllowed(t *testing.T) {
	noLeaks(t)
	s := newTokenServer(t)
	s.refusal = func(tag string) (string, *api.Refusal) {
		if tag == "stat" {
			return "not allowed: stat", nil // not typed
		}
		return "may not " + tag, &api.Refusal{Refusal: api.RefusalNotAllowed, Request: tag}
	}
	c := dialAs(t, fakeAddr, s.dialer()) // the ping of the setup is not allowed either
	_, lookupErr := c.Lookup(background, 16, someHashes)
	_, promptErr := c.StorePrompt(background, api.PromptStore{NumTokens: 16}, someHashes)
	for _, err := range []error{lookupErr, promptErr, c.Reset(background), ping(c)} {
		require.ErrorIs(t, err, ErrNotAllowed)
		require.ErrorIs(t, err, ErrRefused)
		require.NotErrorIs(t, err, ErrNotAuthenticated)
		require.ErrorContains(t, err, "refused by the server: may not ")
	}
	_, err := c.Stat(background)
	require.ErrorIs(t, err, ErrRefused)
	require.NotErrorIs(t, err, ErrNotAllowed)

	batch := []BatchLookup{{NumTokens: 16, Hashes: someHashes}}
	require.NoError(t, c.Batch(background, batch))
	require.ErrorIs(t, batch[0].Err, ErrNotAllowed)
	require.Len(t, s.tags(), 1, "the connection is good")

	_, err = Dial(background, fakeAddr, s.dialer(), WithPoolName("x"))
	require.ErrorIs(t, err, ErrNotAllowed)
	require.NotErrorIs(t, err, ErrPoolDiffers)
}
