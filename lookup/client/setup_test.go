package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

var someHashes = coordinator.NewHashes(lookuptest.Chain("instance", 4, 32), 32)

// writesConn records each write. It is no socket for a client.
type writesConn struct {
	net.Conn
	writes *[][]byte
}

func (w writesConn) Write(p []byte) (int, error) {
	*w.writes = append(*w.writes, bytes.Clone(p))
	return w.Conn.Write(p)
}

// A call is written once the setup is answered, and not if it is refused.
func TestSetupBeforeCalls(t *testing.T) {
	for name, c := range map[string]struct {
		reply []byte
		want  error
	}{
		"accepted": {netproto.AppendDone(nil, nil, netproto.AppendFrame(nil, []byte(`{}`), false)), nil},
		"refused":  {refusalOf(api.Refusal{Refusal: api.RefusalPoolDiffers}), ErrPoolDiffers},
		"wrong":    {lookuptest.Encode([]byte{1}, []byte("no JSON")), ErrReply},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var description *fakeRequest
				lookups := 0
				f := &fakeServer{pipes: true, answer: func(r *fakeRequest) {
					if r.tag == "pool" {
						description = r
						return
					}
					lookups++
					r.reply()
				}}
				d := f.dialer()
				d.description = []byte("{}")
				cl := lazyClient(t, d, defaultTimeout)
				t.Cleanup(func() { cl.Close(); f.all.Wait() })
				var hit api.Hit
				var err error
				done := false
				go func() {
					hit, err = cl.Lookup(background, 16, someHashes)
					done = true
				}()
				synctest.Wait()
				require.Zero(t, lookups)
				description.conn.send(append(append([]byte{}, description.envelope...), c.reply...))
				synctest.Wait()
				require.True(t, done)
				require.ErrorIs(t, err, c.want)
				require.Equal(t, c.want == nil, hit.Tokens == 16)
				require.Equal(t, c.want == nil, lookups == 1)
				require.Equal(t, c.want != nil, cl.hasLost())
			})
		})
	}
}

// A server that tells no limits, or nothing that can be read, is served with the least of them.
func TestPingOfOtherServers(t *testing.T) {
	for _, pong := range []string{
		"null", "[]", "{}", `{"instance":7}`, `{"limits":{"max_in_flight":-1}}`, "no JSON", `{"prompt_alignment":-16}`, `{"prompt_alignment":0}`,
	} {
		f := &fakeServer{showSetup: true, answer: func(r *fakeRequest) {
			if r.tag == "ping" {
				r.conn.send(netproto.AppendDone(nil, r.envelope, netproto.AppendFrame(nil, []byte(pong), false)))
				return
			}
			r.reply()
		}}
		c := fakeClient(t, f)
		require.Equal(t, defaultLimits, c.transport.inFlight.limits)
		hit, err := c.Lookup(background, 64, someHashes)
		require.NoError(t, err)
		require.EqualValues(t, 64, hit.Tokens)
		hit, err = c.LookupPrompt(background, 70, someHashes)
		require.NoError(t, err)
		require.EqualValues(t, 70, hit.Tokens, "it rounds nothing")
	}
}

// A prompt of any length is looked up over a server as in process: by the pool of the connection, whatever permission of
// pool it has.
func TestLookupPrompt(t *testing.T) {
	pools := map[string]coordinator.Pool{
		"": {HashBlockSize: 16}, "wide": {VLLM: "0.26.0", SchedulerBlockSize: 32}, "new": {VLLM: "0.27.0"}, "newest": {VLLM: coordinator.NewestRelease()},
	}
	services, named := map[string]*lookup.Service{}, []server.ServedPool(nil)
	for name, pool := range pools {
		service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool})
		require.NoError(t, err)
		require.NoError(t, service.Store(background, coordinator.GroupRank{}, someHashes))
		if services[name] = service; name != "" {
			named = append(named, server.ServedPool{Name: name, Service: service})
		}
	}
	rules := func(permissions access.Permissions) server.Settings {
		of, err := access.NewRules(permissions, nil)
		require.NoError(t, err)
		return server.Settings{Rules: of}
	}
	s, err := server.New(services[""], server.Config{Loops: 2, Pools: named, Listeners: []server.Listener{
		{Address: "tcp://127.0.0.1:0"}, {Address: "tcp://127.0.0.1:0", Settings: rules(access.Lookup | access.Ping)},
		{Address: "tcp://127.0.0.1:0", Settings: rules(access.Lookup)},
	}})
	require.NoError(t, err)
	require.NoError(t, s.Start(background))
	t.Cleanup(func() { _ = s.Shutdown(background) })
	for name, service := range services {
		clients := []*Client{dialAs(t, s.Addrs()[0], WithPoolName(name))}
		if name == "" {
			clients = append(clients, dialAs(t, s.Addrs()[0]), dialAs(t, s.Addrs()[1]))
		}
		for _, c := range clients {
			for n := int64(0); n <= 70; n++ {
				want, err := service.LookupPrompt(background, n, someHashes)
				require.NoError(t, err)
				got, err := api.PrefixCache(c).LookupPrompt(background, n, someHashes)
				require.NoError(t, err)
				require.Equal(t, want, got, "%q, %d tokens", name, n)
			}
			_, err = c.LookupPrompt(background, -1, someHashes)
			require.ErrorIs(t, err, ErrRequest)
		}
	}
	silent := dialAs(t, s.Addrs()[2]) // it may not ping
	hit, err := silent.LookupPrompt(background, 64, someHashes)
	require.NoError(t, err)
	require.EqualValues(t, 64, hit.Tokens)
	_, err = silent.LookupPrompt(background, 70, someHashes)
	require.ErrorIs(t, err, ErrBadRequest)
	require.ErrorContains(t, err, "num_tokens 70 is no multiple of 16")
}

