package zmtp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func command(name, data string) []byte { return appendCommand(nil, name, data) }

// claim is the header of a frame that claims a size.
func claim(flags byte, size uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{flags | flagLong}, size)
}

func stringsOf(frames [][]byte) []string {
	s := make([]string, len(frames))
	for i, f := range frames {
		s[i] = string(f)
	}
	return s
}

func TestReceiveRefuses(t *testing.T) {
	kib := strings.Repeat("x", 1000)
	for name, c := range map[string]struct {
		says  []byte
		want  error
		shows string
	}{
		"unknown flag":            {[]byte("\x08\x00"), ErrFrame, "0x8"},
		"reserved bits":           {[]byte("\xf1\x00"), ErrFrame, "0xf1"},
		"2^63 bytes":              {claim(0, 1<<63), ErrTooLarge, "9223372036854775808"},
		"2^64-1 bytes":            {claim(flagMore, 1<<64-1), ErrTooLarge, "18446744073709551615"},
		"a byte too much":         {claim(0, 1001), ErrTooLarge, "1001"},
		"a byte too much, in two": {join(messageOf("", "a", kib[1:], "b")), ErrTooLarge, "a frame of 1 bytes behind 1000"},
		"endless frames":          {bytes.Repeat([]byte("\x01\x00"), 1000), ErrTooManyFrames, "16"},
		"17 frames":               {messageOf(make([]string, 17)...), ErrTooManyFrames, "16"},
		"command with MORE":       {[]byte("\x05\x07\x04PING\x00\x00"), ErrCommand, "MORE"},
		"long command":            {claim(flagCommand, maxCommand+1), ErrCommand, "4097"},
		"command of 2^64-1":       {claim(flagCommand, 1<<64-1), ErrCommand, "18446744073709551615"},
		"empty command":           {[]byte("\x04\x00"), ErrCommand, ""},
		"name beyond the command": {[]byte("\x04\x05\x05PING"), ErrCommand, ""},
		"name of 0 bytes":         {[]byte("\x04\x05\x00PING"), ErrCommand, ""},
		"PING without its TTL":    {command(commandPing, "\x00"), ErrCommand, "PING of 1"},
		"PING of 17 bytes":        {command(commandPing, "\x00\x0012345678901234567"), ErrCommand, "PING of 19"},
		"ERROR":                   {command(commandError, "\x06go\naway"), ErrRefused, `"go\naway"`},
		"ERROR in a message":      {join([]byte("\x01\x00"), command(commandError, "\x00")), ErrRefused, ""},
		"PINGs in a message":      {join([]byte("\x01\x00"), bytes.Repeat(ourPing, 100)), ErrCommand, "64"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, p := opened(t, 1, small)
				p.send(messageOf("first", ""), c.says)
				frames, err := conn.Receive()
				require.NoError(t, err)
				require.Equal(t, []string{"first", ""}, stringsOf(frames))
				start := time.Now()
				_, err = conn.Receive()
				require.ErrorIs(t, err, c.want)
				require.Contains(t, err.Error(), c.shows)
				require.NotContains(t, err.Error(), "\n")
				require.Zero(t, time.Since(start))
				require.Len(t, conn.in.buf, minBuffer, "nothing was allocated for what was claimed")
				_, again := conn.Receive()
				require.Equal(t, err, again)
			})
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
		"long form":       {join(claim(flagMore, 1), []byte("a"), claim(0, 0)), []string{"a", ""}},
		"behind commands": {join(command("WHAT", ""), ourPing, command(commandPong, "x"), messageOf("a")), []string{"a"}},
		"with commands": {join([]byte("\x01\x01a"), bytes.Repeat(ourPing, 30), []byte("\x01\x01b"),
			bytes.Repeat(command("WHAT", strings.Repeat("?", 4000)), 34), []byte("\x00\x01c")), []string{"a", "b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, p := opened(t, 1, small)
				p.send(c.says, c.says)
				for range 2 {
					frames, err := conn.Receive()
					require.NoError(t, err)
					require.Equal(t, c.want, stringsOf(frames))
				}
				p.closeLater()
				_, err := conn.Receive()
				require.ErrorIs(t, err, io.EOF)
			})
		})
	}
}

func TestCutMessage(t *testing.T) {
	for _, says := range [][]byte{{0}, {0, 3}, {0, 3, 'a'}, messageOf("a", "b")[:3], ourPing[:3]} {
		synctest.Test(t, func(t *testing.T) {
			c, p := opened(t, 1, small)
			p.send(says)
			p.closeLater()
			_, err := c.Receive()
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		})
	}
}

func TestPingIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := opened(t, 1, small)
		p.send(command(commandPing, "\x00\x01"), command(commandPing, "\x00\x000123456789abcdef"), messageOf("x"))
		_, err := c.Receive()
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, "\x04\x05\x04PONG\x04\x15\x04PONG0123456789abcdef", p.received())
	})
}

// A silent peer is asked after a third of Timeout, and given up after all of it.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := opened(t, 1, small)
		start := time.Now()
		_, err := c.Receive()
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, small.Timeout, time.Since(start))
		require.Equal(t, string(ourPing), p.received(), "one PING")
	})
}

