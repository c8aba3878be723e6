package zmtp

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/netproto"
)

func TestReceiveRefuses(t *testing.T) {
	type peer struct {
		says  []byte
		shows string
	}
	inBubbles(t, map[string]peer{
		"unknown flag":            {[]byte("\x08\x00"), "flags 0x8"},
		"2^64-1 bytes":            {claim(netproto.FlagMore, 1<<64-1), "18446744073709551615"},
		"a byte too much":         {claim(0, 1001), "a frame of 1001 bytes after 0; a message may have 1000, see max_payload"},
		"a byte too much, in two": {messageOf("", strings.Repeat("x", 1000), "b"), "a frame of 1 bytes after 1000"},
		"17 frames":               {messageOf(make([]string, 17)...), "more than 16"},
		"command with MORE":       {[]byte("\x05\x07\x04PING\x00\x00"), "flags 0x5"},
		"long command":            {claim(netproto.FlagCommand, netproto.MaxCommand+1), "4097"},
		"name beyond the command": {[]byte("\x04\x05\x05PING"), "malformed command"},
		"PING of 17 bytes":        {command("PING", "\x00\x0012345678901234567"), "malformed PING"},
		"ERROR":                   {command("ERROR", "\x06go\naway"), `refuses the connection: "\x06go\naway"`},
		"PINGs without end":       {bytes.Repeat(ourPing, maxIdle+1), "more than 1000 commands"},
		"PONGs without end":       {bytes.Repeat(command("PONG", ""), maxIdle+1), "more than 1000 commands"},
		"unknown commands":        {bytes.Repeat(command("WHAT", ""), maxIdle+1), "more than 1000 commands"},
		"PINGs in a message":      {join([]byte("\x01\x00"), bytes.Repeat(ourPing, 100)), "more than 64 commands"},
	}, func(t *testing.T, c peer) {
		conn, p := opened(t, 1, small)
		p.send(join(messageOf("first", ""), c.says))
		frames, err := conn.Receive()
		require.NoError(t, err)
		require.Equal(t, []string{"first", ""}, stringsOf(frames))
		_, err = conn.Receive()
		require.ErrorIs(t, err, ErrProtocol)
		require.Contains(t, err.Error(), c.shows)
		require.NotContains(t, err.Error(), "\n")
		require.LessOrEqual(t, cap(conn.body), 2000, "nothing was allocated for what was claimed")
	})
}