// Each code of a refusal is an error of its own. A refusal without a code is none of them.
func TestRefusalCodes(t *testing.T) {
	var refusal api.Refusal
	c := scripted(t, func([][]byte) []byte { return refusalOf(refusal) })
	for code, want := range refusals {
		if want == ErrBusy { // see TestClientBusy
			continue
		}
		refusal = api.Refusal{Refusal: code, Request: "reset", Frame: 2, Limit: 7}
		err := c.Reset(background)
		require.ErrorIs(t, err, want, code)
		require.ErrorIs(t, err, ErrRefused, code)
		require.EqualError(t, err, "refused by the server: because")
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, refusal, refused.Refusal)
		for other, is := range refusals {
			require.Equal(t, other == code, errors.Is(err, is), "%s is %s", code, other)
		}
	}
	refusal = api.Refusal{Refusal: "of_the_future"}
	require.ErrorIs(t, c.Reset(background), ErrRefused)

	for text, reply := range map[string][]byte{
		"refused by the server":     lookuptest.Encode([]byte{0}),
		"refused by the server: no": lookuptest.Encode([]byte{0}, []byte("no")),
	} {
		c := scripted(t, func([][]byte) []byte { return reply })
		err := c.Reset(background)
		require.EqualError(t, err, text)
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		require.Empty(t, refused.Refusal)
	}
}

// A frame that is larger than such a reply can have ends the connection when its header is there, before its bytes are.
func TestRepliesAreBounded(t *testing.T) {
	header := func(size int, before ...[]byte) []byte {
		var reply []byte
		for _, frame := range before {
			reply = netproto.AppendFrame(reply, frame, true)
		}
		return netproto.AppendFrameHeader(reply, size, false)
	}
	asks := map[string]func(c *Client) error{
		"lookup":  func(c *Client) error { _, err := c.Lookup(background, 64, someHashes); return err },
		"reset":   func(c *Client) error { return c.Reset(background) },
		"stat":    func(c *Client) error { _, err := c.Stat(background); return err },
		"explain": func(c *Client) error { _, err := c.Explain(background, 64, someHashes); return err },
		"masks":   func(c *Client) error { _, err := c.LookupMask(background, 64); return err },
		"ping":    func(c *Client) error { _, err := c.Ping(background); return err },
	}
	refused, done := []byte{netproto.StatusFailed}, []byte{netproto.StatusDone}
	for name, test := range map[string]struct {
		ask   string
		reply []byte
	}{
		"a hit":                  {"lookup", header(4 + 8*4096 + 1)},
		"a reason":               {"lookup", header(64<<10+1, refused)},
		"a code":                 {"lookup", header(64<<10+1, refused, []byte("why"))},
		"a code of a reset":      {"reset", header(64<<10+1, refused, []byte("why"))},
		"a frame too many":       {"reset", header(1, done, done, done)},
		"the status of a reset":  {"reset", header(2<<20 + 1)},
		"a ping":                 {"ping", header(64<<10+1, done)},
		"stat":                   {"stat", header(9<<20, done)},
		"an explanation":         {"explain", header(9<<20, done)},
		"masks":                  {"masks", header(2<<20+1, done)},
		"the length of a memory": {"masks", header(math.MaxInt32, done)},
	} {
		c := scripted(t, func([][]byte) []byte { return test.reply })
		err := asks[test.ask](c)
		require.ErrorIs(t, err, ErrReply, name)
		require.NotErrorIs(t, err, ErrNoAnswer, name)
	}
	c := scripted(t, func([][]byte) []byte { return header(4 + 8*2 + 1) })
	require.NoError(t, asks["ping"](scripted(t, func([][]byte) []byte { return lookuptest.Encode(done, []byte("{}")) })))
	c.transport.mu.Lock()
	c.transport.pool = &api.Pool{Groups: make([]api.PoolGroup, 2)}
	c.transport.mu.Unlock()
	require.ErrorIs(t, asks["lookup"](c), ErrReply, "more boundaries than the pool has groups")
	boundaries := make([]uint32, 1, 1+2*4096)
	for g := range uint32(4096) {
		boundaries = append(boundaries, g, 0)
	}
	c = scripted(t, func([][]byte) []byte { return lookuptest.Encode(u32s(boundaries...)) })
	hit, err := c.Lookup(background, 64, someHashes)
	require.NoError(t, err)
	require.Len(t, hit.TailBoundaries, 4096)
}

