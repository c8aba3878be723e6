package netproto

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorder writes down each call of the Handler as a line that does not depend
// on how the bytes were cut.
type recorder struct {
	lines  []string
	hashes []byte
	began  bool
	stop   int // Hashes returns false once this many bytes came; 0 never
}

func (r *recorder) Begin(q *Request) bool {
	r.began = true
	r.lines = append(r.lines, fmt.Sprintf("begin %s len=%d n=%d", q.Tag, q.HashLen, q.NumHashes))
	return true
}

func (r *recorder) Hashes(q *Request, hashes []byte) bool {
	if len(hashes) == 0 || len(hashes)%q.HashLen != 0 {
		r.lines = append(r.lines, fmt.Sprintf("BAD slice of %d bytes", len(hashes)))
	}
	r.hashes = append(r.hashes, hashes...)
	return r.stop == 0 || len(r.hashes) < r.stop
}

func (r *recorder) End(q *Request) bool {
	r.lines = append(r.lines, line(q, r.hashes))
	r.hashes = r.hashes[:0]
	return true
}

func (r *recorder) Dropped(q *Request) {
	r.lines = append(r.lines, fmt.Sprintf("dropped env=%x", q.Envelope))
}

func (r *recorder) Control(out []byte) {
	if len(out) == 0 {
		r.lines = append(r.lines, "ignored")
		return
	}
	r.lines = append(r.lines, fmt.Sprintf("control %x", out))
}

// line describes an ended request with all its fields.
func line(q *Request, hashes []byte) string {
	var s string
	switch q.Tag {
	case TagLookup:
		s = fmt.Sprintf(" tokens=%d unaligned=%v", q.NumTokens, q.Unaligned)
	case TagLookupFrom, TagExplain, TagPlan:
		s = fmt.Sprintf(" tokens=%d unaligned=%v from=%d", q.NumTokens, q.Unaligned, q.Start)
	case TagStore, TagEvict, TagResetRank:
		s = fmt.Sprintf(" rank=%v", q.GroupRank)
	case TagLoadMask, TagStoreMask, TagLookupMask, TagStorePrompt:
		p := &q.Prompt
		s = fmt.Sprintf(" prompt=%d,%d,%d,%d,%d ranks=%x states=%x", p.NumTokens, p.NumHashes, p.StartToken, p.PromptTokens, p.FirstHash, p.Ranks, p.States)
	case TagPing:
		s = fmt.Sprintf(" echo=%x", q.Echo)
	case TagPool:
		s = fmt.Sprintf(" description=%s", q.Description)
	case TagAuth:
		s = fmt.Sprintf(" token=%s", q.Token)
	}
	if q.Problem != nil {
		return fmt.Sprintf("%s env=%x problem=%s", q.Tag, q.Envelope, problemOf(q.Problem))
	}
	return fmt.Sprintf("%s env=%x%s hashes=%x", q.Tag, q.Envelope, s, hashes)
}

func problemOf(p *Problem) string {
	return fmt.Sprintf("%s, frame %d, limit %d: %s", p.Code, p.Frame, p.Limit, p.Text)
}

// bad is the problem of a wrong frame, in words.
func bad(frame int, format string, values ...any) string {
	return problemOf(&Problem{Code: "bad_request", Frame: frame, Text: fmt.Sprintf(format, values...)})
}

// large is the problem of a frame over a limit.
func large(frame int, limit int64, format string, values ...any) string {
	return problemOf(&Problem{Code: "too_large", Frame: frame, Limit: limit, Text: fmt.Sprintf(format, values...)})
}

// unknown is the problem of an unknown tag.
func unknown(tag string) string {
	text := fmt.Sprintf("unknown request %q", tag[:min(len(tag), 32)])
	if len(tag) > 32 {
		text += "..."
	}
	return problemOf(&Problem{Code: "unknown_request", Text: text})
}

var nothing = problemOf(&Problem{Code: "unknown_request", Text: "no request behind the delimiter"})

// feedAll feeds all of p to a Reader, also if End stops it.
func feedAll(r *Reader, p []byte, h Handler) error {
	for {
		n, err := r.Feed(p, h)
		if p = p[n:]; err != nil || len(p) == 0 {
			return err
		}
	}
}

// message encodes frames as one raw message.
func message(frames ...string) []byte {
	var b []byte
	for i, f := range frames {
		b = AppendFrame(b, []byte(f), i < len(frames)-1)
	}
	return b
}

func be(n int, v uint64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	return string(b[8-n:])
}

// numbers encodes numbers of 32 bits.
func numbers(values ...uint32) (frame string) {
	for _, v := range values {
		frame += be(4, uint64(v))
	}
	return frame
}

func hashes(n, hashLen int) string {
	var b []byte
	for i := range n {
		h := sha256.Sum256([]byte(fmt.Sprint("test:", i)))
		b = append(b, h[:hashLen]...)
	}
	return string(b)
}

// feed gives b to a fresh Reader in pieces of the given size (0: all at once).
func feed(b []byte, size int, limits Limits) ([]string, *Reader, error) {
	r := NewReader(limits, 16)
	lines, err := feedTo(r, b, size)
	return lines, r, err
}

// feedTo is feed with a Reader of the caller's.
func feedTo(r *Reader, b []byte, size int) ([]string, error) {
	rec := &recorder{}
	for len(b) > 0 {
		n := len(b)
		if size > 0 {
			n = min(n, size)
		}
		piece := bytes.Clone(b[:n]) // overwritten below, as a loop's buffer is
		if err := feedAll(r, piece, rec); err != nil {
			return rec.lines, err
		}
		for i := range piece {
			piece[i] = 0xCC
		}
		b = b[n:]
	}
	return rec.lines, nil
}

