package zmtp

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/netproto"
)

// claim is the header of a frame that claims a size.
func claim(flags byte, size uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{flags | netproto.FlagLong}, size)
}

func TestReceiveRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		says  []byte
		shows string
	}{
		"unknown flag":            {[]byte("\x08\x00"), "flags 0x8"},
		"2^63 bytes":              {claim(0, 1<<63), "9223372036854775808"},
		"2^64-1 bytes":            {claim(netproto.FlagMore, 1<<64-1), "18446744073709551615"},
		"a byte too much":         {claim(0, 1001), "1001"},
		"a byte too much, in two": {messageOf("", strings.Repeat("x", 1000), "b"), "a frame of 1 bytes after 1000"},
		"17 frames":               {messageOf(make([]string, 17)...), "more than 16"},
		"command with MORE":       {[]byte("\x05\x07\x04PING\x00\x00"), "flags 0x5"},
		"long command":            {claim(netproto.FlagCommand, netproto.MaxCommand+1), "4097"},
		"command of 2^64-1":       {claim(netproto.FlagCommand, 1<<64-1), "18446744073709551615"},
		"empty command":           {[]byte("\x04\x00"), "malformed command"},
		"name beyond the command": {[]byte("\x04\x05\x05PING"), "malformed command"},
		"PING of 17 bytes":        {command("PING", "\x00\x0012345678901234567"), "malformed PING"},
		"ERROR":                   {command("ERROR", "\x06go\naway"), `refuses the connection: "\x06go\naway"`},
		"ERROR in a message":      {join([]byte("\x01\x00"), command("ERROR", "\x00")), "refuses"},
		"PINGs in a message":      {join([]byte("\x01\x00"), bytes.Repeat(ourPing, 100)), "more than 64 commands"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := scripted(t, join(messageOf("first", ""), c.says), nil, small)
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
}

func TestReceiveAccepts(t *testing.T) {
	kib := strings.Repeat("x", 998)
	for name, c := range map[string]struct {
		says []byte
		want []string
	}{
		"empty":           {[]byte("\x00\x00"), []string{""}},
		"16 frames":       {messageOf(make([]string, 16)...), make([]string, 16)},
		"as large as may": {messageOf("a", "b", kib), []string{"a", "b", kib}},
		"long form":       {join(claim(netproto.FlagMore, 1), []byte("a"), claim(0, 0)), []string{"a", ""}},
		"after commands":  {join(bytes.Repeat(ourPing, 100), command("WHAT", ""), command("PONG", "x"), messageOf("a")), []string{"a"}},
		"with commands": {join([]byte("\x01\x01a"), bytes.Repeat(ourPing, 30), []byte("\x01\x01b"),
			bytes.Repeat(command("WHAT", strings.Repeat("?", 4000)), 34), []byte("\x00\x01c")), []string{"a", "b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			messages, err := receiveAll(t, join(c.says, c.says), nil, small)
			require.Equal(t, [][]string{c.want, c.want}, messages)
			require.ErrorIs(t, err, io.EOF)
		})
	}
	for _, cut := range [][]byte{{0}, {0, 3}, {0, 3, 'a'}, messageOf("a", "b")[:3], ourPing[:3]} {
		_, err := receiveAll(t, cut, nil, small)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	}
}

func TestPingIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := opened(t, 1, small)
		p.send(command("PING", "\x00\x01"), command("PING", "\x00\x000123456789abcdef"), messageOf("x"))
		_, err := c.Receive()
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, "\x04\x05\x04PONG\x04\x15\x04PONG0123456789abcdef", p.received())
	})
}