func TestReceiveAccepts(t *testing.T) {
	type peer struct {
		says []byte
		want []string
	}
	large := strings.Repeat("x", 199_998)
	inBubbles(t, map[string]peer{
		"empty":           {[]byte("\x00\x00"), []string{""}},
		"16 frames":       {messageOf(make([]string, 16)...), make([]string, 16)},
		"as large as may": {messageOf("a", large, "b"), []string{"a", large, "b"}},
		"long form":       {join(claim(netproto.FlagMore, 1), []byte("a"), claim(0, 0)), []string{"a", ""}},
		"after commands":  {join(bytes.Repeat(ourPing, 100), command("WHAT", ""), command("PONG", "x"), messageOf("a")), []string{"a"}},
		"with commands": {join([]byte("\x01\x01a"), bytes.Repeat(ourPing, 30), []byte("\x01\x01b"),
			bytes.Repeat(command("WHAT", strings.Repeat("?", 4000)), 34), []byte("\x00\x01c")), []string{"a", "b", "c"}},
	}, func(t *testing.T, c peer) {
		cfg := Config{SocketType: SUB, MaxMessage: 200_000, Timeout: 9 * time.Second}
		for _, size := range []int{1, 7, 1 << 20} {
			messages, err := receiveAll(t, join(c.says, c.says), size, cfg)
			require.Equal(t, [][]string{c.want, c.want}, messages)
			require.ErrorIs(t, err, io.EOF)
			_, err = receiveAll(t, c.says[:len(c.says)-1], size, cfg)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
	})
}

// receiveAll receives until an error, under reads of a size. The peer closes after what it says.
func receiveAll(t *testing.T, says []byte, size int, cfg Config) (messages [][]string, err error) {
	c, p := opened(t, 1, cfg)
	p.sendSlowly(0, size, says)
	p.goroutines.Go(func() {
		time.Sleep(time.Second) // time passes when all of it was read
		_ = p.Close()
	})
	for {
		frames, err := c.Receive()
		if err != nil {
			require.LessOrEqual(t, cap(c.body), 3*len(says)+2*SmallMessage)
			return messages, err
		}
		messages = append(messages, stringsOf(frames))
	}
}

// The same bytes are the same messages however they are cut.
func FuzzReceive(f *testing.F) {
	f.Add(messageOf("topic", "12345678", "payload")[:20], byte(0))
	f.Add(join(messageOf("a"), claim(netproto.FlagMore, 1<<63)), byte(7))
	f.Add(join(messageOf("a")[:1], command("ERROR", "\x01x")), byte(1))
	f.Fuzz(func(t *testing.T, says []byte, size byte) {
		synctest.Test(t, func(t *testing.T) {
			want, wantErr := receiveAll(t, says, 1<<20, small)
			got, err := receiveAll(t, says, 1+int(size), small)
			require.Equal(t, want, got)
			require.EqualError(t, err, wantErr.Error())
		})
	})
}

// A silent peer is asked after a third of Timeout, and given up after all of it. What it says of
// itself keeps it: a PONG, or its own PING.
func TestSilence(t *testing.T) {
	inBubbles(t, map[string][]byte{"nothing": nil, "PONG": command("PONG", ""), "PING": ourPing, "unknown": command("WHAT", "")}, func(t *testing.T, says []byte) {
		c, p := opened(t, 1, small)
		p.sendSlowly(8*time.Second, max(len(says), 1), bytes.Repeat(says, 10))
		start := time.Now()
		_, err := c.ReceiveWithin(small.Timeout/3 - 1)
		require.Equal(t, ErrNoMessage, err)
		require.Empty(t, p.received())
		_, err = c.Receive()
		require.ErrorIs(t, err, ErrTimeout)
		silences := 1 + 10*min(len(says), 1)
		require.Equal(t, time.Duration(silences-1)*8*time.Second+small.Timeout, time.Since(start))
		require.Equal(t, silences, strings.Count(p.received(), string(ourPing)), "one PING in each")
	})
}

// A peer of ZMTP 3.0 knows no PING. One of 3.1 is not asked while we apply messages, and its silence
// then does not count.
func TestSilenceAllowed(t *testing.T) {
	inBubbles(t, map[string]byte{"3.0": 0, "3.1": 1}, func(t *testing.T, minor byte) {
		c, p := opened(t, minor, small)
		for range 3 - 2*minor {
			_, err := c.ReceiveWithin(small.Timeout - 1)
			require.Equal(t, ErrNoMessage, err)
		}
		p.sendSlowly(time.Hour, 100, messageOf("x"))
		time.Sleep(2 * time.Hour * time.Duration(minor))
		frames, err := c.Receive()
		require.NoError(t, err)
		require.Equal(t, []string{"x"}, stringsOf(frames))
		require.Equal(t, int(minor), strings.Count(p.received(), string(ourPing)))
	})
}

func TestReceiveWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := opened(t, 1, small)
		start := time.Now()
		p.sendSlowly(time.Second, 100, command("PING", "\x00\x010123456789abcdef"))
		_, err := c.ReceiveWithin(2 * time.Second)
		require.Equal(t, ErrNoMessage, err, "a command is no message")
		require.Equal(t, 2*time.Second, time.Since(start))

		p.sendSlowly(2*time.Second, 3, messageOf("abcdefg"))
		time.Sleep(time.Second)
		frames, err := c.ReceiveWithin(2 * time.Second)
		require.NoError(t, err, "it had begun")
		require.Equal(t, []string{"abcdefg"}, stringsOf(frames))

		start = time.Now()
		what := command("WHAT", "") // 7 bytes: what is sent at a time ends inside of a command
		p.sendSlowly(750*time.Millisecond, len(what), join(command("WHAT", "12"), bytes.Repeat(what, 4), messageOf("x")))
		_, err = c.ReceiveWithin(2 * time.Second)
		require.Equal(t, ErrNoMessage, err, "commands are no message")
		require.Equal(t, 2250*time.Millisecond, time.Since(start))
		frames, err = c.ReceiveWithin(time.Minute)
		require.NoError(t, err)
		require.Equal(t, []string{"x"}, stringsOf(frames))

		start = time.Now()
		for err = nil; err == nil || err == ErrNoMessage; { // the silence of one call is that of the next
			_, err = c.ReceiveWithin(time.Second)
		}
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, small.Timeout, time.Since(start))
		require.Equal(t, "\x04\x15\x04PONG0123456789abcdef"+string(ourPing), p.received())
	})
}