func TestReaderRequests(t *testing.T) {
	h3 := hashes(3, 16)
	hex3 := fmt.Sprintf("%x", h3)
	rank6, rank12 := be(2, 1)+be(2, 2)+be(2, 3), be(2, 1)+be(2, 2)+be(2, 3)+be(2, 4)+be(4, 77)
	for name, c := range map[string]struct {
		frames []string
		want   []string
	}{
		"lookup":           {[]string{"lookup", be(4, 48), be(2, 16), h3}, []string{"begin lookup len=16 n=3", "lookup env= tokens=48 unaligned=false hashes=" + hex3}},
		"lookup_from":      {[]string{"lookup_from", numbers(80, 32), be(2, 16), h3}, []string{"begin lookup_from len=16 n=3", "lookup_from env= tokens=80 unaligned=false from=32 hashes=" + hex3}},
		"from, no hashes":  {[]string{"lookup_from", numbers(33, 1<<32-1), be(2, 0), ""}, []string{"begin lookup_from len=0 n=0", "lookup_from env= tokens=33 unaligned=true from=4294967295 hashes="}},
		"from, empty blob": {[]string{"lookup_from", numbers(32, 32), be(2, 16), ""}, []string{"begin lookup_from len=16 n=0", "lookup_from env= tokens=32 unaligned=false from=32 hashes="}},
		"from, no length":  {[]string{"lookup_from", numbers(48, 0), be(2, 0), h3}, []string{"lookup_from env= problem=" + bad(3, "the blob is not empty, and hash_len is 0")}},
		"from, long hash":  {[]string{"lookup_from", numbers(48, 0), be(2, 65), h3}, []string{"lookup_from env= problem=" + bad(2, "hash_len is over 64")}},
		"from, odd length": {[]string{"lookup_from", numbers(48, 0), be(1, 16), h3}, []string{"lookup_from env= problem=" + bad(2, "hash_len is 1 byte, want 2")}},
		"from, cut":        {[]string{"lookup_from", numbers(48, 0), be(2, 16), h3 + "x"}, []string{"lookup_from env= problem=" + bad(3, "the blob is 49 bytes, want a multiple of hash_len, 16")}},
		"from, no start":   {[]string{"lookup_from", be(4, 48), be(2, 16), h3}, []string{"lookup_from env= problem=" + bad(1, "the frame of numbers is 4 bytes, want 8")}},
		"from, extra":      {[]string{"lookup_from", numbers(48, 0), be(2, 16), h3, ""}, []string{"lookup_from env= problem=" + bad(4, "frame 4 is one too many for lookup_from")}},
		"renew":            {[]string{"renew", be(2, 16), h3}, []string{"begin renew len=16 n=3", "renew env= hashes=" + hex3}},
		"explain":          {[]string{"explain", numbers(48, 16), be(2, 16), h3}, []string{"begin explain len=16 n=3", "explain env= tokens=48 unaligned=false from=16 hashes=" + hex3}},
		"tail ignored":     {[]string{"lookup", be(4, 48), be(2, 16), h3 + "tail"}, []string{"begin lookup len=16 n=3", "lookup env= tokens=48 unaligned=false hashes=" + hex3}},
		"extra ignored":    {[]string{"lookup", be(4, 48), be(2, 16), h3, "x", ""}, []string{"begin lookup len=16 n=3", "lookup env= tokens=48 unaligned=false hashes=" + hex3}},
		"long integers":    {[]string{"lookup", be(8, 1<<40), strings.Repeat("\x00", 300) + be(1, 16), h3}, []string{"begin lookup len=16 n=3", "lookup env= tokens=1099511627776 unaligned=false hashes=" + hex3}},
		"tokens overflow":  {[]string{"lookup", "\x01" + be(8, 0), be(2, 16), h3}, []string{"begin lookup len=16 n=3", fmt.Sprintf("lookup env= tokens=%d unaligned=false hashes=", uint64(math.MaxUint64)) + hex3}},
		"overflow odd":     {[]string{"lookup", "\x01" + be(8, 3), be(2, 16), h3}, []string{"begin lookup len=16 n=3", fmt.Sprintf("lookup env= tokens=%d unaligned=true hashes=", uint64(math.MaxUint64)) + hex3}},
		"empty integers":   {[]string{"lookup", "", "", h3}, []string{"begin lookup len=0 n=0", "lookup env= tokens=0 unaligned=false hashes="}},
		"no hashes":        {[]string{"lookup", be(4, 7), be(2, 0), ""}, []string{"begin lookup len=0 n=0", "lookup env= tokens=7 unaligned=true hashes="}},
		"hash too long":    {[]string{"lookup", be(4, 16), be(2, 65), strings.Repeat("x", 65)}, []string{"lookup env= problem=" + bad(2, "hash_len is over 64")}},
		"blob missing":     {[]string{"lookup", be(4, 16), be(2, 16)}, []string{"lookup env= problem=" + bad(3, "the blob is missing")}},
		"only a tag":       {[]string{"lookup"}, []string{"lookup env= problem=" + bad(1, "num_tokens is missing")}},
		"bare delimiter":   {[]string{"", "stat"}, []string{"stat env=0100 hashes="}},
		"envelope":         {[]string{"\x00id", "more", "", "reset", "x"}, []string{"reset env=01030069640104" + "6d6f7265" + "0100 hashes="}},
		"empty tag":        {[]string{"", ""}, []string{"unknown env=0100 problem=" + unknown("")}},
		"delimiter alone":  {[]string{""}, []string{"unknown env=0100 problem=" + nothing}},
		"wrong case":       {[]string{"LOOKUP", be(4, 16), be(2, 16), h3}, []string{"unknown env= problem=" + unknown("LOOKUP")}},
		"longer tag":       {[]string{"explains", be(4, 16), be(2, 16), h3}, []string{"unknown env= problem=" + unknown("explains")}},
		"store":            {[]string{"store", rank6, be(2, 16), h3}, []string{"begin store len=16 n=3", "store env= rank={1 2 3 0} hashes=" + hex3}},
		"store chunk":      {[]string{"store", rank12, be(2, 16), h3, h3[:16]}, []string{"begin store len=16 n=3", "store env= rank={1 2 3 4} hashes=" + hex3}},
		"store odd rank":   {[]string{"store", "1234567", be(2, 16), h3}, []string{"store env= problem=" + bad(1, "rank is 7 bytes, want 6, 8 or 12")}},
		"store long rank":  {[]string{"store", rank12 + "x", be(2, 16), h3}, []string{"store env= problem=" + bad(1, "rank is 13 bytes, want 6, 8 or 12")}},
		"store odd length": {[]string{"store", rank6, be(1, 16), h3}, []string{"store env= problem=" + bad(2, "hash_len is 1 byte, want 2")}},
		"store zero":       {[]string{"store", rank6, be(2, 0), h3}, []string{"store env= problem=" + bad(2, "hash_len is 0, want 1 to 64")}},
		"store cut":        {[]string{"store", rank6, be(2, 16), h3 + "x"}, []string{"store env= problem=" + bad(3, "the blob is 49 bytes, want a multiple of hash_len, 16")}},
		"store empty":      {[]string{"store", rank6, be(2, 16), ""}, []string{"store env= problem=" + bad(3, "the blob is empty")}},
		"store previous":   {[]string{"store", rank6, be(2, 16), h3, "short"}, []string{"begin store len=16 n=3", "store env= problem=" + bad(4, "the key behind the blob is 5 bytes, want 16")}},
		"store extra":      {[]string{"store", rank6, be(2, 16), h3, h3[:16], "x"}, []string{"begin store len=16 n=3", "store env= problem=" + bad(5, "frame 5 is one too many for store")}},
		"store no blob":    {[]string{"store", rank6, be(2, 16)}, []string{"store env= problem=" + bad(3, "the blob is missing")}},
		"evict":            {[]string{"evict", rank6, be(2, 16), h3}, []string{"begin evict len=16 n=3", "evict env= rank={1 2 3 0} hashes=" + hex3}},
		"evict extra":      {[]string{"evict", rank6, be(2, 16), h3, "x"}, []string{"evict env= problem=" + bad(4, "frame 4 is one too many for evict")}},
		"ping":             {[]string{"ping", "a", "", "bc"}, []string{"ping env= echo=0101610100" + "00026263 hashes="}},
		"ping alone":       {[]string{"ping"}, []string{"ping env= echo= hashes="}},
		"ping large":       {[]string{"ping", strings.Repeat("x", MaxPing), "y"}, []string{"ping env= problem=" + large(2, 65536, "payload exceeds 65536 bytes")}},
		"explain extra":    {[]string{"explain", numbers(48, 0), be(2, 16), h3, "x"}, []string{"explain env= problem=" + bad(4, "frame 4 is one too many for explain")}},
		"plan extra":       {[]string{"plan", numbers(48, 0), be(2, 16), h3, ""}, []string{"plan env= problem=" + bad(4, "frame 4 is one too many for plan")}},
		"stat extra":       {[]string{"stat", ""}, []string{"stat env= problem=" + bad(1, "frame 1 is one too many for stat")}},
		"odd tag":          {[]string{"\xffst\"at\n"}, []string{"unknown env= problem=" + unknown("\xffst\"at\n")}},
		"long tag":         {[]string{strings.Repeat("x", 32)}, []string{"unknown env= problem=" + unknown(strings.Repeat("x", 32))}},
		"a byte longer":    {[]string{strings.Repeat("x", 33)}, []string{"unknown env= problem=" + unknown(strings.Repeat("x", 33))}},
		"much longer":      {[]string{strings.Repeat("y", 333), "x"}, []string{"unknown env= problem=" + unknown(strings.Repeat("y", 333))}},
		"pool empty":       {[]string{"pool", ""}, []string{"pool env= problem=" + bad(1, "description is empty")}},
		"pool large":       {[]string{"pool", strings.Repeat("x", MaxDescription+1)}, []string{"pool env= problem=" + large(1, 65536, "description exceeds 65536 bytes")}},
		"auth empty":       {[]string{"auth", ""}, []string{"auth env= problem=" + bad(1, "token is empty")}},
		"auth long":        {[]string{"auth", strings.Repeat("x", 256)}, []string{"auth env= problem=" + large(1, 255, "token exceeds 255 bytes")}},
		"auth extra":       {[]string{"auth", "x", ""}, []string{"auth env= problem=" + bad(2, "frame 2 is one too many for auth")}},
	} {
		t.Run(name, func(t *testing.T) {
			b := message(c.frames...)
			for _, size := range []int{0, 1, 2, 3, 7, 16, 17} {
				got, r, err := feed(b, size, Limits{})
				require.NoError(t, err, "pieces of %d", size)
				require.Equal(t, c.want, got, "pieces of %d", size)
				require.False(t, r.InMessage())
			}
		})
	}
}

