package events

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/router/events/internal/zmtp"
)

// replayServer is a ROUTER that answers as vLLM's publisher does. Its arguments: topic or not,
// the first and the last sequence number, the size of a payload, numbers that it does not have.
const replayServer = `
import sys, zmq
form, first, last, size, sndhwm = sys.argv[1], *map(int, sys.argv[2:6])
missing = set(map(int, sys.argv[6:]))
s = zmq.Context().socket(zmq.ROUTER)
if sndhwm: s.setsockopt(zmq.SNDHWM, sndhwm)
port = s.bind_to_random_port("tcp://127.0.0.1")
print(port, flush=True)
while True:
    client, empty, start = s.recv_multipart()
    print("asked", int.from_bytes(start, "big"), flush=True)
    topic = [b""] if form == "topic" else []
    for n in range(first, last + 1):
        if n >= int.from_bytes(start, "big") and n not in missing:
            s.send_multipart([client, b"", *topic, n.to_bytes(8, "big"), n.to_bytes(4, "big") * (size // 4)])
    s.send_multipart([client, b"", *topic, b"\xff" * 8, b""])
`

// startReplayServer runs replayServer and returns its endpoint. asked returns what it was asked.
func startReplayServer(t *testing.T, args ...any) (endpoint string, asked func() string) {
	t.Helper()
	words := []string{"-c", replayServer}
	for _, a := range args {
		words = append(words, fmt.Sprint(a))
	}
	cmd := exec.Command(storetest.PyzmqPython(t), words...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	done := make(chan []string, 1)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	require.True(t, lines.Scan())
	endpoint = "tcp://127.0.0.1:" + lines.Text()
	go func() {
		var said []string
		for lines.Scan() {
			said = append(said, lines.Text())
		}
		done <- said
	}()
	return endpoint, func() string {
		_ = cmd.Process.Kill()
		return strings.Join(<-done, ", ")
	}
}

func TestReplay(t *testing.T) {
	for _, form := range []string{"topic", "plain"} {
		t.Run(form, func(t *testing.T) {
			endpoint, _ := startReplayServer(t, form, 3, 20, 64, 0, 7, 8)
			ask := func(from uint64) (got []uint64) {
				err := replay(context.Background(), endpoint, from, Config{Timeout: 10 * time.Second}, func(seq uint64, payload []byte) error {
					require.Len(t, payload, 64)
					got = append(got, seq)
					return nil
				})
				require.NoError(t, err)
				return got
			}
			require.Equal(t, []uint64{3, 4, 5, 6, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}, ask(0))
			require.Equal(t, []uint64{20}, ask(20))
			require.Empty(t, ask(21))
		})
	}
}

// answer is a replay socket in Go that calls reply for each request, with the sequence number
// that is asked for. The connection is closed when it returns, and kept alive while it does not.
func answer(t *testing.T, reply func(c *zmtp.Conn, from uint64)) (endpoint string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				// A DEALER may talk to a DEALER.
				c, err := zmtp.Accept(context.Background(), conn, zmtp.Config{SocketType: zmtp.DEALER, MaxMessage: 100, Timeout: 20 * time.Second})
				if err != nil {
					return
				}
				defer c.Close()
				frames, err := c.Receive()
				if err == nil && assert.Len(t, frames, 2) && assert.Empty(t, frames[0]) && assert.Len(t, frames[1], 8) {
					reply(c, binary.BigEndian.Uint64(frames[1]))
				}
			})
		}
	})
	return "tcp://" + l.Addr().String()
}

