package client

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/conformance"
)

// wireClientCase is one call of the client and the scripted reply.
type wireClientCase struct {
	ID        string          `json:"id"`
	Call      string          `json:"call"`
	TokenLen  int64           `json:"token_len"`
	HashLen   int             `json:"hash_len"`
	NumHashes int             `json:"num_hashes"`
	HashBytes string          `json:"hash_bytes"`
	OneShort  bool            `json:"last_hash_one_byte_short"`
	Frames    []string        `json:"frames"`
	Reply     *string         `json:"reply"`
	Result    json.RawMessage `json:"result"`
}

func TestConformanceWire(t *testing.T) {
	var file struct {
		Cases []wireClientCase `json:"cases"`
	}
	conformance.Load(t, "wire.json", &file)
	ways := newLookupWays(t)
	report := conformance.NewReport(t, "wire.json, calls of the client")
	for i := range file.Cases {
		report.Add(file.Cases[i].ID, file.Cases[i].judge(t, ways))
	}
	report.Done()
}

func (c *wireClientCase) judge(t *testing.T, ways lookupWays) conformance.Verdict {
	if c.TokenLen < 0 || c.TokenLen >= 1<<32 {
		if c.Frames != nil {
			return conformance.Differs("something is to be sent")
		}
		return conformance.Verdict{} // Lookup takes 32 bits: such a call does not compile
	}
	var reply []byte // none if nothing is to be sent
	var err error
	if c.Reply != nil {
		reply, err = hex.DecodeString(*c.Reply)
		require.NoError(t, err)
	}
	if c.Call == "reset" {
		sent := ways["calls"].exchange(reply, func() { err = ways["calls"].client.Reset(background) })
		return c.compare(sent, strconv.FormatBool(err == nil), err)
	}
	hashes := coordinator.NewHashes(c.blob(t), c.HashLen)
	for name, way := range ways {
		hit, sent, err := way.answer(reply, c.TokenLen, hashes)
		if v := c.compare(sent, strconv.FormatInt(hit.Tokens, 10), err); v != (conformance.Verdict{}) {
			return conformance.Differs("%s: %s", name, v.Differs)
		}
	}
	return conformance.Verdict{}
}

// blob returns the hashes of the lookup.
func (c *wireClientCase) blob(t *testing.T) []byte {
	var blob []byte
	if c.HashBytes == "" {
		blob = conformance.Blob(c.ID, c.NumHashes, c.HashLen)
	} else {
		b, err := hex.DecodeString(c.HashBytes)
		require.NoError(t, err)
		blob = slices.Repeat(b, c.HashLen)
	}
	if c.OneShort {
		blob = blob[:len(blob)-1]
	}
	return blob
}

// compare compares what was sent, and the answer, with what is recorded.
func (c *wireClientCase) compare(sent []string, got string, err error) conformance.Verdict {
	if !slices.Equal(sent, c.Frames) {
		return conformance.Differs("sent %v, want %v", sent, c.Frames)
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