func TestReaderPingAtItsLimit(t *testing.T) {
	payload := strings.Repeat("x", MaxPing)
	got, _, err := feed(message("ping", payload), 1000, Limits{})
	require.NoError(t, err)
	require.Equal(t, []string{fmt.Sprintf("ping env= echo=%x hashes=", message(payload))}, got)
}

func TestReaderSplitAtEveryOffset(t *testing.T) {
	var b []byte
	b = append(b, message("\x00id7", "", "lookup", be(4, 1600), be(2, 32), hashes(100, 32)+"tail")...)
	b = append(b, message("store", be(2, 0)+be(2, 0)+be(2, 0), be(2, 20), hashes(9, 20))...)
	b = append(b, message("ping", "payload")...)
	want, _, err := feed(b, 0, Limits{})
	require.NoError(t, err)
	require.Len(t, want, 5)
	for cut := 1; cut < len(b); cut++ {
		r, rec := NewReader(Limits{}, 16), &recorder{}
		require.NoError(t, feedAll(r, b[:cut], rec))
		require.NoError(t, feedAll(r, b[cut:], rec))
		require.Equal(t, want, rec.lines, "cut at %d", cut)
		require.Less(t, r.Copied(), uint64(64), "cut at %d: more than one hash was copied", cut)
	}
}