func be(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

func sendBatch(c *zmtp.Conn, seq uint64) error {
	return c.Send(nil, []byte("topic"), be(seq), []byte("payload"))
}

func sendEnd(c *zmtp.Conn) { _ = c.Send(nil, nil, be(endOfReplay), nil) }

// untilClosed answers PINGs until the other end closes.
func untilClosed(c *zmtp.Conn) {
	for {
		if _, err := c.Receive(); err != nil {
			return
		}
	}
}

func TestReplayRefuses(t *testing.T) {
	b := func(s string) []byte { return []byte(s) }
	for name, c := range map[string]struct {
		want error
		says [][][]byte
	}{
		"one frame":          {errReplay, [][][]byte{{b("x")}}},
		"two frames":         {errReplay, [][][]byte{{nil, b("x")}}},
		"five frames":        {errReplay, [][][]byte{{nil, b("topic"), be(5), b("x"), b("x")}}},
		"no empty frame":     {errReplay, [][][]byte{{b("topic"), be(5), b("x")}}},
		"7 bytes":            {errReplay, [][][]byte{{nil, be(5)[1:], b("x")}}},
		"no payload":         {errReplay, [][][]byte{{nil, be(5), nil}}},
		"end with a payload": {errReplay, [][][]byte{{nil, be(endOfReplay), b("x")}}},
		"end with a topic":   {errReplay, [][][]byte{{nil, b("topic"), be(endOfReplay), nil}}},
		"below":              {errReplay, [][][]byte{{nil, be(4), b("x")}}},
		"backwards":          {errReplay, [][][]byte{{nil, be(6), b("x")}, {nil, be(5), b("x")}}},
		"twice":              {errReplay, [][][]byte{{nil, be(5), b("x")}, {nil, be(5), b("x")}}},
		"large":              {zmtp.ErrProtocol, [][][]byte{{nil, be(5), make([]byte, 10<<10)}}},
		"closed":             {io.EOF, [][][]byte{{nil, be(5), b("x")}}},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint := answer(t, func(conn *zmtp.Conn, from uint64) {
				for _, frames := range c.says {
					_ = conn.Send(frames...)
				}
				if c.want != io.EOF {
					untilClosed(conn)
				}
			})
			err := replay(context.Background(), endpoint, 5, Config{MaxPayload: 1000, Timeout: 20 * time.Second}, func(seq uint64, payload []byte) error {
				require.Equal(t, "x", string(payload))
				return nil
			})
			require.ErrorIs(t, err, c.want)
		})
	}
	err := replay(context.Background(), "http://engine", 0, Config{}, nil)
	require.ErrorIs(t, err, zmtp.ErrEndpoint)
}

// The socket is there, but its thread says nothing, or little.
func TestReplaySlow(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]func(c *zmtp.Conn, from uint64){
		"nothing": func(c *zmtp.Conn, from uint64) { untilClosed(c) },
		"a batch and no end": func(c *zmtp.Conn, from uint64) {
			if from == 0 {
				_ = sendBatch(c, 0)
			}
			untilClosed(c)
		},
		"a batch at a time": func(c *zmtp.Conn, from uint64) {
			for sendBatch(c, from) == nil {
				if _, err := c.ReceiveWithin(100 * time.Millisecond); err != zmtp.ErrNoMessage {
					return
				}
				from++
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := replay(context.Background(), answer(t, reply), 0, Config{Timeout: 2 * time.Second}, func(uint64, []byte) error { return nil })
			require.ErrorIs(t, err, errReplaySlow)
		})
	}
}

// The time that each takes does not count.
func TestReplayOfSlowHolder(t *testing.T) {
	t.Parallel()
	endpoint := answer(t, func(c *zmtp.Conn, from uint64) {
		for seq := range uint64(5) {
			_ = sendBatch(c, seq)
		}
		sendEnd(c)
		untilClosed(c)
	})
	n := 0
	require.NoError(t, replay(context.Background(), endpoint, 0, Config{Timeout: 2 * time.Second}, func(uint64, []byte) error {
		n++
		time.Sleep(500 * time.Millisecond)
		return nil
	}))
	require.Equal(t, 5, n)
}