// What a peer says of itself keeps it: a PONG, or its own PING.
func TestSilenceEnds(t *testing.T) {
	for name, says := range map[string][]byte{"PONG": command(commandPong, ""), "PING": ourPing, "unknown": command("WHAT", "")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := opened(t, 1, small)
				p.sendSlowly(8*time.Second, len(says), bytes.Repeat(says, 10))
				start := time.Now()
				_, err := c.Receive()
				require.ErrorIs(t, err, ErrTimeout)
				require.Equal(t, 80*time.Second+small.Timeout, time.Since(start))
				require.Equal(t, 11, strings.Count(p.received(), string(ourPing)))
			})
		})
	}
}

// A peer of ZMTP 3.0 knows no PING.
func TestSilenceOfOldPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := opened(t, 0, small)
		p.sendSlowly(time.Hour, 100, messageOf("x"))
		frames, err := c.Receive()
		require.NoError(t, err)
		require.Equal(t, []string{"x"}, stringsOf(frames))
		require.Empty(t, p.received())
	})
}

// While we apply messages the peer is not asked, and its silence does not count.
func TestSilenceOfOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := opened(t, 1, small)
		_, err := c.ReceiveWithin(small.Timeout - time.Second)
		require.ErrorIs(t, err, ErrNoMessage)
		time.Sleep(time.Hour)
		p.send(messageOf("x"))
		frames, err := c.Receive()
		require.NoError(t, err)
		require.Equal(t, []string{"x"}, stringsOf(frames))
	})
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
		p.send(command(commandPong, ""))
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

// A message that has begun has a deadline, however often a byte arrives.
func TestSlowMessage(t *testing.T) {
	for _, says := range [][]byte{messageOf("topic", "12345678", "payload"), command("WHAT", "0123456789")} {
		synctest.Test(t, func(t *testing.T) {
			c, p := opened(t, 1, small)
			p.sendSlowly(time.Second, 1, says)
			start := time.Now()
			_, err := c.Receive()
			require.ErrorIs(t, err, ErrTimeout)
			require.ErrorContains(t, err, "the rest of a message")
			require.Equal(t, time.Second+small.Timeout, time.Since(start))
		})
	}
}

// A large message over a slow link passes if a part of stepBytes arrives within Timeout.
func TestSlowLargeMessage(t *testing.T) {
	for pause, passes := range map[time.Duration]bool{8 * time.Second: true, 10 * time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			cfg := small
			cfg.MaxMessage = 4 << 20
			c, p := opened(t, 1, cfg)
			payload := strings.Repeat("x", 4<<20)
			p.sendSlowly(pause/8, stepBytes/8, messageOf(payload))
			frames, err := c.Receive()
			if passes {
				require.NoError(t, err)
				require.Len(t, frames[0], len(payload))
			} else {
				require.ErrorIs(t, err, ErrTimeout)
			}
		})
	}
}

// The peer does not read our PONGs.
func TestUnreadPongs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		p := &fakePeer{Conn: theirs}
		go func() {
			_, _ = theirs.Write(peerSays("PUB"))
			for {
				if _, err := p.Write(ourPing); err != nil {
					return
				}
			}
		}()
		go func() { _, _ = io.CopyN(io.Discard, theirs, int64(greetingBytes+len(ready("SUB")))) }()
		c, err := Accept(context.Background(), ours, small)
		require.NoError(t, err)
		defer c.Close()
		start := time.Now()
		_, err = c.Receive()
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorContains(t, err, "while writing")
		require.Equal(t, small.Timeout, time.Since(start))
		require.ErrorIs(t, c.Send([]byte("x")), ErrTimeout, "a part of a frame was sent")
		require.Equal(t, small.Timeout, time.Since(start), "it was not tried")
	})
}

func TestCloseEndsReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, p := newFakePeer(t)
		p.send(peerSays("PUB"))
		c, err := Accept(context.Background(), ours, small)
		require.NoError(t, err)
		failed := make(chan error)
		go func() {
			_, err := c.Receive()
			failed <- err
		}()
		synctest.Wait()
		require.NoError(t, c.Close())
		err = <-failed
		require.Error(t, err)
		require.False(t, errors.Is(err, ErrTimeout))
		require.NoError(t, c.Close())
	})
}

// Memory is allocated for what arrives, and released again.
func TestBufferGrowsAndShrinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small
		cfg.MaxMessage = 64 << 20
		c, p := opened(t, 1, cfg)
		large := strings.Repeat("x", 5<<20)
		p.send(claim(0, 60<<20), []byte(large))
		_, err := c.Receive()
		require.ErrorIs(t, err, ErrTimeout)
		require.LessOrEqual(t, len(c.in.buf), 2*len(large), "60 MiB were claimed")

		c, p = opened(t, 1, cfg)
		p.send(messageOf(large), bytes.Repeat(messageOf("x"), 2*shrinkAfter))
		_, err = c.Receive()
		require.NoError(t, err)
		require.Less(t, len(c.in.buf), 6<<20, "no more than the message and an eighth")
		for range 2 * shrinkAfter {
			_, err = c.Receive()
			require.NoError(t, err)
		}
		require.Len(t, c.in.buf, minBuffer)

		p.send(messageOf(large))
		frames, err := c.Receive()
		require.NoError(t, err)
		require.Equal(t, large, string(frames[0]))
		_, err = c.ReceiveWithin(small.Timeout / 2)
		require.ErrorIs(t, err, ErrNoMessage)
		require.Len(t, c.in.buf, minBuffer, "the peer is idle")
	})
}