// A message that has begun has a deadline, however often a byte arrives. A large message over a slow
// link passes if a part of stepBytes arrives within Timeout.
func TestSlowMessage(t *testing.T) {
	type peer struct {
		pause time.Duration
		size  int
		says  []byte
		after time.Duration // of the failure; 0: it passes
	}
	large := messageOf(strings.Repeat("x", 2*stepBytes))
	inBubbles(t, map[string]peer{
		"message of bytes":  {time.Second, 1, messageOf("topic", "12345678", "payload"), 10 * time.Second},
		"command of bytes":  {time.Second, 1, command("WHAT", "0123456789"), 10 * time.Second},
		"commands for ever": {time.Second, 7, join([]byte("\x01\x05aaaaa"), bytes.Repeat(command("WHAT", ""), 20)), 10 * time.Second},
		"8 MiB in 8 s":      {time.Second, stepBytes / 8, large, 0},
		"8 MiB in 10 s":     {time.Second * 10 / 8, stepBytes / 8, large, 10250 * time.Millisecond},
	}, func(t *testing.T, c peer) {
		conn, p := opened(t, 1, Config{SocketType: SUB, MaxMessage: 2 * stepBytes, Timeout: 9 * time.Second})
		p.sendSlowly(c.pause, c.size, c.says)
		start := time.Now()
		_, err := conn.Receive()
		if c.after == 0 {
			require.NoError(t, err)
			return
		}
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorContains(t, err, "what the peer began")
		require.Equal(t, c.after, time.Since(start))
	})
}

// A peer may send maxIdle commands in each second, and no more. Messages between them do not count.
func TestIdleRate(t *testing.T) {
	inBubbles(t, map[string]struct {
		pause time.Duration
		ends  bool
	}{"1,000 a second": {time.Second / maxIdle, false}, "1,112 a second": {time.Second * 9 / 10 / maxIdle, true}}, func(t *testing.T, c struct {
		pause time.Duration
		ends  bool
	}) {
		conn, p := opened(t, 1, small)
		each := join(command("WHAT", ""), messageOf("x"))
		p.sendSlowly(c.pause, len(each), bytes.Repeat(each, 3*maxIdle))
		for range 3 * maxIdle {
			if _, err := conn.Receive(); err != nil {
				require.True(t, c.ends, err)
				require.ErrorIs(t, err, ErrProtocol)
				require.ErrorContains(t, err, "more than 1000 commands")
				return
			}
		}
		require.False(t, c.ends)
	})
}

// A message of more than SmallMessage is announced to Reserve once as much has arrived. An error ends the connection, and
// the time that it takes is none of the message's.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reserved []int
		conn, p := opened(t, 1, Config{SocketType: SUB, MaxMessage: 1 << 20, Timeout: 9 * time.Second, Reserve: func(n int) error {
			reserved = append(reserved, n)
			if time.Sleep(time.Hour); n == 1<<20 {
				return ErrTimeout
			}
			return nil
		}})
		p.send(join(messageOf("t", strings.Repeat("x", SmallMessage-1)), messageOf("t", strings.Repeat("x", SmallMessage)),
			claim(0, 1<<20), make([]byte, SmallMessage)))
		for _, want := range [][]int{nil, {SmallMessage + 1}} {
			_, err := conn.Receive()
			require.NoError(t, err)
			require.Equal(t, want, reserved)
		}
		_, err := conn.Receive()
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, []int{SmallMessage + 1, 1 << 20}, reserved)
		require.LessOrEqual(t, cap(conn.body), SmallMessage)
	})
}

// The peer does not read our PONGs.
func TestUnreadPongs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		go func() { _, _ = theirs.Write(join(peerSays("PUB"), bytes.Repeat(ourPing, 10000))) }()
		go func() { _, _ = io.CopyN(io.Discard, theirs, int64(len(peerSays("SUB")))) }()
		c, err := Accept(context.Background(), ours, small)
		require.NoError(t, err)
		defer c.Close()
		start := time.Now()
		_, err = c.Receive()
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorContains(t, err, "did not read")
		require.ErrorIs(t, c.Send([]byte("x")), ErrTimeout, "a part of a frame was sent")
		require.Equal(t, small.Timeout, time.Since(start), "it was not tried")
	})
}

func TestCloseEndsReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := opened(t, 1, small)
		time.AfterFunc(time.Second, func() { _ = c.Close() })
		_, err := c.Receive()
		require.ErrorIs(t, err, io.ErrClosedPipe)
		require.NoError(t, c.Close())
	})
}
