package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// tableFrames are the frames of the requests of the table.
var tableFrames = func() map[string][][]byte {
	u32 := func(numbers ...uint32) (frame []byte) {
		for _, n := range numbers {
			frame = binary.BigEndian.AppendUint32(frame, n)
		}
		return frame
	}
	blob := tableHashes.Bytes()
	hashLen, rank, none := []byte{0, 32}, make([]byte, 8), []byte{}
	hashed := func(first []byte) [][]byte { return [][]byte{first, hashLen, blob} }
	frames := map[string][][]byte{
		"lookup": hashed(u32(tableTokensAsked)), "explain": hashed(u32(tableTokensAsked)), "plan": hashed(u32(tableTokensAsked)),
		"load_mask": {u32(64, 4)}, "store_mask": {u32(64, 0, netproto.PromptTokensUnknown)}, "lookup_mask": {u32(64)},
		"store": hashed(rank), "evict": hashed(rank), "reset_rank": {rank}, "reset": {},
		"store_prompt": {u32(64, 0, netproto.PromptTokensUnknown, 0), none, none, hashLen, blob},
		"ping":         {}, "stat": {}, "holders": {[]byte("{}"), hashLen, blob}, "pool": {[]byte(`{"name":"llama"}`)},
	}
	for name, f := range frames {
		frames[name] = append([][]byte{[]byte(name)}, f...)
	}
	return frames
}()

// rawReplies makes the requests of the table on one connection, behind an auth if the peer has a
// token. It returns the replies until the connection is closed.
func rawReplies(p peer) (auth [][]byte, replies [][][]byte) {
	c, err := p.dialRaw()
	if err != nil {
		return nil, nil
	}
	defer c.Close()
	if p.token != "" {
		if auth, err = c.exchange([]byte("auth"), []byte(p.token)); err != nil {
			return nil, nil
		}
	}
	for _, request := range tableRequests {
		reply, err := c.exchange(tableFrames[request]...)
		if err != nil {
			break
		}
		replies = append(replies, reply)
	}
	return auth, replies
}

// rawOutcome makes the requests of the table on one connection.
func rawOutcome(t *testing.T, row tableRow, p peer) (outcome string) {
	auth, replies := rawReplies(p)
	if auth != nil {
		assert.Equal(t, row.auth, string(authCharacter(t, row, auth)))
	}
	for i, reply := range replies {
		outcome += string(replyCharacter(t, row, tableRequests[i], reply, false))
	}
	if len(replies) < len(tableRequests) {
		outcome += "x"
	}
	return outcome
}

// authCharacter returns the character of a reply to auth.
func authCharacter(t *testing.T, row tableRow, reply [][]byte) rune {
	if len(reply) == 3 && string(reply[0]) == "\x00" {
		assert.JSONEq(t, `{"refusal":"not_authenticated","request":"auth"}`, string(reply[2]))
		return 'n'
	}
	var access api.Access
	require.Len(t, reply, 2)
	require.NoError(t, json.Unmarshal(reply[1], &access))
	assert.Equal(t, row.token, access.Name)
	return '+'
}

// replyCharacter returns the character of a reply in the raw dialect or in ZMTP.
func replyCharacter(t *testing.T, row tableRow, request string, reply [][]byte, zmtp bool) rune {
	switch zeros := make([]byte, 4); {
	case request == "lookup" && len(reply) == 1 && len(reply[0]) >= 4 && !bytes.Equal(reply[0], zeros):
		assert.EqualValues(t, tablePools[row.pool], binary.BigEndian.Uint32(reply[0]))
		return '+'
	case request == "lookup" && row.pool == "" && zmtp: // of vLLM 0.33.0
		require.Equal(t, [][]byte{zeros}, reply)
		return '-'
	case string(reply[0]) == "\x01":
		return '+'
	}
	require.Equal(t, "\x00", string(reply[0]))
	if zmtp {
		assert.Len(t, reply, 1)
		return '-'
	}
	if len(reply) < 3 {
		return 'r'
	}
	var got api.Refusal
	require.NoError(t, json.Unmarshal(reply[2], &got))
	assert.Equal(t, api.Refusal{Refusal: api.RefusalNotAllowed, Request: request}, got)
	assert.Contains(t, string(reply[1]), "not allowed: "+request)
	return '-'
}

// goCalls are the requests of the table by the Go client.
var goCalls = map[string]func(ctx context.Context, c *client.Client, hit int64) error{
	"lookup": func(ctx context.Context, c *client.Client, hit int64) error {
		got, err := c.Lookup(ctx, tableTokensAsked, tableHashes)
		if err == nil && got.Tokens != hit {
			err = errors.New("another hit")
		}
		return err
	},
	"explain": func(ctx context.Context, c *client.Client, _ int64) error {
		_, err := c.Explain(ctx, tableTokensAsked, tableHashes)
		return err
	},
	"plan": func(ctx context.Context, c *client.Client, _ int64) error {
		_, err := c.Plan(ctx, tableTokensAsked, tableHashes)
		return err
	},
	"load_mask": func(ctx context.Context, c *client.Client, _ int64) error {
		_, err := c.LoadMask(ctx, 4, 64)
		return err
	},
	"store_mask": func(ctx context.Context, c *client.Client, _ int64) error {
		_, err := c.StoreMask(ctx, 64, 0, -1)
		return err
	},
	"lookup_mask": func(ctx context.Context, c *client.Client, _ int64) error {
		_, err := c.LookupMask(ctx, 64)
		return err
	},
	"store": func(ctx context.Context, c *client.Client, _ int64) error {
		return c.Store(ctx, netproto.GroupRank{}, tableHashes)
	},
	"store_prompt": func(ctx context.Context, c *client.Client, _ int64) error {
		_, err := c.StorePrompt(ctx, api.PromptStore{NumTokens: 64}, tableHashes)
		return err
	},
	"evict": func(ctx context.Context, c *client.Client, _ int64) error {
		return c.Evict(ctx, netproto.GroupRank{}, tableHashes)
	},
	"reset_rank": func(ctx context.Context, c *client.Client, _ int64) error {
		return c.ResetRank(ctx, netproto.GroupRank{})
	},
	"reset": func(ctx context.Context, c *client.Client, _ int64) error { return c.Reset(ctx) },
	"ping":  func(ctx context.Context, c *client.Client, _ int64) error { return c.Ping(ctx) },
	"holders": func(ctx context.Context, c *client.Client, _ int64) error {
		_, err := c.Holders(ctx, nil, tableHashes)
		return err
	},
	"stat": func(ctx context.Context, c *client.Client, _ int64) error {
		_, err := c.Stat(ctx)
		return err
	},
}

