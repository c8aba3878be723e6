package netproto

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
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
		"auth alone":       {[]string{"auth"}, []string{"auth env= problem=" + bad(1, "token is missing")}},
		"pool alone":       {[]string{"pool"}, []string{"pool env= problem=" + bad(1, "description is missing")}},
		"pool extra":       {[]string{"pool", "{}", ""}, []string{"pool env= problem=" + bad(2, "frame 2 is one too many for pool")}},
		"renew alone":      {[]string{"renew"}, []string{"renew env= problem=" + bad(1, "hash_len is missing")}},
		"renew zero":       {[]string{"renew", be(2, 0), h3}, []string{"renew env= problem=" + bad(1, "hash_len is 0, want 1 to 64")}},
		"renew empty":      {[]string{"renew", be(2, 16), ""}, []string{"renew env= problem=" + bad(2, "the blob is empty")}},
		"renew extra":      {[]string{"renew", be(2, 16), h3, ""}, []string{"renew env= problem=" + bad(3, "frame 3 is one too many for renew")}},
		"store alone":      {[]string{"store"}, []string{"store env= problem=" + bad(1, "rank is missing")}},
		"store no length":  {[]string{"store", rank6}, []string{"store env= problem=" + bad(2, "hash_len is missing")}},
		"from alone":       {[]string{"lookup_from"}, []string{"lookup_from env= problem=" + bad(1, "the frame of numbers is missing")}},
		"no hash length":   {[]string{"lookup", be(4, 16)}, []string{"lookup env= problem=" + bad(2, "hash_len is missing")}},
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