// Receive has no allocation of its own for a message.
func TestReceiveAllocations(t *testing.T) {
	many := bytes.Repeat(messageOf("topic", "12345678", strings.Repeat("x", 5000)), 2000)
	c, err := Accept(context.Background(), &script{in: join(peerSays("PUB"), many)}, Config{SocketType: SUB, MaxMessage: 10000, Timeout: time.Second})
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(1500, func() {
		if _, err := c.Receive(); err != nil {
			t.Fatal(err)
		}
	}))
}

// oracle parses what a PUB says after its handshake: whole messages, and whether a violation
// follows.
func oracle(b []byte, maxMessage int) (messages [][]string, violated bool) {
	var frames []string
	var size, commands int
	for len(b) >= 2 {
		flags, n, header := b[0], uint64(b[1]), 2
		if flags&flagLong != 0 {
			if header = 9; len(b) < 9 {
				return messages, false
			}
			n = binary.BigEndian.Uint64(b[1:])
		}
		isCommand, more := flags&flagCommand != 0, flags&flagMore != 0
		if flags > 7 || isCommand && (more || n > maxCommand || commands == maxCommandsInside) ||
			!isCommand && (len(frames) == maxFrames || n > uint64(maxMessage-size)) {
			return messages, true
		}
		if b = b[header:]; uint64(len(b)) < n {
			return messages, false
		}
		body := string(b[:n])
		b = b[n:]
		if isCommand {
			if body == "" || body[0] == 0 || int(body[0]) >= len(body) {
				return messages, true
			}
			name, data := body[1:1+body[0]], body[1+body[0]:]
			if name == "ERROR" || name == "PING" && (len(data) < 2 || len(data) > 18) {
				return messages, true
			}
			if len(frames) > 0 {
				commands++
			}
			continue
		}
		frames = append(frames, body)
		size += len(body)
		if !more {
			messages = append(messages, frames)
			frames, size, commands = nil, 0, 0
		}
	}
	return messages, false
}

// checkReceive compares Receive with the oracle, under reads of the given sizes.
func checkReceive(t *testing.T, says, sizes []byte) {
	const maxMessage = 300_000
	cfg := Config{SocketType: SUB, MaxMessage: maxMessage, Timeout: time.Second}
	s := &script{in: join(peerSays("PUB"), says), sizes: sizes}
	c, err := Accept(context.Background(), s, cfg)
	require.NoError(t, err)
	want, violated := oracle(says, maxMessage)
	for _, message := range want {
		frames, err := c.Receive()
		require.NoError(t, err)
		require.Equal(t, message, stringsOf(frames))
	}
	_, err = c.Receive()
	require.Error(t, err)
	isEOF := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	require.Equal(t, !violated, isEOF, "%v", err)
	require.LessOrEqual(t, len(c.in.buf), max(minBuffer, 2*(len(says)+greetingBytes+100)))
}

func FuzzReceive(f *testing.F) {
	f.Add(messageOf("topic", "12345678", "payload"), []byte{1})
	f.Add(join(messageOf("a", ""), ourPing, messageOf("b")), []byte{3, 200})
	f.Add(join([]byte("\x01\x00"), ourPing, messageOf("b")), []byte{})
	f.Add(join(messageOf("a"), claim(flagMore, 1<<63)), []byte{7})
	f.Add(messageOf(make([]string, 17)...), []byte{0})
	f.Add(join(command(commandError, "\x01x")), []byte{})
	f.Fuzz(checkReceive)
}

// Random messages and commands, some of them larger than the buffer, cut anywhere.
func TestReceiveRandom(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 25))
		var says []byte
		for range r.IntN(60) {
			frames := make([]string, 1+r.IntN(4))
			for i := range frames {
				n := r.IntN(300)
				if r.IntN(20) == 0 {
					n = r.IntN(100_000)
				}
				frames[i] = strings.Repeat(string(rune('a'+r.IntN(26))), n)
			}
			for i, f := range frames {
				for r.IntN(5) == 0 {
					says = append(says, command([]string{"PING", "PONG", "WHAT"}[r.IntN(3)], "\x00\x01xyz")...)
				}
				says = appendFrame(says, []byte(f), i < len(frames)-1)
			}
		}
		if r.IntN(2) == 0 && len(says) > 0 {
			says = says[:r.IntN(len(says))]
		}
		sizes := make([]byte, r.IntN(10))
		for i := range sizes {
			sizes[i] = byte(r.Uint32())
		}
		t.Logf("seed %d: %d bytes", seed, len(says))
		checkReceive(t, says, sizes)
	}
}