// A silent peer is asked after a third of Timeout, and given up after all of it. What it says of
// itself keeps it: a PONG, or its own PING.
func TestSilence(t *testing.T) {
	for name, says := range map[string][]byte{"nothing": nil, "PONG": command("PONG", ""), "PING": ourPing, "unknown": command("WHAT", "")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := opened(t, 1, small)
				times := 0
				if says != nil {
					times = 10
					p.sendSlowly(8*time.Second, len(says), bytes.Repeat(says, times))
				}
				start := time.Now()
				_, err := c.ReceiveWithin(small.Timeout / 3)
				require.Equal(t, ErrNoMessage, err)
				require.Empty(t, p.received())
				_, err = c.Receive()
				require.ErrorIs(t, err, ErrTimeout)
				// Of the first silence minWait came on top: its third ended with the first call.
				require.Equal(t, time.Duration(times)*8*time.Second+small.Timeout, time.Since(start).Truncate(time.Second))
				require.Equal(t, times+1, strings.Count(p.received(), string(ourPing)), "one PING in each silence")
			})
		})
	}
}

// A peer of ZMTP 3.0 knows no PING. One of 3.1 is not asked while we apply messages, and its silence
// then does not count.
func TestSilenceAllowed(t *testing.T) {
	for minor := range byte(2) {
		synctest.Test(t, func(t *testing.T) {
			c, p := opened(t, minor, small)
			_, err := c.ReceiveWithin(small.Timeout - time.Nanosecond)
			require.Equal(t, ErrNoMessage, err)
			p.sendSlowly(time.Hour, 100, messageOf("x"))
			if minor == 1 {
				time.Sleep(2 * time.Hour)
			}
			frames, err := c.Receive()
			require.NoError(t, err)
			require.Equal(t, []string{"x"}, stringsOf(frames))
			require.Equal(t, int(minor), strings.Count(p.received(), string(ourPing)))
		})
	}
}

func TestReceiveWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := opened(t, 1, small)
		start := time.Now()
		for range 4 { // the silence of one call is that of the next
			_, err := c.ReceiveWithin(2 * time.Second)
			require.Equal(t, ErrNoMessage, err)
		}
		require.Equal(t, 8*time.Second, time.Since(start))
		p.send(command("PONG", ""))
		_, err := c.ReceiveWithin(2 * time.Second)
		require.Equal(t, ErrNoMessage, err, "a command is no message")
		require.Equal(t, 10*time.Second, time.Since(start))
		require.Equal(t, string(ourPing), p.received())

		p.sendSlowly(3*time.Second, 3, messageOf("abcdefg"))
		time.Sleep(2 * time.Second)
		frames, err := c.ReceiveWithin(2 * time.Second)
		require.NoError(t, err, "it had begun")
		require.Equal(t, []string{"abcdefg"}, stringsOf(frames))

		start = time.Now()
		for err = nil; err == nil || err == ErrNoMessage; {
			_, err = c.ReceiveWithin(time.Second)
		}
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, small.Timeout, time.Since(start))
	})
}

// A message that has begun has a deadline, however often a byte arrives. A large message over a slow
// link passes if a part of stepBytes arrives within Timeout.
func TestSlowMessage(t *testing.T) {
	for name, c := range map[string]struct {
		pause time.Duration
		size  int
		says  []byte
		after time.Duration // of the failure; 0: it passes
	}{
		"message of bytes":  {time.Second, 1, messageOf("topic", "12345678", "payload"), 10 * time.Second},
		"command of bytes":  {time.Second, 1, command("WHAT", "0123456789"), 10 * time.Second},
		"1 MiB in 8 s":      {time.Second, stepBytes / 8, messageOf(strings.Repeat("x", 4<<20)), 0},
		"1 MiB in 10 s":     {10 * time.Second / 8, stepBytes / 8, messageOf(strings.Repeat("x", 4<<20)), 10250 * time.Millisecond},
		"commands for ever": {time.Second, 1, join([]byte("\x01\x00"), bytes.Repeat(command("WHAT", ""), 10)), 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, p := opened(t, 1, Config{SocketType: SUB, MaxMessage: 4 << 20, Timeout: 9 * time.Second})
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
		})
	}
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
		failed := make(chan error)
		go func() {
			_, err := c.Receive()
			failed <- err
		}()
		synctest.Wait()
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-failed, io.ErrClosedPipe)
		require.NoError(t, c.Close())
	})
}