// goOutcome makes the requests of the table by the Go client, pipeOutcome by one with a pipeline.
func goOutcome(_ *testing.T, row tableRow, p peer) string { return clientOutcome(row, p) }

func pipeOutcome(_ *testing.T, row tableRow, p peer) string {
	return clientOutcome(row, p, client.WithPipeline())
}

func clientOutcome(row tableRow, p peer, opts ...client.Option) (outcome string) {
	c, err := p.dial(opts...)
	if err == nil {
		defer c.Close()
	}
	for _, request := range tableRequests {
		switch {
		case outcome == "x":
			return outcome
		case errors.Is(err, client.ErrNotAuthenticated):
			outcome += "n"
		case err != nil:
			return outcome + "x"
		case request == "pool":
			c, err := p.dial(append(opts, client.WithPoolName("llama"))...)
			if err == nil {
				c.Close()
			}
			outcome += string(errorCharacter(err))
		default:
			outcome += string(errorCharacter(goCalls[request](context.Background(), c, tablePools[row.pool])))
		}
	}
	return outcome
}

// errorCharacter returns the character of an error of the Go client.
func errorCharacter(err error) rune {
	switch {
	case err == nil:
		return '+'
	case errors.Is(err, client.ErrNotAllowed) && errors.Is(err, client.ErrRefused):
		return '-'
	case errors.Is(err, client.ErrNotAuthenticated) && errors.Is(err, client.ErrRefused):
		return 'n'
	case errors.Is(err, client.ErrRefused):
		return 'r'
	case errors.Is(err, client.ErrConnect):
		return 'x'
	}
	return '?'
}

// pythonJob is what testdata/access_peers.py reads. It makes the requests of each peer, after it
// has filled the pools over the socket unix.
type pythonJob struct {
	Unix     string           `json:"unix"`
	Pools    map[string]int64 `json:"pools"` // hits of the table's lookup
	Hashes   []string         `json:"hashes"`
	Tokens   int              `json:"tokens"`
	Requests []string         `json:"requests"`
	Frames   [][]string       `json:"frames"`
	Peers    []pythonPeer     `json:"peers"`
}

// pythonPeer is a peer of the Python client or of libzmq.
type pythonPeer struct {
	Kind        string `json:"kind"`
	Address     string `json:"address"`
	Token       string `json:"token"`
	TLS         bool   `json:"tls"`
	CA          string `json:"ca"`
	Certificate string `json:"certificate"` // of NAME.crt and NAME.key without the end, empty for none
}

func (s *tableServer) pythonPeer(kind string, row tableRow, p peer) pythonPeer {
	peer := pythonPeer{Kind: kind, Address: p.address, Token: p.token, TLS: p.tls != nil, CA: s.files.caFile}
	if _, exists := tableCertificates[row.certificate]; exists {
		peer.Certificate = filepath.Join(s.files.dir, row.certificate)
	}
	return peer
}

// run returns for each peer what has become of each request: of the Python client a character, of
// libzmq the frames of the reply in hex, or n. It also returns what the clients have logged.
func (j pythonJob) run(t *testing.T, python string) (replies [][]any, log string) {
	t.Helper()
	j.Requests, j.Tokens = tableRequests, tableTokensAsked
	for _, hash := range tableHashes.All() {
		j.Hashes = append(j.Hashes, hex.EncodeToString(hash))
	}
	for _, request := range j.Requests {
		var frames []string
		for _, f := range tableFrames[request] {
			frames = append(frames, hex.EncodeToString(f))
		}
		j.Frames = append(j.Frames, frames)
	}
	in, err := json.Marshal(j)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), python, "-B", filepath.Join("testdata", "access_peers.py"))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join("..", "..", "clients", "python"))
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", &stderr)
	require.NoError(t, json.Unmarshal(out, &replies))
	require.Len(t, replies, len(j.Peers))
	return replies, stderr.String()
}

// pythonOutcome returns the characters of the replies to a peer.
func pythonOutcome(t *testing.T, kind string, row tableRow, replies []any) string {
	var outcome strings.Builder
	for i, reply := range replies {
		frames, isFrames := reply.([]any)
		if !isFrames {
			outcome.WriteString(reply.(string))
			continue
		}
		var decoded [][]byte
		for _, f := range frames {
			b, err := hex.DecodeString(f.(string))
			require.NoError(t, err)
			decoded = append(decoded, b)
		}
		require.Equal(t, "zmq", kind)
		outcome.WriteRune(replyCharacter(t, row, tableRequests[i], decoded, true))
	}
	return outcome.String()
}