func TestReaderStopsHandingOn(t *testing.T) {
	b := message("lookup", be(4, 1600), be(2, 32), hashes(100, 32))
	for _, size := range []int{1, 100, 500} {
		r, rec := NewReader(Limits{}, 16), &recorder{stop: 64}
		for rest := b; len(rest) > 0; {
			n := min(size, len(rest))
			require.NoError(t, feedAll(r, rest[:n], rec))
			rest = rest[n:]
		}
		require.Len(t, rec.lines, 2)
		_, got, _ := strings.Cut(rec.lines[1], "hashes=")
		require.GreaterOrEqual(t, len(got)/2, 64)
		require.Less(t, len(got)/2, 64+size+32)
	}
}

func TestReaderBrokenFraming(t *testing.T) {
	envelope := make([]string, MaxEnvelopeFrames+1)
	for i := range envelope {
		envelope[i] = "\x00x"
	}
	good := string(message("stat"))
	for name, c := range map[string]struct {
		bytes string
		want  error
	}{
		"HTTP":                {"GET / HTTP/1.1\r\n\r\n", ErrFirstByte},
		"TLS hello":           {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", ErrFirstByte},
		"command first":       {"\x04\x05READY", ErrFirstByte},
		"reserved bit":        {good + "\x08\x00", ErrFlags},
		"command later":       {good + "\x04\x05READY", ErrCommand},
		"length 2^63":         {"\x02\x80\x00\x00\x00\x00\x00\x00\x00", ErrMessageLength},
		"length 2^64-1":       {"\x03" + strings.Repeat("\xff", 8), ErrMessageLength},
		"message too long":    {string(message("lookup", be(4, 16), be(2, 16), strings.Repeat("x", 2000))), ErrMessageLength},
		"frames without end":  {strings.Repeat("\x01\x01x", 40), ErrFrameCount},
		"empty without end":   {strings.Repeat("\x01\x00", 40), ErrFrameCount},
		"envelope frames":     {string(message(append(envelope, "", "stat")...)), ErrEnvelope},
		"address too long":    {string(message("\x00"+strings.Repeat("x", 255), "", "stat")), ErrEnvelope},
		"long and more":       {string(message("\x00"+strings.Repeat("x", 255), "stat")), ErrEnvelope},
		"no delimiter":        {string(message("\x00id", "lookup", be(4, 16))), ErrNoDelimiter},
		"an address alone":    {string(message("\x00id")), ErrNoDelimiter},
		"a long one alone":    {string(message("\x00" + strings.Repeat("x", 500))), ErrNoDelimiter},
		"2nd address is long": {string(message("\x00", strings.Repeat("x", 256), "", "stat")), ErrEnvelope},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{0, 1, 3} {
				_, r, err := feed([]byte(c.bytes), size, Limits{MaxMessage: 1000})
				require.ErrorIs(t, err, c.want)
				var fe *FrameError
				require.ErrorAs(t, err, &fe)
				require.Equal(t, err, feedAll(r, []byte(good), &recorder{}), "the error is final")
			}
		})
	}
}

func TestReaderKeepsLittle(t *testing.T) {
	r := NewReader(Limits{}, 16)
	require.NoError(t, feedAll(r, message("ping", strings.Repeat("x", MaxPing)), &recorder{}))
	require.LessOrEqual(t, cap(r.req.Echo), maxIdle)
}

// discard is a Handler that does nothing and allocates nothing.
type discard struct{ n int }

func (d *discard) Begin(*Request) bool              { return true }
func (d *discard) Hashes(_ *Request, p []byte) bool { d.n += len(p); return true }
func (d *discard) End(*Request) bool                { return true }
func (d *discard) Dropped(*Request)                 {}
func (d *discard) Control(out []byte)               { d.n += len(out) }

func TestReaderDoesNotAllocate(t *testing.T) {
	msg := message("\x00id", "", "lookup", be(4, 1600), be(2, 32), hashes(100, 32))
	requireNoAllocs(t, func(b []byte) []byte { return append(b, msg...) })
}

// requireNoAllocs checks that encoding requests, and reading them in pieces of 1,000 bytes,
// allocates nothing. encode appends the requests.
func requireNoAllocs(t *testing.T, encode func(b []byte) []byte) {
	t.Helper()
	b := encode(nil)
	r, d := NewReader(Limits{}, 16), &discard{}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		b = encode(b[:0])
		for p := b; len(p) > 0; {
			n := min(1000, len(p))
			_ = feedAll(r, p[:n], d)
			p = p[n:]
		}
	}))
	require.Positive(t, d.n)
}

