package netproto

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// greet returns a greeting of a peer.
func greet(major, minor byte, mechanism string) string {
	g := "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f" + string([]byte{major, minor}) + mechanism
	return g + strings.Repeat("\x00", 64-len(g))
}

// command returns a command frame in the short form where it fits.
func command(name, data string) string {
	body := string([]byte{byte(len(name))}) + name + data
	if len(body) < 256 {
		return string([]byte{4, byte(len(body))}) + body
	}
	return string(binary.BigEndian.AppendUint64([]byte{6}, uint64(len(body)))) + body
}

// longCommand returns a command frame in the long form.
func longCommand(name, data string) string {
	body := string([]byte{byte(len(name))}) + name + data
	return string(binary.BigEndian.AppendUint64([]byte{6}, uint64(len(body)))) + body
}

func property(name, value string) string {
	return string([]byte{byte(len(name))}) + name + be(4, uint64(len(value))) + value
}

func ready(socketType string) string {
	return command("READY", property("Socket-Type", socketType)+property("Identity", ""))
}

var (
	shaken = greet(3, 1, "NULL") + ready("REQ") // a handshake as libzmq's REQ sends it

	saysGreeting = fmt.Sprintf("control %x", "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x03\x01NULL"+strings.Repeat("\x00", 48))
	saysReady    = fmt.Sprintf("control %x", "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03REP")
	saysError    = fmt.Sprintf("control %x", "\x04\x25\x05ERROR\x1eonly-REQ-and-DEALER-are-served")
)

func saysPong(context string) string {
	return fmt.Sprintf("control 04%02x04%x%x", 5+len(context), "PONG", context)
}

func TestHandshakeInPiecesOfEverySize(t *testing.T) {
	h3 := hashes(3, 16)
	traffic := string(message("", "lookup", be(4, 48), be(2, 16), h3)) + command("PING", "\x00\x00ctx") + string(message("", "stat"))
	want := []string{
		saysGreeting, saysReady, "begin lookup len=16 n=3",
		fmt.Sprintf("lookup env=0100 tokens=48 unaligned=false hashes=%x", h3), saysPong("ctx"), "stat env=0100 hashes=",
	}
	for name, handshake := range map[string]string{
		"3.1 REQ":            shaken,
		"3.0 DEALER":         greet(3, 0, "NULL") + ready("DEALER"),
		"a later version":    greet(9, 7, "NULL") + ready("REQ"),
		"padding and filler": "\xff12345678\x7f" + greet(3, 1, "NULL")[10:33] + strings.Repeat("z", 31) + ready("REQ"),
		"as-server":          greet(3, 1, "NULL")[:32] + "\x01" + greet(3, 1, "NULL")[33:] + ready("REQ"),
		"long READY":         greet(3, 1, "NULL") + longCommand("READY", property("Socket-Type", "REQ")),
		"names in any case":  greet(3, 1, "NULL") + command("READY", property("SOCKET-tYPE", "DEALER")+property("identity", "me")),
		"no properties":      greet(3, 1, "NULL") + command("READY", ""),
		"READY of 4 KiB":     greet(3, 1, "NULL") + command("READY", property("X-app", strings.Repeat("v", MaxCommand-6-10))),
	} {
		for size := range 65 {
			got, r, err := feed([]byte(handshake+traffic), size, Limits{})
			require.NoError(t, err, "%s, pieces of %d", name, size)
			require.Equal(t, want, got, "%s, pieces of %d", name, size)
			require.True(t, r.ZMTP())
			require.False(t, r.InMessage())
			require.False(t, r.InHandshake())
			require.Nil(t, r.gathered)
		}
	}
}

