package client

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// releaseWire is the client's part of a release's wire.json.
type releaseWire struct {
	ClientCases []releaseClientCase `json:"client_cases"`
	DecodeCases []releaseDecodeCase `json:"decode_cases"`
}

// releaseClientCase is a series of calls of one client with one peer.
type releaseClientCase struct {
	ID        string              `json:"id"`
	HashLen   int                 `json:"hash_len"`
	NumHashes int                 `json:"num_hashes"`
	Steps     []releaseClientStep `json:"steps"`
}

// releaseClientStep is one call, or one answer of the peer.
type releaseClientStep struct {
	Do          string          `json:"do"`
	RequestID   string          `json:"req_id"`
	NumTokens   int64           `json:"num_tokens"`
	Hashes      *int            `json:"hashes"` // nil: all
	NonBlock    bool            `json:"non_block"`
	Reply       string          `json:"reply"`
	Frames      []string        `json:"frames"`
	NothingSent bool            `json:"nothing_sent"`
	Returns     json.RawMessage `json:"returns"`
}

// releaseDecodeCase is one reply. It is recorded from 0.29.0 on.
type releaseDecodeCase struct {
	ID     string `json:"id"`
	Reply  string `json:"reply"`
	Expect struct {
		Result json.RawMessage `json:"result"`
		Error  string          `json:"error"`
	} `json:"expect"`
}

// TestConformanceReleaseWire replays the calls and the replies of every release. Lookups that
// wait are made in every way that the Go client has.
func TestConformanceReleaseWire(t *testing.T) {
	for _, release := range conformance.Releases {
		t.Run(release, func(t *testing.T) {
			var file releaseWire
			name := "releases/" + release + "/wire.json"
			conformance.Load(t, name, &file)
			ways := newLookupWays(t)
			report := conformance.NewReport(t, name+", calls of the client")
			for i := range file.ClientCases {
				c := &file.ClientCases[i]
				v := c.replay(t)
				if v == (conformance.Verdict{}) && len(c.Steps) == 1 {
					v = c.judgeWays(ways)
				}
				report.Add(c.ID, v)
			}
			report.Done()
			if len(file.DecodeCases) == 0 {
				return // before 0.29.0: the reply is an integer
			}
			report = conformance.NewReport(t, name+", replies read by the client")
			for i := range file.DecodeCases {
				c := &file.DecodeCases[i]
				report.Add(c.ID, c.judge(ways))
			}
			report.Done()
			for name, way := range ways {
				require.EqualValues(t, 1, way.server.dials.Load(), "%s: a reply that is no hit concerns its lookup alone", name)
			}
		})
	}
}

// recordedHit is what a call of the reference returns.
type recordedHit struct {
	integer *big.Int // up to 0.28.0, of any size
	hit     api.Hit  // from 0.29.0 on
}