func BenchmarkReader(b *testing.B) {
	for _, n := range []int{64, 8192, 131072} {
		b.Run(fmt.Sprintf("hashes=%d", n), func(b *testing.B) {
			msg := message("lookup", be(4, uint64(16*n)), be(2, 32), strings.Repeat("h", 32*n))
			r, d := NewReader(Limits{}, 16), &discard{}
			b.SetBytes(int64(len(msg)))
			b.ReportAllocs()
			for b.Loop() {
				for p := msg; len(p) > 0; {
					k := min(64<<10, len(p))
					_ = feedAll(r, p[:k], d)
					p = p[k:]
				}
			}
		})
	}
}

// slowParse is the oracle: it looks at the whole buffer at once and builds
// messages as lists of frames, after the text of the protocol.
func slowParse(b []byte, limits Limits, plain bool) (lines []string, bad error) {
	switch {
	case len(b) == 0:
		return nil, nil
	case b[0] == 0xFF:
		return slowZMTP(b, limits, plain)
	case b[0] > 3:
		return nil, ErrFirstByte
	}
	return slowTraffic(b, limits, false)
}

// slowTraffic reads commands, which the raw dialect has not, and messages.
func slowTraffic(b []byte, limits Limits, zmtp bool) (lines []string, bad error) {
	for len(b) > 0 {
		var frames []string
		total := 0
		for {
			if len(b) == 0 {
				return lines, nil
			}
			switch f := b[0]; {
			case f&0xF8 != 0:
				return lines, ErrFlags
			case f&4 != 0 && !zmtp:
				return lines, ErrCommand
			case f&4 != 0:
				name, data, n, err := slowCommand(b, 4096)
				if n == 0 || err != nil {
					return lines, err
				}
				b = b[n:]
				switch {
				case name == "ERROR":
					return lines, ErrPeerError
				case name != "PING":
					lines = append(lines, "ignored")
				case len(data) < 2 || len(data) > 18:
					return lines, ErrBadCommand
				default:
					lines = append(lines, fmt.Sprintf("control 04%02x04504f4e47%x", 5+len(data)-2, data[2:]))
				}
				continue
			}
			head, size, ok := slowHeader(b)
			if !ok {
				return lines, nil
			}
			more := b[0]&1 != 0
			inEnvelope := zmtp || len(frames) > 0 && frames[0] != "" && frames[0][0] == 0
			for _, f := range frames {
				inEnvelope = inEnvelope && f != ""
			}
			switch {
			case len(frames) == limits.MaxFrames:
				return lines, ErrFrameCount
			case size > uint64(limits.MaxMessage) || int64(total+head)+int64(size) > limits.MaxMessage:
				return lines, ErrMessageLength
			case inEnvelope && more && (size > 255 || size > 0 && len(frames) >= 8):
				return lines, ErrEnvelope
			case inEnvelope && !more && size > 0 && !zmtp:
				return lines, ErrNoDelimiter
			case !zmtp && len(frames) == 0 && size > 0 && len(b) > head && b[head] == 0 && !more:
				return lines, ErrNoDelimiter
			case !zmtp && len(frames) == 0 && size > 255 && len(b) > head && b[head] == 0:
				return lines, ErrEnvelope
			}
			total += head + int(size)
			if uint64(len(b)-head) < size {
				return lines, nil
			}
			frames = append(frames, string(b[head:head+int(size)]))
			b = b[head+int(size):]
			if !more {
				break
			}
		}
		lines = append(lines, slowMessage(frames, zmtp)...)
	}
	return lines, nil
}

// slowHeader returns the length of a frame's header and of its body.
func slowHeader(b []byte) (head int, size uint64, ok bool) {
	if b[0]&2 != 0 {
		if len(b) < 9 {
			return 0, 0, false
		}
		return 9, binary.BigEndian.Uint64(b[1:9]), true
	}
	if len(b) < 2 {
		return 0, 0, false
	}
	return 2, uint64(b[1]), true
}

// slowCommand splits the command that b begins with; n is 0 while it is not whole.
func slowCommand(b []byte, limit uint64) (name, data string, n int, err error) {
	if b[0]&1 != 0 {
		return "", "", 0, ErrBadCommand
	}
	head, size, ok := slowHeader(b)
	switch {
	case !ok:
		return "", "", 0, nil
	case size == 0 || size > limit:
		return "", "", 0, ErrBadCommand
	case len(b) < head+int(size):
		return "", "", 0, nil
	}
	body := string(b[head : head+int(size)])
	if end := 1 + int(body[0]); end == 1 || end > len(body) {
		return "", "", 0, ErrBadCommand
	} else {
		return body[1:end], body[end:], head + int(size), nil
	}
}