// TestHandshakeAnswersAtOnce walks through the steps in which libzmq connects: it
// waits for our signature after its own, and for our version before the rest.
func TestHandshakeAnswersAtOnce(t *testing.T) {
	r, rec := NewReader(Limits{}, 16), &recorder{}
	require.False(t, r.InHandshake())
	require.NoError(t, feedAll(r, []byte{0xFF}, rec))
	require.Equal(t, []string{saysGreeting}, rec.lines)
	require.True(t, r.InHandshake())
	require.NoError(t, feedAll(r, []byte(shaken[1:64]), rec))
	require.True(t, r.InHandshake())
	require.False(t, r.InMessage(), "a handshake is not a request that a shutdown waits for")
	require.NoError(t, feedAll(r, []byte(shaken[64:len(shaken)-1]), rec))
	require.True(t, r.InHandshake())
	require.Len(t, rec.lines, 1, "READY is the answer to READY")
	require.NoError(t, feedAll(r, []byte(shaken[len(shaken)-1:]), rec))
	require.Equal(t, []string{saysGreeting, saysReady}, rec.lines)
	require.False(t, r.InHandshake())
	require.True(t, r.ZMTP())
}

func TestHandshakeRefused(t *testing.T) {
	good := greet(3, 1, "NULL")
	refused := []string{saysGreeting}
	for name, c := range map[string]struct {
		bytes string
		want  error
		lines []string
	}{
		"1.0, long identity":      {"\xff\x00\x00\x00\x00\x00\x00\x01\x00\x00", ErrVersion, refused},
		"1.0, more":               {"\xff\x00\x00\x00\x00\x00\x00\x01\x00\x7e", ErrVersion, refused},
		"version 0":               {good[:10] + "\x00", ErrVersion, refused},
		"2.0":                     {good[:10] + "\x01\x03\x00\x00", ErrVersion, refused},
		"2.1":                     {good[:10] + "\x02", ErrVersion, refused},
		"signature":               {good[:9] + "\x01", ErrGreeting, refused},
		"all FF":                  {strings.Repeat("\xff", 64), ErrGreeting, refused},
		"PLAIN":                   {greet(3, 1, "PLAIN"), ErrMechanism, refused},
		"CURVE":                   {greet(3, 1, "CURVE"), ErrMechanism, refused},
		"no mechanism":            {greet(3, 1, ""), ErrMechanism, refused},
		"null":                    {greet(3, 1, "null"), ErrMechanism, refused},
		"NULLX":                   {greet(3, 1, "NULLX"), ErrMechanism, refused},
		"NULL and later bytes":    {greet(3, 1, "NULL"+strings.Repeat("\x00", 15)+"x"), ErrMechanism, refused},
		"message before READY":    {good + string(message("", "stat")), ErrHandshake, refused},
		"PING before READY":       {good + command("PING", "\x00\x00"), ErrHandshake, refused},
		"SUBSCRIBE before READY":  {good + command("SUBSCRIBE", ""), ErrHandshake, refused},
		"HELLO of PLAIN":          {good + command("HELLO", "\x01u\x01p"), ErrHandshake, refused},
		"ready":                   {good + command("ready", property("Socket-Type", "REQ")), ErrHandshake, refused},
		"ERROR":                   {good + command("ERROR", "\x03bad"), ErrPeerError, refused},
		"ERROR later":             {shaken + command("ERROR", "\x03bad"), ErrPeerError, []string{saysGreeting, saysReady}},
		"reserved flags":          {good + "\x0c\x05", ErrFlags, refused},
		"READY with MORE":         {good + "\x05" + ready("REQ")[1:], ErrBadCommand, refused},
		"READY too long":          {good + command("READY", property("X", strings.Repeat("v", MaxCommand))), ErrBadCommand, refused},
		"READY of 2^64-1":         {good + "\x06" + strings.Repeat("\xff", 8), ErrBadCommand, refused},
		"READY of no bytes":       {good + "\x04\x00", ErrBadCommand, refused},
		"nameless command":        {good + "\x04\x01\x00", ErrBadCommand, refused},
		"name over the end":       {good + "\x04\x05\x05READ", ErrBadCommand, refused},
		"nameless property":       {good + command("READY", "\x00\x00\x00\x00\x00"), ErrProperties, refused},
		"property name cut":       {good + command("READY", "\x0bSocket-Typ"), ErrProperties, refused},
		"property length cut":     {good + command("READY", "\x0bSocket-Type\x00\x00\x00"), ErrProperties, refused},
		"property value cut":      {good + command("READY", "\x0bSocket-Type\x00\x00\x00\x04REQ"), ErrProperties, refused},
		"property of 2^32-1":      {good + command("READY", "\x01X\xff\xff\xff\xffREQ"), ErrProperties, refused},
		"half a property":         {good + command("READY", property("Socket-Type", "REQ")+"\x01"), ErrProperties, refused},
		"PUB":                     {good + ready("PUB"), ErrSocketType, append(refused[:1:1], saysError)},
		"SUB":                     {good + ready("SUB"), ErrSocketType, append(refused[:1:1], saysError)},
		"ROUTER":                  {good + ready("ROUTER"), ErrSocketType, append(refused[:1:1], saysError)},
		"REP":                     {good + ready("REP"), ErrSocketType, append(refused[:1:1], saysError)},
		"req":                     {good + ready("req"), ErrSocketType, append(refused[:1:1], saysError)},
		"no type":                 {good + ready(""), ErrSocketType, append(refused[:1:1], saysError)},
		"REQ, then PUB":           {good + command("READY", property("Socket-Type", "REQ")+property("socket-type", "PUB")), ErrSocketType, append(refused[:1:1], saysError)},
		"raw frames after FF":     {"\xff" + string(message("lookup", be(4, 16), be(2, 16), hashes(1, 16))), ErrGreeting, refused},
		"command first, no greet": {ready("REQ"), ErrFirstByte, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for size := range 65 {
				got, r, err := feed([]byte(c.bytes), size, Limits{})
				require.ErrorIs(t, err, c.want, "pieces of %d", size)
				var fe *FrameError
				require.ErrorAs(t, err, &fe)
				require.Equal(t, c.lines, got, "pieces of %d", size)
				require.Equal(t, err, feedAll(r, []byte(shaken), &recorder{}), "the error is final")
			}
		})
	}
}

