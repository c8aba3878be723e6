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

func (r *recorder) End(q *Request) {
	r.lines = append(r.lines, line(q, r.hashes))
	r.hashes = r.hashes[:0]
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
	case TagLookup, TagExplain, TagPlan:
		s = fmt.Sprintf(" tokens=%d unaligned=%v", q.NumTokens, q.Unaligned)
	case TagStore, TagEvict, TagResetRank:
		s = fmt.Sprintf(" rank=%v", q.GroupRank)
	case TagLoadMask, TagStoreMask, TagLookupMask, TagStorePrompt:
		p := &q.Prompt
		s = fmt.Sprintf(" prompt=%d,%d,%d,%d,%d ranks=%x states=%x", p.NumTokens, p.NumHashes, p.StartToken, p.PromptTokens, p.FirstHash, p.Ranks, p.States)
	case TagPing:
		s = fmt.Sprintf(" echo=%x", q.Echo)
	case TagPool:
		s = fmt.Sprintf(" description=%s", q.Description)
	case TagHolders:
		s = fmt.Sprintf(" query=%s", q.HoldersQuery)
	case TagAuth:
		s = fmt.Sprintf(" token=%s", q.Token)
	}
	if q.Problem != nil {
		return fmt.Sprintf("%s env=%x problem=%v", q.Tag, q.Envelope, q.Problem)
	}
	return fmt.Sprintf("%s env=%x%s hashes=%x", q.Tag, q.Envelope, s, hashes)
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
		"explain":          {[]string{"explain", be(4, 48), be(2, 16), h3 + "t", "x"}, []string{"begin explain len=16 n=3", "explain env= tokens=48 unaligned=false hashes=" + hex3}},
		"tail ignored":     {[]string{"lookup", be(4, 48), be(2, 16), h3 + "tail"}, []string{"begin lookup len=16 n=3", "lookup env= tokens=48 unaligned=false hashes=" + hex3}},
		"extra ignored":    {[]string{"lookup", be(4, 48), be(2, 16), h3, "x", ""}, []string{"begin lookup len=16 n=3", "lookup env= tokens=48 unaligned=false hashes=" + hex3}},
		"long integers":    {[]string{"lookup", be(8, 1<<40), strings.Repeat("\x00", 300) + be(1, 16), h3}, []string{"begin lookup len=16 n=3", "lookup env= tokens=1099511627776 unaligned=false hashes=" + hex3}},
		"tokens overflow":  {[]string{"lookup", "\x01" + be(8, 0), be(2, 16), h3}, []string{"begin lookup len=16 n=3", fmt.Sprintf("lookup env= tokens=%d unaligned=false hashes=", uint64(math.MaxUint64)) + hex3}},
		"overflow odd":     {[]string{"lookup", "\x01" + be(8, 3), be(2, 16), h3}, []string{"begin lookup len=16 n=3", fmt.Sprintf("lookup env= tokens=%d unaligned=true hashes=", uint64(math.MaxUint64)) + hex3}},
		"empty integers":   {[]string{"lookup", "", "", h3}, []string{"begin lookup len=0 n=0", "lookup env= tokens=0 unaligned=false hashes="}},
		"no hashes":        {[]string{"lookup", be(4, 7), be(2, 0), ""}, []string{"begin lookup len=0 n=0", "lookup env= tokens=7 unaligned=true hashes="}},
		"hash too long":    {[]string{"lookup", be(4, 16), be(2, 65), strings.Repeat("x", 65)}, []string{"lookup env= problem=" + ErrHashLen.Error()}},
		"blob missing":     {[]string{"lookup", be(4, 16), be(2, 16)}, []string{"lookup env= problem=" + ErrMissingFrame.Error()}},
		"only a tag":       {[]string{"lookup"}, []string{"lookup env= problem=" + ErrMissingFrame.Error()}},
		"bare delimiter":   {[]string{"", "stat"}, []string{"stat env=0100 hashes="}},
		"envelope":         {[]string{"\x00id", "more", "", "reset", "x"}, []string{"reset env=01030069640104" + "6d6f7265" + "0100 hashes="}},
		"empty tag":        {[]string{"", ""}, []string{"unknown env=0100 problem=" + ErrUnknownTag.Error()}},
		"delimiter alone":  {[]string{""}, []string{"unknown env=0100 problem=" + ErrUnknownTag.Error()}},
		"no delimiter":     {[]string{"\x00id", "lookup"}, []string{"dropped env=01030069640106" + "6c6f6f6b7570"}},
		"wrong case":       {[]string{"LOOKUP", be(4, 16), be(2, 16), h3}, []string{"unknown env= problem=" + ErrUnknownTag.Error()}},
		"longer tag":       {[]string{"explains", be(4, 16), be(2, 16), h3}, []string{"unknown env= problem=" + ErrUnknownTag.Error()}},
		"store":            {[]string{"store", rank6, be(2, 16), h3}, []string{"begin store len=16 n=3", "store env= rank={1 2 3 0} hashes=" + hex3}},
		"store chunk":      {[]string{"store", rank12, be(2, 16), h3, h3[:16]}, []string{"begin store len=16 n=3", "store env= rank={1 2 3 4} hashes=" + hex3}},
		"store odd rank":   {[]string{"store", "1234567", be(2, 16), h3}, []string{"store env= problem=" + ErrGroupRankLen.Error()}},
		"store long rank":  {[]string{"store", rank12 + "x", be(2, 16), h3}, []string{"store env= problem=" + ErrGroupRankLen.Error()}},
		"store odd length": {[]string{"store", rank6, be(1, 16), h3}, []string{"store env= problem=" + ErrHashLen.Error()}},
		"store zero":       {[]string{"store", rank6, be(2, 0), h3}, []string{"store env= problem=" + ErrHashLen.Error()}},
		"store cut":        {[]string{"store", rank6, be(2, 16), h3 + "x"}, []string{"store env= problem=" + ErrCutKey.Error()}},
		"store empty":      {[]string{"store", rank6, be(2, 16), ""}, []string{"store env= problem=" + ErrEmptyBlob.Error()}},
		"store previous":   {[]string{"store", rank6, be(2, 16), h3, "short"}, []string{"begin store len=16 n=3", "store env= problem=" + ErrCutKey.Error()}},
		"store extra":      {[]string{"store", rank6, be(2, 16), h3, h3[:16], "x"}, []string{"begin store len=16 n=3", "store env= problem=" + ErrExtraFrame.Error()}},
		"store no blob":    {[]string{"store", rank6, be(2, 16)}, []string{"store env= problem=" + ErrMissingFrame.Error()}},
		"evict":            {[]string{"evict", rank6, be(2, 16), h3}, []string{"begin evict len=16 n=3", "evict env= rank={1 2 3 0} hashes=" + hex3}},
		"evict extra":      {[]string{"evict", rank6, be(2, 16), h3, "x"}, []string{"begin evict len=16 n=3", "evict env= problem=" + ErrExtraFrame.Error()}},
		"ping":             {[]string{"ping", "a", "", "bc"}, []string{"ping env= echo=0101610100" + "00026263 hashes="}},
		"ping alone":       {[]string{"ping"}, []string{"ping env= echo= hashes="}},
		"ping large":       {[]string{"ping", strings.Repeat("x", MaxPing), "y"}, []string{"ping env= problem=" + ErrPingLen.Error()}},
	} {
		t.Run(name, func(t *testing.T) {
			b := message(c.frames...)
			for _, size := range []int{0, 1, 2, 3, 7, 16, 17} {
				got, r, err := feed(b, size, Limits{})
				require.NoError(t, err, "pieces of %d", size)
				require.Equal(t, c.want, got, "pieces of %d", size)
				require.False(t, r.InMessage())
				require.False(t, r.req.begun)
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
	envelope := make([]string, MaxEnvelopeFrames+3)
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
		"envelope frames":     {string(message(envelope...)), ErrEnvelope},
		"address too long":    {string(message("\x00"+strings.Repeat("x", 255), "", "stat")), ErrEnvelope},
		"long and more":       {string(message("\x00"+strings.Repeat("x", 255), "stat")), ErrEnvelope},
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
	require.LessOrEqual(t, cap(r.req.Echo), maxIdleEcho)
}

// discard is a Handler that does nothing and allocates nothing.
type discard struct{ n int }

func (d *discard) Begin(*Request) bool              { return true }
func (d *discard) Hashes(_ *Request, p []byte) bool { d.n += len(p); return true }
func (d *discard) End(*Request)                     {}
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
				if len(frames) > 0 {
					return lines, ErrBadCommand
				}
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
			case !zmtp && len(frames) == 0 && more && size > 255 && len(b) > head && b[head] == 0:
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
		if last := i == len(frames)-1; last && (len(f) > 255 || i >= 8 && f != "" || zmtp && f == "") {
			break // neither address nor delimiter
		}
		env += string(AppendFrame(nil, []byte(f), true))
		if f == "" {
			return env, frames[i+1:], true
		}
	}
	return env, nil, false
}

func slowMessage(frames []string, zmtp bool) (lines []string) {
	env, body, ok := slowEnvelope(frames, zmtp)
	q := Request{Envelope: []byte(env)}
	if !ok {
		return []string{fmt.Sprintf("dropped env=%x", q.Envelope)}
	}
	if len(body) > 0 {
		q.Tag = map[string]Tag{"lookup": TagLookup, "explain": TagExplain, "store": TagStore, "evict": TagEvict, "reset": TagReset, "ping": TagPing, "stat": TagStat,
			"pool": TagPool, "plan": TagPlan, "load_mask": TagLoadMask, "store_mask": TagStoreMask, "lookup_mask": TagLookupMask, "store_prompt": TagStorePrompt, "reset_rank": TagResetRank, "auth": TagAuth,
			"holders": TagHolders}[body[0]]
	}
	var got string
	switch q.Tag {
	case TagUnknown:
		q.Problem = ErrUnknownTag
	case TagLookup, TagExplain, TagPlan:
		lines, got = slowLookup(&q, body)
	case TagLoadMask, TagStoreMask, TagLookupMask:
		q.Problem = slowOnly(body, func(f string) error { return slowNumbers(&q, f) })
	case TagStorePrompt:
		lines, got = slowStorePrompt(&q, body)
	case TagResetRank:
		q.Problem = slowOnly(body, func(f string) (err error) {
			if q.GroupRank, err = parseGroupRank([]byte(f)); err == nil && len(f) == 12 {
				err = ErrGroupRankLen
			}
			return err
		})
	case TagPool:
		q.Problem = slowOnly(body, func(f string) error {
			if q.Description = []byte(f); f == "" || len(f) > 65536 {
				return ErrDescription
			}
			return nil
		})
	case TagAuth:
		q.Problem = slowOnly(body, func(f string) error {
			if q.Token = []byte(f); f == "" || len(f) > 255 {
				return ErrToken
			}
			return nil
		})
	case TagHolders:
		lines, got = slowHolders(&q, body)
	case TagStore, TagEvict:
		lines, got = slowKeys(&q, body)
	case TagPing:
		size := 0
		for _, f := range body[1:] {
			size += len(f)
		}
		if q.Echo = message(body[1:]...); size > 65536 {
			q.Problem = ErrPingLen
		}
	}
	return append(lines, line(&q, []byte(got)))
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

func slowLookup(q *Request, body []string) ([]string, string) {
	if len(body) > 2 {
		if n, _ := slowInt(body[2]); n > 64 {
			q.Problem = ErrHashLen
			return nil, ""
		}
	}
	if len(body) < 4 {
		q.Problem = ErrMissingFrame
		return nil, ""
	}
	var odd byte
	q.NumTokens, odd = slowInt(body[1])
	q.Unaligned = odd != 0
	n, _ := slowInt(body[2])
	count := 0
	if n > 0 {
		count = len(body[3]) / int(n)
	}
	return []string{fmt.Sprintf("begin %s len=%d n=%d", q.Tag, n, count)}, body[3][:count*int(n)]
}

func slowKeys(q *Request, body []string) (lines []string, got string) {
	n, count := 0, 0
	for i, f := range body {
		var err error
		switch i {
		case 1:
			q.GroupRank, err = parseGroupRank([]byte(f))
		case 2:
			v, _ := slowInt(f)
			if n = int(v % 1000); len(f) != 2 || v == 0 || v > 64 {
				err = ErrHashLen
			}
		case 3:
			switch {
			case q.Problem != nil:
			case len(f)%n != 0:
				err = ErrCutKey
			case f == "":
				err = ErrEmptyBlob
			default:
				count = len(f) / n
				lines = append(lines, fmt.Sprintf("begin %s len=%d n=%d", q.Tag, n, count))
				got = f
			}
		case 4:
			if q.Tag == TagEvict {
				err = ErrExtraFrame
			} else if len(f) != n && q.Problem == nil {
				err = ErrCutKey
			}
		default:
			if i > 4 {
				err = ErrExtraFrame
			}
		}
		if err != nil && q.Problem == nil {
			q.Problem = err
		}
	}
	if len(body) < 4 && q.Problem == nil {
		q.Problem = ErrMissingFrame
	}
	return lines, got
}

func slowHolders(q *Request, body []string) (lines []string, got string) {
	if len(body) > 1 {
		if q.HoldersQuery = []byte(body[1]); body[1] == "" || len(body[1]) > 8192 {
			q.Problem = ErrHoldersQuery
		}
	}
	n := 0
	if len(body) > 2 {
		v, _ := slowInt(body[2])
		if n = int(v % 1000); q.Problem == nil && (len(body[2]) != 2 || v > 64) {
			q.Problem = ErrHashLen
		}
	}
	switch {
	case q.Problem != nil:
	case len(body) < 4:
		q.Problem = ErrMissingFrame
	case n == 0 && body[3] != "":
		q.Problem = ErrHashLen
	case n > 0 && len(body[3])%n != 0:
		q.Problem = ErrCutKey
	default:
		lines, got = []string{fmt.Sprintf("begin holders len=%d n=%d", n, len(body[3])/max(n, 1))}, body[3]
	}
	return lines, got
}

// slowOnly judges a request that has one frame behind its tag.
func slowOnly(body []string, judge func(frame string) error) error {
	switch len(body) {
	case 1:
		return ErrMissingFrame
	case 2:
		return judge(body[1])
	}
	if err := judge(body[1]); err != nil {
		return err
	}
	return ErrExtraFrame
}

// slowNumbers judges the frame of numbers of a prompt.
func slowNumbers(q *Request, f string) error {
	p := &q.Prompt
	fields := map[Tag][]*uint32{
		TagLoadMask:    {&p.NumTokens, &p.NumHashes},
		TagStoreMask:   {&p.NumTokens, &p.StartToken, &p.PromptTokens},
		TagLookupMask:  {&p.NumTokens},
		TagStorePrompt: {&p.NumTokens, &p.StartToken, &p.PromptTokens, &p.FirstHash},
	}[q.Tag]
	if len(f) != 4*len(fields) {
		return ErrPromptLen
	}
	for i, field := range fields {
		v, _ := slowInt(f[4*i : 4*i+4])
		*field = uint32(v)
	}
	return nil
}

func slowStorePrompt(q *Request, body []string) (lines []string, got string) {
	n := uint64(0)
	for i, f := range body {
		var err error
		switch i {
		case 0:
		case 1:
			err = slowNumbers(q, f)
		case 2:
			if q.Prompt.Ranks = []byte(f); len(f)%6 != 0 || len(f) > 6*4096 {
				err = ErrRanks
			}
		case 3:
			if q.Prompt.States = []byte(f); len(f)%8 != 0 || len(f) > 8*4096 {
				err = ErrStates
			}
		case 4:
			if n, _ = slowInt(f); len(f) != 2 || n == 0 || n > 64 {
				err = ErrHashLen
			}
		case 5:
			switch {
			case q.Problem != nil:
			case len(f)%int(n) != 0:
				err = ErrCutKey
			case f == "":
				err = ErrEmptyBlob
			default:
				lines, got = append(lines, fmt.Sprintf("begin store_prompt len=%d n=%d", n, len(f)/int(n))), f
			}
		default:
			err = ErrExtraFrame
		}
		if q.Problem == nil {
			q.Problem = err
		}
	}
	if len(body) < 6 && q.Problem == nil {
		q.Problem = ErrMissingFrame
	}
	return lines, got
}

// checkAgainstOracle requires that a Reader, with PLAIN or without, gets from b what slowParse gets.
func checkAgainstOracle(t *testing.T, b []byte, plain bool, seed uint64) {
	checkPausing(t, b, plain, seed)
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
	f.Add(message("explain", be(4, 80), be(2, 20), h+"t", "x"), uint64(6))
	f.Add([]byte("GET / HTTP/1.1\r\n"), uint64(5))
	f.Add(message("plan", be(4, 80), be(2, 20), h+"t", "x"), uint64(10))
	f.Add(message("\x00id", "", "load_mask", be(8, 5)), uint64(11))
	f.Add(append(message("store_mask", numbers(0, 0, 7)), message("lookup_mask", be(4, 80))...), uint64(12))
	f.Add(message("store_prompt", numbers(0, 0, 1<<8, 0), be(6, 1)+be(6, 2), be(8, 16), be(2, 20), h), uint64(13))
	f.Add(message("store_prompt", numbers(0, 0, 0, 3), "", "", be(2, 20), h, ""), uint64(14))
	f.Add(append(message("reset_rank", be(8, math.MaxUint64)), message("pool", "{}")...), uint64(15))
	f.Add(append(message("auth", "token"), message("\x00id", "", "auth", "")...), uint64(16))
	f.Add(message("holders", `{"model":"m"}`, be(2, 20), h, "x"), uint64(17))
	f.Add(append(message("\x00id", "", "holders", "{}", be(2, 0), ""), message("holders", "{}", be(2, 0), h)...), uint64(18))
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
