package client

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// wireClientCase is one call of the client and the scripted reply.
type wireClientCase struct {
	ID         string          `json:"id"`
	Call       string          `json:"call"`
	TokenLen   int64           `json:"token_len"`
	HashLen    int             `json:"hash_len"`
	NumHashes  int             `json:"num_hashes"`
	HashBytes  string          `json:"hash_bytes"`
	OneShort   bool            `json:"last_hash_one_byte_short"`
	Frames     []string        `json:"frames"`
	Reply      *string         `json:"reply"`
	Result     json.RawMessage `json:"result"`
	blob       []byte
	sentFrames []string
}

func TestConformanceWire(t *testing.T) {
	var file struct {
		Cases []wireClientCase `json:"cases"`
	}
	conformance.Load(t, "wire.json", &file)
	report := conformance.NewReport(t, "wire.json, calls of the client")
	for i := range file.Cases {
		report.Add(file.Cases[i].ID, file.Cases[i].judge(t))
	}
	report.Done()
}

func (c *wireClientCase) judge(t *testing.T) conformance.Verdict {
	if c.TokenLen < 0 || c.TokenLen >= 1<<32 {
		if c.Frames != nil {
			return conformance.Differs("something is to be sent")
		}
		return conformance.Verdict{} // Lookup takes 32 bits: such a call does not compile
	}
	if c.HashBytes == "" {
		c.blob = conformance.Blob(c.ID, c.NumHashes, c.HashLen)
	} else {
		b, err := hex.DecodeString(c.HashBytes)
		require.NoError(t, err)
		c.blob = slices.Repeat(b, c.HashLen)
	}
	if c.OneShort {
		c.blob = c.blob[:len(c.blob)-1]
	}
	got, err := c.call(t)
	if !slices.Equal(c.sentFrames, c.Frames) {
		return conformance.Differs("sent %v, want %v", c.sentFrames, c.Frames)
	}
	want := string(c.Result)
	if n, parseErr := strconv.ParseInt(want, 10, 64); parseErr == nil && c.Call != "reset" && c.Reply != nil && (len(*c.Reply) != 2*4 || n > c.TokenLen) {
		// The reference returns an integer of any length and size. The protocol's hit has 4 bytes, and
		// is no longer than what was asked for. A refusal is a hit of 0 to the reference.
		if !errors.Is(err, errHit) && (n != 0 || !errors.Is(err, ErrRefused)) {
			return conformance.Differs("error %v, want one of a hit of %s", err, want)
		}
		want = "0"
	}
	if got != want {
		return conformance.Differs("result %s, want %s", got, want)
	}
	return conformance.Verdict{}
}

// call makes the client's call against a peer that gives the scripted reply.
func (c *wireClientCase) call(t *testing.T) (result string, err error) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	require.NoError(t, here.SetDeadline(time.Now().Add(lookuptest.Patience)))
	served := make(chan []string, 1)
	go func() { served <- c.serve(here) }()
	client := dialOver(t, there)
	if c.Call == "reset" {
		err = client.Reset(context.Background())
		result = strconv.FormatBool(err == nil)
	} else {
		var hit api.Hit
		hit, err = client.Lookup(context.Background(), c.TokenLen, coordinator.NewHashes(c.blob, c.HashLen))
		result = strconv.FormatInt(hit.Tokens, 10)
	}
	here.Close()
	c.sentFrames = <-served
	return result, err
}

// serve reads the setup and one request, and writes the replies.
func (c *wireClientCase) serve(conn net.Conn) (sent []string) {
	var in []byte
	for buf := make([]byte, 4096); ; {
		n, err := conn.Read(buf)
		if err != nil {
			return nil
		}
		in = append(in, buf[:n]...)
		frames, used, err := netproto.ParseMessage(in, netproto.Limits{}, nil)
		if err != nil {
			continue
		}
		in = in[used:]
		envelope := netproto.AppendFrame(netproto.AppendFrame(nil, frames[0], true), nil, true)
		if string(frames[2]) == "ping" { // of the setup
			_, _ = conn.Write(netproto.AppendDone(nil, envelope, nil))
			continue
		}
		for _, f := range frames[2:] {
			sent = append(sent, hex.EncodeToString(f))
		}
		reply, _ := hex.DecodeString(*c.Reply)
		_, _ = conn.Write(netproto.AppendFrame(envelope, reply, false))
		return sent
	}
}