// slowZMTP reads a connection that begins with a greeting.
func slowZMTP(b []byte, limits Limits, plain bool) (lines []string, bad error) {
	lines = []string{fmt.Sprintf("control ff00000000000000007f03014e554c4c%0*d", 2*(64-16), 0)}
	if plain {
		lines = []string{"control ff00000000000000007f0301"}
	}
	switch {
	case len(b) > 9 && b[9]&1 == 0:
		return lines, ErrVersion
	case len(b) > 9 && b[9] != 0x7F:
		return lines, ErrGreeting
	case len(b) > 10 && b[10] < 3:
		return lines, ErrVersion
	case len(b) < 64:
		return lines, nil
	}
	mechanism, last := strings.TrimRight(string(b[12:32]), "\x00"), "READY"
	b = b[64:]
	switch {
	case plain && mechanism == "PLAIN":
		lines, last = append(lines, fmt.Sprintf("control 504c41494e%030d01%062d", 0, 0)), "INITIATE"
		n, answer, err := slowHello(b)
		if lines = append(lines, answer...); n == 0 || err != nil {
			return lines, err
		}
		b = b[n:]
	case plain:
		lines = append(lines, fmt.Sprintf("control 4e554c4c%096d", 0))
	}
	if last == "READY" && mechanism != "NULL" {
		return lines, ErrMechanism
	}
	name, data, n, err := slowHandshake(b, 4096)
	if n == 0 || err != nil {
		return lines, err
	}
	if err := slowReady(last, name, data); err != nil {
		if err == ErrSocketType {
			lines = append(lines, "control 0425"+hex.EncodeToString([]byte("\x05ERROR\x1eonly-REQ-and-DEALER-are-served")))
		}
		return lines, err
	}
	lines = append(lines, "control 0419"+hex.EncodeToString([]byte("\x05READY\x0bSocket-Type\x00\x00\x00\x03REP")))
	more, bad := slowTraffic(b[n:], limits, true)
	return append(lines, more...), bad
}

// slowHandshake is slowCommand in a handshake, where nothing but commands may come.
func slowHandshake(b []byte, limit uint64) (name, data string, n int, err error) {
	switch {
	case len(b) == 0:
		return "", "", 0, nil
	case b[0]&0xF8 != 0:
		return "", "", 0, ErrFlags
	case b[0]&4 == 0:
		return "", "", 0, ErrHandshake
	}
	return slowCommand(b, limit)
}

// slowHello reads a HELLO and returns its length and the answer; n is 0 while it is not whole.
func slowHello(b []byte) (n int, answer []string, err error) {
	name, data, n, err := slowHandshake(b, 518)
	switch {
	case n == 0 || err != nil:
		return 0, nil, err
	case name == "ERROR":
		return 0, nil, ErrPeerError
	case name != "HELLO":
		return 0, nil, ErrHandshake
	}
	var fields []string
	for len(fields) < 2 && data != "" && len(data) > int(data[0]) {
		fields = append(fields, data[1:1+data[0]])
		data = data[1+data[0]:]
	}
	switch {
	case len(fields) < 2 || data != "":
		return 0, nil, ErrBadCommand
	case !plainCheck([]byte(fields[0]), []byte(fields[1])):
		return 0, []string{"control 040a" + hex.EncodeToString([]byte("\x05ERROR\x03400"))}, ErrCredentials
	}
	return n, []string{"control 0408" + hex.EncodeToString([]byte("\x07WELCOME"))}, nil
}

func slowReady(want, name, data string) error {
	if name == "ERROR" {
		return ErrPeerError
	}
	if name != want {
		return ErrHandshake
	}
	for data != "" {
		n := int(data[0])
		if n == 0 || len(data) < 1+n+4 {
			return ErrProperties
		}
		key, size := data[1:1+n], binary.BigEndian.Uint32([]byte(data[1+n:]))
		data = data[1+n+4:]
		if uint64(size) > uint64(len(data)) {
			return ErrProperties
		}
		value := data[:size]
		data = data[size:]
		lower := []byte(key)
		for i, c := range lower {
			if 'A' <= c && c <= 'Z' {
				lower[i] = c + 'a' - 'A'
			}
		}
		if string(lower) == "socket-type" && value != "REQ" && value != "DEALER" {
			return ErrSocketType
		}
	}
	return nil
}

func slowEnvelope(frames []string, zmtp bool) (env string, body []string, ok bool) {
	if !zmtp && frames[0] != "" && frames[0][0] != 0 {
		return "", frames, true
	}
	for i, f := range frames {
		if i == len(frames)-1 && (f != "" || zmtp) {
			break // neither address nor delimiter
		}
		env += string(AppendFrame(nil, []byte(f), true))
		if f == "" {
			return env, frames[i+1:], true
		}
	}
	return env, nil, false
}

// slowKind is a request: its frames behind the tag as slowFrame names them, how many there must be, and
// whether further ones may follow.
type slowKind struct {
	frames string
	least  int
	more   bool
}

var slowKinds = map[string]slowKind{
	"lookup": {"num_tokens any_hash_len any_blob", 3, true}, "reset": {"", 0, true}, "ping": {"", 0, true}, "stat": {"", 0, false},
	"lookup_from": {"numbers hash_len optional_blob", 3, false},
	"explain":     {"numbers hash_len optional_blob", 3, false}, "plan": {"numbers hash_len optional_blob", 3, false},
	"store": {"rank hash_len blob key", 3, false}, "evict": {"rank hash_len blob", 3, false}, "reset_rank": {"reset_rank", 1, false},
	"renew": {"hash_len blob", 2, false},
	"pool":  {"description", 1, false}, "auth": {"token", 1, false},
	"load_mask": {"numbers", 1, false}, "store_mask": {"numbers", 1, false}, "lookup_mask": {"numbers", 1, false},
	"store_prompt": {"numbers ranks states hash_len blob", 5, false},
}

func slowMessage(frames []string, zmtp bool) (lines []string) {
	env, body, ok := slowEnvelope(frames, zmtp)
	if !ok {
		return []string{fmt.Sprintf("dropped env=%x", env)}
	}
	q := Request{Envelope: []byte(env)}
	head, problem, got := "unknown", nothing, ""
	if len(body) > 0 {
		kind, known := slowKinds[body[0]]
		if problem = unknown(body[0]); known {
			head = body[0]
			for q.Tag.String() != head {
				q.Tag++
			}
			lines, got, problem = slowBody(&q, kind, body)
		}
	}
	if problem != "" {
		return append(lines, fmt.Sprintf("%s env=%x problem=%s", head, env, problem))
	}
	return append(lines, line(&q, []byte(got)))
}