// A publisher that always lacks the next number gets a bounded number of requests.
func TestReplayOfMissing(t *testing.T) {
	var asked atomic.Int64
	endpoint := answer(t, func(c *zmtp.Conn, from uint64) {
		asked.Add(1)
		for seq := from | 1; seq < 2000; seq += 2 {
			if sendBatch(c, seq) != nil {
				return
			}
		}
		sendEnd(c)
		untilClosed(c)
	})
	want := uint64(1)
	require.NoError(t, replay(context.Background(), endpoint, 0, Config{}, func(seq uint64, _ []byte) error {
		require.Equal(t, want, seq)
		want += 2
		return nil
	}))
	require.EqualValues(t, 2001, want)
	require.LessOrEqual(t, asked.Load(), int64(replayAsks+1000/replayBatches))
	require.Greater(t, asked.Load(), int64(replayAsks))
}

// A publisher restarts between two requests of a replay.
func TestReplayOfAnother(t *testing.T) {
	for name, second := range map[string]func(c *zmtp.Conn, from uint64){
		"shorter":          func(c *zmtp.Conn, from uint64) {},
		"other payload":    func(c *zmtp.Conn, from uint64) { _ = c.Send(nil, be(from), []byte("other")) },
		"does not have it": func(c *zmtp.Conn, from uint64) { _ = sendBatch(c, from+1) },
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			endpoint := answer(t, func(c *zmtp.Conn, from uint64) {
				if asked.Add(1) == 1 {
					_, _ = sendBatch(c, 0), sendBatch(c, 1)
					_ = sendBatch(c, 3) // 2 is asked for
				} else {
					assert.EqualValues(t, 1, from)
					second(c, from)
				}
				sendEnd(c)
				untilClosed(c)
			})
			var got []uint64
			err := replay(context.Background(), endpoint, 0, Config{}, func(seq uint64, _ []byte) error {
				got = append(got, seq)
				return nil
			})
			require.ErrorIs(t, err, errReplayChanged)
			require.Equal(t, []uint64{0, 1}, got)
		})
	}
}

func TestReplayEnds(t *testing.T) {
	forever := answer(t, func(c *zmtp.Conn, from uint64) {
		for ; sendBatch(c, from) == nil; from++ {
		}
	})
	failed := errors.New("holder failed")
	err := replay(context.Background(), forever, 1<<63, Config{}, func(seq uint64, _ []byte) error {
		if seq == 1<<63+100 {
			return failed
		}
		return nil
	})
	require.Equal(t, failed, err)

	ctx, cancel := context.WithCancel(context.Background())
	err = replay(ctx, forever, 0, Config{}, func(seq uint64, _ []byte) error {
		if seq == 100 {
			cancel()
		}
		return nil
	})
	require.Equal(t, context.Canceled, err)

	ctx, cancel = context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	err = replay(ctx, answer(t, func(c *zmtp.Conn, _ uint64) { untilClosed(c) }), 0, Config{}, nil)
	require.Equal(t, context.DeadlineExceeded, err)
}

// A ROUTER drops what its queue cannot take, the end too, while we apply slowly.
func TestReplayOfQueueThatOverflows(t *testing.T) {
	const n, size = 3000, 20_000 // beyond the buffers of both sockets
	endpoint, asked := startReplayServer(t, "topic", 0, n-1, size, 100)
	want := uint64(0)
	err := replay(context.Background(), endpoint, 0, Config{Timeout: 10 * time.Second}, func(seq uint64, payload []byte) error {
		require.Equal(t, want, seq)
		want++
		if seq%10 == 0 {
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, n, want)
	t.Log(asked())
}

// The end of an answer comes although the batches before it were dropped: the queue had space again.
func TestReplayOfAnswerWithoutItsTail(t *testing.T) {
	var asked []uint64
	endpoint := answer(t, func(c *zmtp.Conn, from uint64) {
		asked = append(asked, from)
		to := uint64(250)
		if len(asked) == 1 {
			to = 200
		}
		for seq := from; seq < to; seq++ {
			_ = sendBatch(c, seq)
		}
		sendEnd(c)
		untilClosed(c)
	})
	var want uint64
	err := replay(context.Background(), endpoint, 0, Config{}, func(seq uint64, _ []byte) error {
		require.Equal(t, want, seq)
		want++
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, 250, want)
	require.Equal(t, []uint64{0, 199}, asked)
}