func TestZMTPTraffic(t *testing.T) {
	long := strings.Repeat("x", 300)
	nine := strings.Split(strings.Repeat("a", 9), "")
	for name, c := range map[string]struct {
		bytes string
		want  []string
		err   error
	}{
		"REQ":                     {string(message("", "stat")), []string{"stat env=0100 hashes="}, nil},
		"REQ_CORRELATE":           {string(message("\x80\x00\x00\x29", "", "stat")), []string{"stat env=01048000002901" + "00 hashes="}, nil},
		"DEALER":                  {string(message("id", "", "stat")), []string{"stat env=010269640100 hashes="}, nil},
		"address named as a tag":  {string(message("lookup", "", "stat")), []string{"stat env=01066c6f6f6b75700100 hashes="}, nil},
		"many in flight":          {string(message("1", "", "stat")) + string(message("2", "", "stat")), []string{"stat env=0101310100 hashes=", "stat env=0101320100 hashes="}, nil},
		"eight addresses":         {string(message(append(nine[:8:8], "", "stat")...)), []string{"stat env=" + strings.Repeat("010161", 8) + "0100 hashes="}, nil},
		"address of 255":          {string(message(long[:255], "", "stat")), []string{fmt.Sprintf("stat env=01ff%x0100 hashes=", long[:255])}, nil},
		"address in a long frame": {"\x03" + be(8, 2) + "id" + string(message("", "stat")), []string{"stat env=010269640100 hashes="}, nil},
		"no delimiter":            {string(message("lookup", be(4, 16), be(2, 16), long)) + string(message("", "stat")), []string{"dropped env=01066c6f6f6b757001040000001001020010", "stat env=0100 hashes="}, nil},
		"no delimiter, one frame": {string(message("stat")) + string(message("", "stat")), []string{"dropped env=", "stat env=0100 hashes="}, nil},
		"no delimiter, nine":      {string(message(nine...)) + string(message("", "stat")), []string{"dropped env=" + strings.Repeat("010161", 8), "stat env=0100 hashes="}, nil},
		"delimiter ends it":       {string(message("")) + string(message("", "stat")), []string{"dropped env=", "stat env=0100 hashes="}, nil},
		"empty body frame":        {string(message("", "")), []string{"unknown env=0100 problem=" + unknown("")}, nil},
		"second empty frame":      {string(message("", "", "stat")), []string{"unknown env=0100 problem=" + unknown("")}, nil},
		"nine addresses":          {string(message(append(nine[:9:9], "", "stat")...)), nil, ErrEnvelope},
		"long address":            {string(message(long, "", "stat")), nil, ErrEnvelope},
		"PING":                    {command("PING", "\x00\x0a"), []string{saysPong("")}, nil},
		"PING, long frame":        {longCommand("PING", "\x00\x0aabc"), []string{saysPong("abc")}, nil},
		"PING, 16 of context":     {command("PING", "\x00\x00"+long[:16]), []string{saysPong(long[:16])}, nil},
		"PING, 17 of context":     {command("PING", "\x00\x00"+long[:17]), nil, ErrBadCommand},
		"PING without TTL":        {command("PING", "\x00"), nil, ErrBadCommand},
		"PINGs":                   {strings.Repeat(command("PING", "\x00\x00c"), 3), []string{saysPong("c"), saysPong("c"), saysPong("c")}, nil},
		"unknown commands": {command("PONG", "c") + command("SUBSCRIBE", "a") + command("CANCEL", "a") + ready("PUB") + command("x", strings.Repeat("y", 4000)) + string(message("", "stat")),
			[]string{"ignored", "ignored", "ignored", "ignored", "ignored", "stat env=0100 hashes="}, nil},
		"command too long":         {command("x", strings.Repeat("y", MaxCommand)), nil, ErrBadCommand},
		"command with MORE":        {"\x05" + command("PING", "\x00\x00")[1:], nil, ErrBadCommand},
		"PING in a message":        {"\x01\x00" + command("PING", "\x00\x00c") + "\x00\x04stat", []string{saysPong("c"), "stat env=0100 hashes="}, nil},
		"PINGs in a dropped one":   {"\x01\x01a" + strings.Repeat(command("PING", "\x00\x00c"), 2) + "\x00\x01b", []string{saysPong("c"), saysPong("c"), "dropped env=010161"}, nil},
		"unknown one in a message": {"\x01\x00" + command("x", "y") + "\x00\x04stat", []string{"ignored", "stat env=0100 hashes="}, nil},
		"ERROR in a message":       {"\x01\x00" + command("ERROR", "\x00"), nil, ErrPeerError},
		"command without a name":   {"\x04\x03\x00ab", nil, ErrBadCommand},
		"empty command":            {"\x04\x00", nil, ErrBadCommand},
		"reserved flag":            {"\x10\x00", nil, ErrFlags},
		"second greeting":          {greet(3, 1, "NULL"), nil, ErrFlags},
		"message too long":         {"\x03" + be(8, 1<<40), nil, ErrMessageLength},
		"too many frames":          {strings.Repeat("\x01\x00", 40), nil, ErrFrameCount},
		"PING between two":         {string(message("", "stat")) + command("PING", "\x00\x00") + string(message("", "stat")), []string{"stat env=0100 hashes=", saysPong(""), "stat env=0100 hashes="}, nil},
		"a raw client's first 00s": {string(message("\x00id", "", "stat")), []string{"stat env=01030069640100 hashes="}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{0, 1, 2, 3, 7, 64} {
				got, r, err := feed([]byte(shaken+c.bytes), size, Limits{MaxMessage: 100_000})
				if c.err == nil {
					require.NoError(t, err, "pieces of %d", size)
					require.False(t, r.InMessage())
				} else {
					require.ErrorIs(t, err, c.err, "pieces of %d", size)
				}
				require.Equal(t, append([]string{saysGreeting, saysReady}, c.want...), got, "pieces of %d", size)
			}
		})
	}
}