// parseRecordedHit returns nil if there is no answer yet.
func parseRecordedHit(raw json.RawMessage) (*recordedHit, error) {
	if string(raw) == "null" {
		return nil, nil //nolint:nilnil // documented
	}
	r := &recordedHit{}
	if raw[0] != '{' {
		r.integer = new(big.Int)
		return r, r.integer.UnmarshalJSON(raw)
	}
	var object struct {
		HitLength         int64      `json:"hit_length"`
		TailKeyBoundaries [][2]int64 `json:"tail_key_boundaries"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	r.hit.Tokens = object.HitLength
	for _, b := range object.TailKeyBoundaries {
		r.hit.TailBoundaries = append(r.hit.TailBoundaries, coordinator.TailBoundary{Group: int(b[0]), Tokens: b[1]})
	}
	return r, nil
}

// judge compares an answer of the Go client with the recorded one to the same reply. failed
// says that the reference did not accept the reply.
//
// The Go client is one client for all releases. So it differs from the reference where the
// releases differ, and in what no server sends:
//
//   - It takes 4 bytes, or 4 and tail boundaries, as the reference does from 0.29.0 on. Up to 0.28.0
//     the reference takes any number of bytes for an integer.
//   - A hit of more tokens than were asked for is an ErrReply, as is a boundary before the hit. The
//     reference returns them.
//   - 00 is ErrRefused. The reference returns 0 as for a hit of 0.
func (r *recordedHit) judge(reply []byte, asked int64, failed bool, got api.Hit, err error) conformance.Verdict {
	want, wantErr := readReply(reply, asked)
	switch {
	case wantErr == nil && r.integer != nil && len(reply) == 4 && r.integer.Cmp(big.NewInt(want.Tokens)) != 0:
		return conformance.Differs("the reference takes %x for %d", reply, r.integer)
	case wantErr == nil && r.integer == nil && (failed || !reflect.DeepEqual(r.hit, want)):
		return conformance.Differs("the reference takes %x for %v", reply, r.hit)
	case !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil):
		return conformance.Differs("reply %x: error %v, want %v", reply, err, wantErr)
	case !reflect.DeepEqual(got, want):
		return conformance.Differs("reply %x: %v, want %v", reply, got, want)
	}
	return conformance.Verdict{}
}

// readReply returns what the client makes of a reply to a lookup of asked tokens.
func readReply(reply []byte, asked int64) (hit api.Hit, err error) {
	switch {
	case len(reply) == 1 && reply[0] == netproto.StatusFailed:
		return hit, ErrRefused
	case badLength(reply):
		return hit, ErrReply
	}
	hit.Tokens = int64(binary.BigEndian.Uint32(reply))
	wrong := hit.Tokens > asked
	for rest := reply[4:]; len(rest) > 0; rest = rest[8:] {
		b := coordinator.TailBoundary{Group: int(binary.BigEndian.Uint32(rest)), Tokens: int64(binary.BigEndian.Uint32(rest[4:]))}
		wrong = wrong || b.Tokens < hit.Tokens
		hit.TailBoundaries = append(hit.TailBoundaries, b)
	}
	if wrong {
		return api.Hit{}, ErrReply
	}
	return hit, nil
}

// badLength reports whether the reference fails from 0.29.0 on for a reply's length.
func badLength(reply []byte) bool { return len(reply) < 4 || (len(reply)-4)%8 != 0 }

func (c *releaseDecodeCase) judge(ways lookupWays) conformance.Verdict {
	reply, err := hex.DecodeString(c.Reply)
	if err != nil {
		return conformance.Differs("%v", err)
	}
	recorded, failed := &recordedHit{}, c.Expect.Error == "ValueError"
	if !failed {
		if recorded, err = parseRecordedHit(c.Expect.Result); err != nil {
			return conformance.Differs("%v", err)
		}
	}
	for name, way := range ways {
		got, _, err := way.answer(reply, math.MaxUint32, coordinator.Hashes{})
		if v := recorded.judge(reply, math.MaxUint32, failed, got, err); v != (conformance.Verdict{}) {
			return conformance.Differs("%s: %s", name, v.Differs)
		}
	}
	return conformance.Verdict{}
}

// hashes returns the hashes of a lookup. A list of none has no hash length.
func (c *releaseClientCase) hashes(step *releaseClientStep) coordinator.Hashes {
	n := c.NumHashes
	if step.Hashes != nil {
		n = *step.Hashes
	}
	if n == 0 {
		return coordinator.Hashes{}
	}
	return coordinator.NewHashes(conformance.Blob(c.ID, n, c.HashLen), c.HashLen)
}

// judgeWays judges a case of one lookup in every way that waits.
func (c *releaseClientCase) judgeWays(ways lookupWays) conformance.Verdict {
	step := &c.Steps[0]
	reply, _ := hex.DecodeString(step.Reply)
	for name, way := range ways {
		hit, sent, err := way.answer(reply, step.NumTokens, c.hashes(step))
		if v := step.judgeBlocking(reply, sent, hit, err); v != (conformance.Verdict{}) {
			return conformance.Differs("%s: %s", name, v.Differs)
		}
	}
	return conformance.Verdict{}
}

// judgeBlocking judges a lookup that waits.
func (s *releaseClientStep) judgeBlocking(reply []byte, sent []string, hit api.Hit, err error) conformance.Verdict {
	if s.NothingSent {
		return s.judgeRefused(sent, true, hit, err)
	}
	if !slices.Equal(sent, s.Frames) {
		return conformance.Differs("sent %v, want %v", sent, s.Frames)
	}
	return s.judgeHit(reply, s.NumTokens, hit, err)
}

// judgeHit judges the answer to a lookup.
func (s *releaseClientStep) judgeHit(reply []byte, asked int64, hit api.Hit, err error) conformance.Verdict {
	recorded, parseErr := parseRecordedHit(s.Returns)
	if parseErr != nil || recorded == nil {
		return conformance.Differs("an answer, want %s (%v)", s.Returns, parseErr)
	}
	return recorded.judge(reply, asked, badLength(reply), hit, err)
}

// judgeRefused judges a lookup that cannot be sent. The Go client says so at once; a lookup of
// the reference that does not wait returns nothing first.
func (s *releaseClientStep) judgeRefused(sent []string, ready bool, hit api.Hit, err error) conformance.Verdict {
	recorded, parseErr := parseRecordedHit(s.Returns)
	switch {
	case parseErr != nil:
		return conformance.Differs("%v", parseErr)
	case recorded == nil && !s.NonBlock,
		recorded != nil && (!reflect.DeepEqual(recorded.hit, api.Hit{}) || recorded.integer != nil && recorded.integer.Sign() != 0):
		return conformance.Differs("the reference returns %s", s.Returns)
	case sent != nil || !ready || !reflect.DeepEqual(hit, api.Hit{}) || !errors.Is(err, ErrRequest):
		return conformance.Differs("sent %v, ready %v, %v, %v, want nothing and ErrRequest", sent, ready, hit, err)
	}
	return conformance.Verdict{}
}

// releaseReplay is a case that an AsyncClient replays.
type releaseReplay struct {
	*releaseClientCase
	client  *AsyncClient
	held    chan *fakeRequest
	waiting []*waitingRequest
	replies map[string][]byte // the peer's reply to a pending id
	asked   map[string]int64  // the tokens of its lookup
}

// waitingRequest is a request that the peer has not answered.
type waitingRequest struct {
	*fakeRequest
	id        string
	discarded bool
}

// replay judges a case with an AsyncClient.
func (c *releaseClientCase) replay(t *testing.T) conformance.Verdict {
	f, held := heldServer()
	r := &releaseReplay{releaseClientCase: c, client: fakeAsync(t, f), held: held, replies: map[string][]byte{}, asked: map[string]int64{}}
	for i := range c.Steps {
		if v := r.step(&c.Steps[i]); v != (conformance.Verdict{}) {
			return conformance.Differs("step %d: %s", i, v.Differs)
		}
	}
	if n := len(held); n > 0 {
		return conformance.Differs("%d requests too many", n)
	}
	return conformance.Verdict{}
}

func (r *releaseReplay) step(s *releaseClientStep) conformance.Verdict {
	switch s.Do {
	case "lookup":
		return r.lookup(s)
	case "peer":
		return r.peer(s)
	case "discard":
		r.client.Discard(s.RequestID)
		for _, w := range r.waiting {
			w.discarded = w.discarded || w.id == s.RequestID
		}
		return conformance.Verdict{}
	case "reset":
		return r.reset(s)
	case "pending":
		var want []string
		if err := json.Unmarshal(s.Returns, &want); err != nil {
			return conformance.Differs("%v", err)
		}
		if got := r.pending(); !slices.Equal(got, want) {
			return conformance.Differs("pending %v, want %v", got, want)
		}
		return conformance.Verdict{}
	}
	return conformance.Differs("unknown step %q", s.Do)
}

// pending returns the pending ids, sorted.
func (r *releaseReplay) pending() []string {
	r.client.transport.mu.Lock()
	defer r.client.transport.mu.Unlock()
	return slices.Sorted(maps.Keys(r.client.pending))
}

// receive waits until the peer has the request of id.
func (r *releaseReplay) receive(id string) (*waitingRequest, error) {
	select {
	case request := <-r.held:
		w := &waitingRequest{fakeRequest: request, id: id}
		r.waiting = append(r.waiting, w)
		return w, nil
	case <-time.After(lookuptest.Patience):
		return nil, errors.New("nothing was sent")
	}
}

func (r *releaseReplay) lookup(s *releaseClientStep) conformance.Verdict {
	wasPending := slices.Contains(r.pending(), s.RequestID)
	poll := func() (api.Hit, bool, error) { return r.client.Poll(s.RequestID, s.NumTokens, r.hashes(s)) }
	hit, ready, err := poll()
	if !wasPending && (s.NumTokens < 0 || s.NumTokens > math.MaxUint32) {
		return s.judgeRefused(nil, ready, hit, err)
	}
	if !wasPending {
		if ready {
			return conformance.Differs("%v, %v before it was sent", hit, err)
		}
		if _, err := r.receive(s.RequestID); err != nil {
			return conformance.Differs("%v", err)
		}
		if !s.NonBlock {
			if v := r.peer(s); v != (conformance.Verdict{}) {
				return v
			}
		}
	}
	if string(s.Returns) == "null" {
		if ready {
			return conformance.Differs("%v, %v, want none yet", hit, err)
		}
		return conformance.Verdict{}
	}
	for end := time.Now().Add(lookuptest.Patience); !ready && time.Now().Before(end); runtime.Gosched() {
		hit, ready, err = poll()
	}
	if !ready {
		return conformance.Differs("no answer, want %s", s.Returns)
	}
	return s.judgeHit(r.replies[s.RequestID], r.asked[s.RequestID], hit, err)
}

// peer answers the oldest request. The reference sends one at a time, so a lookup that is
// discarded behind another is never sent. The Go client has sent it; its answer is dropped.
func (r *releaseReplay) peer(s *releaseClientStep) conformance.Verdict {
	if len(r.waiting) == 0 {
		if s.NothingSent {
			return conformance.Verdict{}
		}
		return conformance.Differs("nothing was sent")
	}
	w := r.waiting[0]
	r.waiting = r.waiting[1:]
	switch sent := hexFrames(w.frames); {
	case s.NothingSent && !w.discarded:
		return conformance.Differs("sent %v, want nothing", sent)
	case !s.NothingSent && !slices.Equal(sent, s.Frames):
		return conformance.Differs("sent %v, want %v", sent, s.Frames)
	}
	reply, err := hex.DecodeString(s.Reply)
	if err != nil {
		return conformance.Differs("%v", err)
	}
	if !w.discarded {
		r.replies[w.id], r.asked[w.id] = reply, int64(w.numTokens)
	}
	w.send(reply)
	return conformance.Verdict{}
}

func (r *releaseReplay) reset(s *releaseClientStep) conformance.Verdict {
	done := make(chan error, 1)
	go func() { done <- r.client.reset(background) }()
	if _, err := r.receive("reset"); err != nil {
		return conformance.Differs("%v", err)
	}
	if v := r.peer(s); v != (conformance.Verdict{}) {
		return v
	}
	if err := <-done; fmt.Sprint(err == nil) != string(s.Returns) {
		return conformance.Differs("%v, want %s", err, s.Returns)
	}
	return conformance.Verdict{}
}