// Memory is allocated for what arrives, and released again.
func TestBodyGrowsAndShrinks(t *testing.T) {
	large := strings.Repeat("x", 5<<20)
	cfg := Config{SocketType: SUB, MaxMessage: 64 << 20, Timeout: time.Second}
	c := scripted(t, join(claim(0, 60<<20), []byte(large)), nil, cfg)
	_, err := c.Receive()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Less(t, cap(c.body), 3*len(large), "60 MiB were claimed")

	c = scripted(t, join(messageOf(large), messageOf("x")), nil, cfg)
	frames, err := c.Receive()
	require.NoError(t, err)
	require.Equal(t, []string{large}, stringsOf(frames))
	_, err = c.Receive()
	require.NoError(t, err)
	require.LessOrEqual(t, cap(c.body), maxKeptBody)
}

// Receive has no allocation of its own for a message.
func TestReceiveAllocations(t *testing.T) {
	many := bytes.Repeat(messageOf("topic", "12345678", strings.Repeat("x", 5000)), 2000)
	c := scripted(t, many, nil, Config{SocketType: SUB, MaxMessage: 10000, Timeout: time.Second})
	require.Zero(t, testing.AllocsPerRun(1500, func() {
		if _, err := c.Receive(); err != nil {
			t.Fatal(err)
		}
	}))
}

// receiveAll receives until an error, under reads of the given sizes.
func receiveAll(t *testing.T, says, sizes []byte, cfg Config) (messages [][]string, err error) {
	c := scripted(t, says, sizes, cfg)
	for {
		frames, err := c.Receive()
		if err != nil {
			require.LessOrEqual(t, cap(c.body), 3*len(says)+2*firstStep)
			return messages, err
		}
		messages = append(messages, stringsOf(frames))
	}
}

// The same bytes are the same messages however they are cut.
func FuzzReceive(f *testing.F) {
	f.Add(messageOf("topic", "12345678", "payload"), []byte{1})
	f.Add(join(messageOf("a", ""), ourPing, messageOf("b")), []byte{3, 200})
	f.Add(join(messageOf("a"), claim(netproto.FlagMore, 1<<63)), []byte{7})
	f.Add(messageOf(make([]string, 17)...), []byte{0})
	f.Add(command("ERROR", "\x01x"), []byte{})
	f.Fuzz(func(t *testing.T, says, sizes []byte) {
		want, wantErr := receiveAll(t, says, nil, small)
		got, err := receiveAll(t, says, sizes, small)
		require.Equal(t, want, got)
		require.EqualError(t, err, wantErr.Error())
	})
}

// Random messages and commands, some of them larger than the buffer, cut anywhere.
func TestReceiveRandom(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 25))
		var says []byte
		var want [][]string
		for range r.IntN(60) {
			frames := make([]string, 1+r.IntN(4))
			for i := range frames {
				n := r.IntN(300)
				if r.IntN(20) == 0 {
					n = r.IntN(100_000)
				}
				frames[i] = strings.Repeat(string(rune('a'+r.IntN(26))), n)
				for r.IntN(5) == 0 {
					says = append(says, command([]string{"PING", "PONG", "WHAT"}[r.IntN(3)], "\x00\x01xyz")...)
				}
				says = netproto.AppendFrame(says, []byte(frames[i]), i < len(frames)-1)
			}
			want = append(want, frames)
		}
		sizes := make([]byte, r.IntN(10))
		for i := range sizes {
			sizes[i] = byte(r.Uint32())
		}
		got, err := receiveAll(t, says, sizes, Config{SocketType: SUB, MaxMessage: 400_000, Timeout: time.Second})
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, want, got, "seed %d", seed)
	}
}