// TestPingBetweenFrames has a heartbeat after each frame of a message, as libzmq sends them: the message
// is what it is without.
func TestPingBetweenFrames(t *testing.T) {
	const seven = "1234567"
	ping := command("PING", "\x00\x01"+seven)
	for name, parts := range map[string][]string{
		"lookup": {"", "lookup", be(4, 48), be(2, 3), "abcdefghi"},
		"store":  {"", "store", be(2, 3), "abcdefghi"},
		"stat":   {"client", "", "stat"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{0, 1, 2, 3, 7, 64} {
				want, _, err := feed([]byte(shaken+string(message(parts...))), size, Limits{})
				require.NoError(t, err)
				bytes, numPings := []byte(shaken), 0
				for i, part := range parts {
					more := i < len(parts)-1
					if bytes = AppendFrame(bytes, []byte(part), more); more {
						bytes = append(bytes, ping...)
						numPings++
					}
				}
				got, r, err := feed(bytes, size, Limits{})
				require.NoError(t, err, "pieces of %d", size)
				require.False(t, r.InMessage())
				pongs := slices.DeleteFunc(slices.Clone(got), func(line string) bool { return line != saysPong(seven) })
				require.Len(t, pongs, numPings)
				rest := slices.DeleteFunc(got, func(line string) bool { return line == saysPong(seven) })
				require.Equal(t, want, rest, "pieces of %d", size)
			}
		})
	}
}