// slowBody reads the frames behind a tag.
func slowBody(q *Request, kind slowKind, body []string) (lines []string, got, problem string) {
	frames := strings.Fields(kind.frames)
	for i, f := range body[1:] {
		switch {
		case i >= len(frames) && !kind.more:
			return lines, got, bad(i+1, "frame %d is one too many for %s", i+1, body[0])
		case body[0] == "ping":
			q.Echo = append(q.Echo, f...)
			if len(q.Echo) > 65536 {
				return nil, "", large(i+1, 65536, "payload exceeds 65536 bytes")
			}
		case i < len(frames):
			if problem = slowFrame(q, frames[i], i+1, f); problem != "" {
				return lines, got, problem
			}
			if strings.HasSuffix(frames[i], "blob") {
				if i == len(frames)-1 && len(body) > len(frames)+1 && !kind.more {
					return nil, "", bad(i+2, "frame %d is one too many for %s", i+2, body[0])
				}
				lines, got = append(lines, fmt.Sprintf("begin %s len=%d n=%d", q.Tag, q.HashLen, q.NumHashes)), f[:q.NumHashes*q.HashLen]
			}
		}
	}
	if i := len(body) - 1; i < kind.least {
		problem = bad(i+1, "%s is missing", slowNames[frames[i]])
	}
	if body[0] == "ping" {
		q.Echo = message(body[1:]...)
	}
	return lines, got, problem
}

var slowNames = map[string]string{
	"num_tokens": "num_tokens", "any_hash_len": "hash_len", "hash_len": "hash_len", "any_blob": "the blob", "optional_blob": "the blob", "blob": "the blob", "rank": "rank", "reset_rank": "rank",
	"numbers": "the frame of numbers", "ranks": "the frame of ranks", "states": "the frame of states", "description": "description", "token": "token",
}

// slowFrame reads frame i of a request.
func slowFrame(q *Request, kind string, i int, f string) (problem string) {
	n, odd := slowInt(f)
	p := &q.Prompt
	switch kind {
	case "num_tokens":
		q.NumTokens, q.Unaligned = n, odd != 0
	case "any_hash_len":
		if n > 64 {
			return bad(i, "hash_len is over 64")
		}
		q.HashLen = int(n)
	case "any_blob":
		if q.HashLen > 0 {
			q.NumHashes = len(f) / q.HashLen
		}
	case "hash_len":
		switch {
		case len(f) != 2:
			return bad(i, "hash_len is %s, want 2", bytesOf(f))
		case n == 0 && !slowFrom[q.Tag]:
			return bad(i, "hash_len is 0, want 1 to 64")
		case n > 64:
			return bad(i, "hash_len is over 64")
		}
		q.HashLen = int(n)
	case "optional_blob", "blob":
		switch {
		case f == "" && slowFrom[q.Tag]:
			return ""
		case f == "":
			return bad(i, "the blob is empty")
		case q.HashLen == 0:
			return bad(i, "the blob is not empty, and hash_len is 0")
		case len(f)%q.HashLen != 0:
			return bad(i, "the blob is %s, want a multiple of hash_len, %d", bytesOf(f), q.HashLen)
		}
		q.NumHashes = len(f) / q.HashLen
	case "key":
		if len(f) != q.HashLen {
			return bad(i, "the key behind the blob is %s, want %d", bytesOf(f), q.HashLen)
		}
	case "rank", "reset_rank":
		switch {
		case kind == "rank" && len(f) != 6 && len(f) != 8 && len(f) != 12:
			return bad(i, "rank is %s, want 6, 8 or 12", bytesOf(f))
		case kind == "reset_rank" && len(f) != 6 && len(f) != 8:
			return bad(i, "rank is %s, want 6 or 8", bytesOf(f))
		}
		q.GroupRank = slowRank(f)
	case "ranks":
		p.Ranks = []byte(f)
		return slowEntries(i, f, "ranks", 6)
	case "states":
		p.States = []byte(f)
		return slowEntries(i, f, "states", 8)
	case "description":
		q.Description = []byte(f)
		return slowText(i, f, kind, 65536)
	case "token":
		q.Token = []byte(f)
		return slowText(i, f, kind, 255)
	default:
		if slowFrom[q.Tag] {
			if len(f) != 8 {
				return bad(i, "the frame of numbers is %s, want 8", bytesOf(f))
			}
			start, _ := slowInt(f[4:])
			q.NumTokens, odd = slowInt(f[:4])
			q.Start, q.Unaligned = uint32(start), odd != 0
			return ""
		}
		list := map[string][]*uint32{
			"load_mask": {&p.NumTokens, &p.NumHashes}, "store_mask": {&p.NumTokens, &p.StartToken, &p.PromptTokens},
			"lookup_mask": {&p.NumTokens}, "store_prompt": {&p.NumTokens, &p.StartToken, &p.PromptTokens, &p.FirstHash},
		}[q.Tag.String()]
		if len(f) != 4*len(list) {
			return bad(i, "the frame of numbers is %s, want %d", bytesOf(f), 4*len(list))
		}
		for k, field := range list {
			v, _ := slowInt(f[4*k : 4*k+4])
			*field = uint32(v)
		}
	}
	return ""
}

// slowFrom has the requests with the frames of a lookup_from.
var slowFrom = map[Tag]bool{TagLookupFrom: true, TagExplain: true, TagPlan: true}