// The texts of a server forge no lines of a log, and do not fill one.
func TestReasonsAreBounded(t *testing.T) {
	for said, want := range map[string]string{
		"a\nb\r\x1b[31m\u009b\u202e\u2028é": `a\nb\r\x1b[31m\u009b\u202e\u2028é`, strings.Repeat("é", 300): strings.Repeat("é", 256) + "…",
		"a" + strings.Repeat("é", 300): "a" + strings.Repeat("é", 255) + "…", "a\xffb": "a\ufffdb", strings.Repeat("x", 512): strings.Repeat("x", 512),
	} {
		c := scripted(t, func([][]byte) []byte {
			return lookuptest.Encode([]byte{0}, []byte(said), []byte(`{"refusal":"x\u000ay"}`))
		})
		var refused *RefusedError
		require.ErrorAs(t, c.Reset(background), &refused)
		require.Equal(t, want, refused.Text)
		require.Equal(t, `x\ny`, refused.Refusal.Refusal)
	}
}

// What was done in part is not refused.
func TestPartlyDone(t *testing.T) {
	refusal := api.Refusal{Refusal: api.RefusalPartlyDone, Request: "store_prompt"}
	c := scripted(t, func([][]byte) []byte {
		doc, _ := json.Marshal(refusal)
		return lookuptest.Encode([]byte{netproto.StatusPartial}, []byte("half of it"), doc)
	})
	err := c.Store(background, coordinator.GroupRank{}, someHashes)
	require.ErrorIs(t, err, api.ErrPartlyDone)
	require.NotErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "half of it")

	refusal.Parts, refusal.MoreParts = []api.Part{{Group: 1, TPRank: 2, Chunks: 3, Error: "full"}}, 4
	_, err = c.StorePrompt(background, api.PromptStore{NumTokens: 64}, someHashes)
	require.ErrorIs(t, err, api.ErrPartlyDone)
	require.NotErrorIs(t, err, ErrRefused)
	var parts *api.PartsError
	require.ErrorAs(t, err, &parts)
	require.Equal(t, refusal.Parts, parts.Parts)
	require.Equal(t, 4, parts.More)
}

// A reply that cannot be true is an error and a hit of 0.
func TestWrongReplies(t *testing.T) {
	pool := &api.Pool{TailBoundaries: true, Groups: []api.PoolGroup{{BlockSize: 16}, {BlockSize: 32}}}
	pool.Pool.Groups = make([]coordinator.Group, 2)
	old := &api.Pool{Groups: pool.Groups}
	for name, c := range map[string]struct {
		pool  *api.Pool
		reply []byte
		want  int64 // -1: an error
	}{
		"a hit":                       {nil, u32s(48), 48},
		"more than asked":             {nil, u32s(65), -1},
		"one byte":                    {nil, []byte{1}, -1},
		"five bytes":                  {nil, make([]byte, 5), -1},
		"eight bytes":                 {nil, make([]byte, 8), -1},
		"boundaries":                  {pool, u32s(48, 0, 48, 1, 64), 48},
		"a refusal from 0.29.0 on":    {pool, u32s(0), 0},
		"none":                        {pool, u32s(48), -1},
		"one missing":                 {pool, u32s(48, 0, 48), -1},
		"no such group":               {pool, u32s(48, 0, 48, 2, 48), -1},
		"before the hit":              {pool, u32s(48, 0, 48, 1, 32), -1},
		"behind the block":            {pool, u32s(48, 0, 64, 1, 64), -1},
		"boundaries of a hit of 0":    {pool, u32s(0, 0, 0, 1, 0), -1},
		"boundaries before 0.29.0":    {old, u32s(48, 0, 48, 1, 64), -1},
		"no boundaries before 0.29.0": {old, u32s(48), 48},
	} {
		hit, err := readHit([][]byte{c.reply}, 64, c.pool)
		if c.want < 0 {
			require.ErrorIs(t, err, ErrReply, name)
			require.Equal(t, api.Hit{}, hit, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.want, hit.Tokens, name)
	}
	_, err := readHit([][]byte{u32s(16), {}}, 64, nil)
	require.ErrorIs(t, err, ErrReply, "two frames")

	_, err = scripted(t, func([][]byte) []byte { return lookuptest.Encode([]byte{1}) }).Ping(background)
	require.ErrorIs(t, err, ErrReply, "no document")

	two := append(u32s(0, 0, 4, 1, 0, 4), u32s(1, 0, 4, 1, 0, 4)...)
	masks, err := parseMasks(two, pool)
	require.NoError(t, err)
	require.Len(t, masks, 2)
	_, err = parseMasks(two[:24], pool)
	require.ErrorIs(t, err, ErrReply, "one mask of two")
	_, err = parseMasks(append(u32s(0, 0, 4, 1, 0, 4), u32s(2, 0, 4, 1, 0, 4)...), pool)
	require.ErrorIs(t, err, ErrReply, "no such group")
}