func TestPingTTL(t *testing.T) {
	r := NewReader(Limits{}, 16)
	expect := func(want time.Duration, b string) {
		t.Helper()
		require.NoError(t, feedAll(r, []byte(b), &recorder{}))
		require.Equal(t, want, r.TTL())
	}
	expect(0, shaken)
	expect(time.Second, command("PING", "\x00\x0a"))
	expect(6553500*time.Millisecond, command("PING", "\xff\xffc"))
	expect(0, "\x01")
	expect(0, "\x00"+string(message("stat")))
	expect(300*time.Millisecond, command("PING", "\x00\x05")+command("PING", "\x00\x03"))
	expect(0, command("PONG", ""))
	expect(0, command("PING", "\x00\x05")+command("PING", "\x00\x00"))
}

// TestCommandsKeepNothing stops in the middle of the largest command that is
// taken, and of one that only claims its length.
func TestCommandsKeepNothing(t *testing.T) {
	r := NewReader(Limits{}, 16)
	require.NoError(t, feedAll(r, []byte(shaken), &recorder{}))
	require.NoError(t, feedAll(r, []byte("\x06"+be(8, MaxCommand)+"\x01x"), &recorder{}))
	require.LessOrEqual(t, cap(r.gathered), 64, "memory follows what came, not what was claimed")
	require.True(t, r.InMessage())
	require.NoError(t, feedAll(r, bytes.Repeat([]byte("y"), MaxCommand-2), &recorder{}))
	require.Nil(t, r.gathered)
	require.False(t, r.InMessage())
}

func TestZMTPDoesNotAllocate(t *testing.T) {
	b := []byte(string(message("id", "", "lookup", be(4, 1600), be(2, 32), hashes(100, 32))) + command("PING", "\x00\x00context"))
	r, d := NewReader(Limits{}, 16), &discard{}
	require.NoError(t, feedAll(r, []byte(shaken), d))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = feedAll(r, b, d) }))
	require.Positive(t, d.n)
}
