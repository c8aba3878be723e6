package client

import (
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// maskCalls are the calls that are answered with masks alone, the frames that each sends, and
// calls with numbers that cannot be sent.
var maskCalls = map[string]struct {
	call    func(c *Client) ([]api.GroupMask, error)
	frames  [][]byte
	invalid []func(c *Client) ([]api.GroupMask, error)
}{
	"load_mask": {
		func(c *Client) ([]api.GroupMask, error) { return c.LoadMask(background, 48, 12) }, [][]byte{[]byte("load_mask"), u32s(48, 12)},
		[]func(c *Client) ([]api.GroupMask, error){
			func(c *Client) ([]api.GroupMask, error) { return c.LoadMask(background, 48, -1) },
			func(c *Client) ([]api.GroupMask, error) { return c.LoadMask(background, 1<<32, 12) },
			func(c *Client) ([]api.GroupMask, error) { return c.LoadMask(background, -1, 12) },
		},
	},
	"store_mask": {
		func(c *Client) ([]api.GroupMask, error) { return c.StoreMask(background, 48, 16, 50) }, [][]byte{[]byte("store_mask"), u32s(48, 16, 50)},
		[]func(c *Client) ([]api.GroupMask, error){
			func(c *Client) ([]api.GroupMask, error) { return c.StoreMask(background, 48, -1, 50) },
			func(c *Client) ([]api.GroupMask, error) { return c.StoreMask(background, 1<<32, 16, 50) },
			func(c *Client) ([]api.GroupMask, error) { return c.StoreMask(background, 48, 16, math.MaxUint32) },
			func(c *Client) ([]api.GroupMask, error) { return c.StoreMask(background, 48, 16, math.MaxInt64) },
		},
	},
	"store_mask, unknown prompt": {
		func(c *Client) ([]api.GroupMask, error) { return c.StoreMask(background, 48, 0, -7) }, [][]byte{[]byte("store_mask"), u32s(48, 0, netproto.PromptTokensUnknown)}, nil,
	},
	"lookup_mask": {
		func(c *Client) ([]api.GroupMask, error) { return c.LookupMask(background, 48) }, [][]byte{[]byte("lookup_mask"), u32s(48)},
		[]func(c *Client) ([]api.GroupMask, error){func(c *Client) ([]api.GroupMask, error) { return c.LookupMask(background, -1) }},
	},
}

// aMask is a reply of two masks.
var aMask = u32s(1, 3, 9, 2, 3, 5, 8, 9, netproto.NoGroup, 0, 4, math.MaxUint32)

var parsedMask = []api.GroupMask{
	{Group: 1, First: 3, End: 9, Runs: []api.ChunkRun{{Start: 3, End: 5}, {Start: 8, End: 9}}}, {Group: api.NotStored, End: 4, All: true},
}

// repliesServer is a server whose replies a test sets.
type repliesServer struct {
	fakeServer
	reply atomic.Value // []byte: the frames of the next replies
	sent  atomic.Value // [][]byte: the last request, nil if none
}

func newRepliesServer() *repliesServer {
	s := new(repliesServer)
	s.answer = func(r *fakeRequest) {
		s.sent.Store(r.frames)
		r.conn.send(slices.Concat(r.envelope, s.reply.Load().([]byte)))
	}
	return s
}

// TestClientMasks has every call and every reply that there may be.
func TestClientMasks(t *testing.T) {
	s := newRepliesServer()
	c := fakeClient(t, &s.fakeServer)
	for name, m := range maskCalls {
		s.reply.Store(lookuptest.Encode([]byte{1}, aMask))
		masks, err := m.call(c)
		require.NoError(t, err, name)
		require.Equal(t, parsedMask, masks)
		require.Equal(t, m.frames, s.sent.Load())
		s.reply.Store(lookuptest.Encode([]byte{0}, []byte("not today")))
		_, err = m.call(c)
		require.ErrorIs(t, err, ErrRefused)
		require.ErrorContains(t, err, "not today")
		for what, bad := range map[string][]byte{
			"no masks": lookuptest.Encode([]byte{1}), "cut": lookuptest.Encode([]byte{1}, aMask[1:]),
			"a frame too many": lookuptest.Encode([]byte{1}, aMask, nil), "another status": lookuptest.Encode([]byte{2}, aMask),
		} {
			s.reply.Store(bad)
			_, err = m.call(c)
			require.ErrorIs(t, err, ErrReply, "%s, %s", name, what)
		}
		s.sent.Store([][]byte(nil))
		for _, call := range m.invalid {
			_, err = call(c)
			require.ErrorIs(t, err, ErrRequest, name)
		}
		require.Nil(t, s.sent.Load())
	}
}

// TestClientPlan has every reply to a plan that there may be.
func TestClientPlan(t *testing.T) {
	hashes := coordinator.NewHashes([]byte("aabbcc"), 2)
	s := newRepliesServer()
	c := fakeClient(t, &s.fakeServer)
	s.reply.Store(lookuptest.Encode([]byte{1}, u32s(48), aMask))
	plan, err := c.Plan(background, 50, hashes)
	require.NoError(t, err)
	require.Equal(t, api.Plan{Hit: api.Hit{Tokens: 48}, Masks: parsedMask}, plan)
	require.Equal(t, [][]byte{[]byte("plan"), u32s(50, 0), {0, 2}, []byte("aabbcc")}, s.sent.Load())
	s.reply.Store(lookuptest.Encode([]byte{1}, u32s(48, 0, 48, 1, 64), nil))
	plan, err = c.Plan(background, 50, hashes)
	require.NoError(t, err)
	require.Equal(t, api.Plan{Hit: tailHit(48, 0, 48, 1, 64)}, plan)

	for what, bad := range map[string]struct {
		reply []byte
		want  error
	}{
		"refused":           {lookuptest.Encode([]byte{0}, []byte("not today")), ErrRefused},
		"a lookup's":        {lookuptest.Encode(u32s(48)), ErrReply},
		"no masks":          {lookuptest.Encode([]byte{1}, u32s(48)), ErrReply},
		"cut masks":         {lookuptest.Encode([]byte{1}, u32s(48), aMask[1:]), ErrReply},
		"cut boundaries":    {lookuptest.Encode([]byte{1}, u32s(48, 0, 48, 1), aMask), ErrReply},
		"a frame more":      {lookuptest.Encode([]byte{1}, u32s(48), aMask, nil), ErrReply},
		"a hit of one byte": {lookuptest.Encode([]byte{1}, []byte{0}, nil), ErrReply},
		"more than asked":   {lookuptest.Encode([]byte{1}, u32s(51), aMask), ErrReply},
	} {
		s.reply.Store(bad.reply)
		plan, err = c.Plan(background, 50, hashes)
		require.ErrorIs(t, err, bad.want, what)
		require.Equal(t, api.Plan{}, plan)
	}
	_, err = c.Plan(background, -1, hashes)
	require.ErrorIs(t, err, ErrRequest)
}