func bytesOf(f string) string {
	if len(f) == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", len(f))
}

func slowRank(f string) (r WireRank) {
	for i, field := range []*uint16{&r.Group, &r.TPRank, &r.PPRank, &r.PCPRank} {
		if len(f) > 2*i {
			v, _ := slowInt(f[2*i : 2*i+2])
			*field = uint16(v)
		}
	}
	return r
}

func slowEntries(i int, f, name string, size int) string {
	switch {
	case len(f)%size != 0:
		return bad(i, "the frame of %s is %s, want a multiple of %d", name, bytesOf(f), size)
	case len(f) > 4096*size:
		return large(i, 4096, "the frame of %s exceeds 4096 %s", name, name)
	}
	return ""
}

func slowText(i int, f, name string, limit int) string {
	switch {
	case f == "":
		return bad(i, "%s is empty", name)
	case len(f) > limit:
		return large(i, int64(limit), "%s exceeds %d bytes", name, limit)
	}
	return ""
}

func slowInt(s string) (v uint64, mod16 byte) {
	for _, b := range []byte(s) {
		if v > math.MaxUint64>>8 {
			v = math.MaxUint64
		} else {
			v = v<<8 | uint64(b)
		}
	}
	if s != "" {
		mod16 = s[len(s)-1] % 16
	}
	return v, mod16
}

// checkAgainstOracle requires that a Reader, with PLAIN or without, gets from b what slowParse gets.
func checkAgainstOracle(t *testing.T, b []byte, plain bool, seed uint64) {
	checkStopping(t, b, plain, seed)
	limits := Limits{MaxMessage: 70000, MaxFrames: 12}
	want, wantErr := slowParse(b, limits, plain)
	rng := rand.New(rand.NewPCG(seed, 1))
	r, rec := newTestReader(limits, plain), &recorder{}
	var err error
	for rest := b; len(rest) > 0 && err == nil; {
		n := 1 + rng.IntN(min(len(rest), 1+rng.IntN(2000)))
		err = feedAll(r, rest[:n], rec)
		rest = rest[n:]
	}
	if wantErr == nil {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, wantErr)
	}
	require.Equal(t, append([]string{}, want...), append([]string{}, trimBegin(rec.lines)...), "seed %d", seed)
}

// trimBegin takes away a Begin at the end: the oracle sees only whole messages.
func trimBegin(lines []string) []string {
	if n := len(lines); n > 0 && strings.HasPrefix(lines[n-1], "begin") {
		return lines[:n-1]
	}
	return lines
}

func FuzzReader(f *testing.F) {
	h := hashes(5, 20)
	f.Add(message("lookup", be(4, 80), be(2, 20), h+"t"), uint64(1))
	f.Add(message("\x00id", "", "store", be(6, 1), be(2, 20), h), uint64(2))
	f.Add(append(message("ping", "a", "b"), message("evict", be(8, 1), be(2, 20), h)...), uint64(3))
	f.Add(append(message("reset"), "\x02\x80\x00\x00\x00\x00\x00\x00\x00"...), uint64(4))
	f.Add(message("lookup_from", numbers(80, 16), be(2, 20), h), uint64(19))
	f.Add(append(message("lookup_from", numbers(16, 16), be(2, 0), ""), message("lookup_from", numbers(80, 0), be(2, 20), h+"t")...), uint64(20))
	f.Add(message("explain", numbers(80, 0), be(2, 20), h, "x"), uint64(6))
	f.Add([]byte("GET / HTTP/1.1\r\n"), uint64(5))
	f.Add(message("plan", numbers(80, 16), be(2, 20), h), uint64(10))
	f.Add(message("\x00id", "", "load_mask", be(8, 5)), uint64(11))
	f.Add(append(message("store_mask", numbers(0, 0, 7)), message("lookup_mask", be(4, 80))...), uint64(12))
	f.Add(message("store_prompt", numbers(0, 0, 1<<8, 0), be(6, 1)+be(6, 2), be(8, 16), be(2, 20), h), uint64(13))
	f.Add(message("store_prompt", numbers(0, 0, 0, 3), "", "", be(2, 20), h, ""), uint64(14))
	f.Add(append(message("reset_rank", be(8, math.MaxUint64)), message("pool", "{}")...), uint64(15))
	f.Add(append(message("auth", "token"), message("\x00id", "", "auth", "")...), uint64(16))
	f.Add(append(message("evict", be(6, 1), be(2, 20), h, "x"), message("plan", numbers(80, 16), be(4, 20), h, "x")...), uint64(17))
	f.Add(append(message("store", be(7, 1), be(2, 20), h), message("\x00id", "lookup")...), uint64(18))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) { checkAgainstOracle(t, b, false, seed) })
}

func FuzzParseMessage(f *testing.F) {
	f.Add(message("a", "", "b"))
	f.Add([]byte("\x02\x80\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		frames, n, err := ParseMessage(b, Limits{MaxMessage: 5000, MaxFrames: 9}, nil)
		if err != nil {
			require.Zero(t, n)
			return
		}
		var s []string
		for _, f := range frames {
			s = append(s, string(f))
		}
		again, m, err := ParseMessage(message(s...), Limits{}, nil)
		require.NoError(t, err)
		require.Equal(t, frames, again)
		require.Equal(t, len(message(s...)), m)
		for cut := range min(n, 300) {
			_, _, err := ParseMessage(b[:cut], Limits{MaxMessage: 5000, MaxFrames: 9}, nil)
			require.ErrorIs(t, err, ErrShort)
		}
	})
}
