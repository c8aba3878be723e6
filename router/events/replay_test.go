package events

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/router/events/internal/zmtp"
)

// replaySocket is a replay socket that calls reply for each request, the first of number 1, with the sequence
// number that is asked for. The connection stays until the follower closes it, unless reply fails.
func replaySocket(t *testing.T, reply func(c *zmtp.Conn, request int, from uint64) error) (endpoint string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	var requests atomic.Int64
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
					err = reply(c, int(requests.Add(1)), binary.BigEndian.Uint64(frames[1]))
				}
				for err == nil { // answer PINGs
					_, err = c.Receive()
				}
			})
		}
	})
	return "tcp://" + l.Addr().String()
}

// replayNumbers makes a replay, and returns the numbers that it brings.
func replayNumbers(ctx context.Context, endpoint string, from uint64, timeout time.Duration, each func(seq uint64) error) (got []uint64, err error) {
	cfg := &Config{Replay: endpoint, Timeout: timeout, MaxPayload: 32 << 10}
	memory := &batchMemory{ctx: ctx, share: &share{of: NewMemory(0).batches}, release: func() {}, timeout: timeout}
	err = replay(ctx, cfg, memory, nil, from, func(seq uint64, payload []byte) error {
		if len(payload) == 0 {
			return errors.New("no payload")
		}
		got = append(got, seq)
		if each == nil {
			return nil
		}
		return each(seq)
	})
	return got, err
}

func be(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

// sendBatches sends batches, and the end of the answer.
func sendBatches(c *zmtp.Conn, numbers ...uint64) error {
	for _, seq := range numbers {
		if err := c.Send(nil, []byte("topic"), be(seq), []byte("payload")); err != nil {
			return err
		}
	}
	return c.Send(nil, nil, be(endOfReplay), nil)
}

// upTo returns the numbers from <= n < to, each step-th.
func upTo(from, to, step uint64) (list []uint64) {
	for ; from < to; from += step {
		list = append(list, from)
	}
	return list
}

func TestReplay(t *testing.T) {
	b := func(s string) []byte { return []byte(s) }
	say := func(messages ...[][]byte) func(*zmtp.Conn, int, uint64) error {
		return func(c *zmtp.Conn, _ int, _ uint64) error {
			for _, frames := range messages {
				if err := c.Send(frames...); err != nil {
					return err
				}
			}
			return nil
		}
	}
	// restarted says that batch 6 is missing, and then answers in another way.
	restarted := func(second func(*zmtp.Conn, uint64) error) func(*zmtp.Conn, int, uint64) error {
		return func(c *zmtp.Conn, request int, from uint64) error {
			if request == 1 {
				return sendBatches(c, 5, 7)
			}
			assert.EqualValues(t, 5, from)
			return second(c, from)
		}
	}
	for name, test := range map[string]struct {
		reply func(c *zmtp.Conn, request int, from uint64) error
		want  []uint64
		err   error
	}{
		"batches": {func(c *zmtp.Conn, _ int, _ uint64) error { return sendBatches(c, 5, 6, 7) }, upTo(5, 8, 1), nil},
		"without topics": {say([][]byte{nil, be(5), b("x")}, [][]byte{nil, be(6), b("x")}, [][]byte{nil, be(endOfReplay), nil}),
			upTo(5, 7, 1), nil},
		"none":          {func(c *zmtp.Conn, _ int, _ uint64) error { return sendBatches(c) }, nil, nil},
		"a later first": {func(c *zmtp.Conn, _ int, _ uint64) error { return sendBatches(c, 9, 10) }, upTo(9, 11, 1), nil},
		"a queue that has dropped the tail and not the end": {func(c *zmtp.Conn, request int, from uint64) error {
			return sendBatches(c, upTo(from, min(uint64(request)*200, 250), 1)...)
		}, upTo(5, 250, 1), nil},
		"every other is missing": {func(c *zmtp.Conn, request int, from uint64) error {
			assert.LessOrEqual(t, request, replayAsks+1000/replayBatches)
			return sendBatches(c, upTo(from|1, 2000, 2)...)
		}, upTo(5, 2000, 2), nil},

		"one frame":          {say([][]byte{b("x")}), nil, errReplay},
		"two frames":         {say([][]byte{nil, b("x")}), nil, errReplay},
		"five frames":        {say([][]byte{nil, b("topic"), be(5), b("x"), b("x")}), nil, errReplay},
		"no empty frame":     {say([][]byte{b("topic"), be(5), b("x")}), nil, errReplay},
		"7 bytes":            {say([][]byte{nil, be(5)[1:], b("x")}), nil, errReplay},
		"no payload":         {say([][]byte{nil, be(5), nil}), nil, errReplay},
		"end with a payload": {say([][]byte{nil, be(endOfReplay), b("x")}), nil, errReplay},
		"end with a topic":   {say([][]byte{nil, b("topic"), be(endOfReplay), nil}), nil, errReplay},
		"below":              {func(c *zmtp.Conn, _ int, _ uint64) error { return sendBatches(c, 4) }, nil, errReplay},
		"backwards":          {func(c *zmtp.Conn, _ int, _ uint64) error { return sendBatches(c, 6, 5) }, upTo(6, 7, 1), errReplay},
		"twice":              {func(c *zmtp.Conn, _ int, _ uint64) error { return sendBatches(c, 5, 5) }, upTo(5, 6, 1), errReplay},
		"large":              {say([][]byte{nil, be(5), make([]byte, 64<<10)}), nil, zmtp.ErrProtocol},
		"closed": {func(c *zmtp.Conn, _ int, _ uint64) error {
			_ = c.Send(nil, be(5), b("x"))
			return io.EOF
		}, upTo(5, 6, 1), io.EOF},

		"restarted with less": {restarted(func(c *zmtp.Conn, _ uint64) error { return sendBatches(c) }), upTo(5, 6, 1), errReplayChanged},
		"restarted with another payload": {restarted(func(c *zmtp.Conn, from uint64) error {
			return c.Send(nil, be(from), b("other"))
		}), upTo(5, 6, 1), errReplayChanged},
		"restarted with later ones": {restarted(func(c *zmtp.Conn, from uint64) error {
			return sendBatches(c, from+1)
		}), upTo(5, 6, 1), errReplayChanged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := replayNumbers(t.Context(), replaySocket(t, test.reply), 5, 20*time.Second, nil)
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.want, got)
		})
	}
}

// The socket is there, but its thread says nothing, or little.
func TestReplaySlow(t *testing.T) {
	for name, reply := range map[string]func(c *zmtp.Conn, _ int, from uint64) error{
		"nothing": func(*zmtp.Conn, int, uint64) error { return nil },
		"a batch and no end": func(c *zmtp.Conn, _ int, from uint64) error {
			if from > 0 {
				return nil
			}
			return c.Send(nil, be(0), []byte("x"))
		},
		"a batch at a time": func(c *zmtp.Conn, _ int, from uint64) error {
			for c.Send(nil, be(from), []byte("x")) == nil {
				if _, err := c.ReceiveWithin(100 * time.Millisecond); err != zmtp.ErrNoMessage {
					return err
				}
				from++
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := zmtp.ErrTimeout // a busy machine connects late
			for timeout := time.Second; errors.Is(err, zmtp.ErrTimeout) && timeout < time.Minute; timeout *= 4 {
				_, err = replayNumbers(t.Context(), replaySocket(t, reply), 0, timeout, nil)
			}
			require.ErrorIs(t, err, errReplaySlow)
		})
	}
}

// The time that each takes does not count.
func TestReplayOfSlowHolder(t *testing.T) {
	const timeout, pause = 20 * time.Second, 500 * time.Millisecond
	network, address, err := zmtp.DialAddress(replaySocket(t, func(c *zmtp.Conn, _ int, from uint64) error { return sendBatches(c, 0) }))
	require.NoError(t, err)
	r := replayer{network: network, address: address, timeout: timeout, maxPayload: 100, budget: timeout,
		memory: &batchMemory{ctx: t.Context(), share: &share{of: NewMemory(0).batches}, release: func() {}, timeout: timeout},
		each:   func(uint64, []byte) error { time.Sleep(pause); return nil }}
	begun := time.Now()
	_, err = r.ask(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, r.budget, timeout-(time.Since(begun)-pause))
}

// An error of each and the end of the context end a replay that has none.
func TestReplayEnds(t *testing.T) {
	forever := replaySocket(t, func(c *zmtp.Conn, _ int, from uint64) (err error) {
		for ; err == nil; from++ {
			err = c.Send(nil, be(from), []byte("x"))
		}
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	failed := errors.New("holder failed")
	for _, c := range []struct {
		each func() error
		want error
	}{{func() error { return failed }, failed}, {func() error { cancel(); return nil }, context.Canceled}} {
		_, err := replayNumbers(ctx, forever, 1<<63, 20*time.Second, func(seq uint64) error {
			if seq == 1<<63+100 {
				return c.each()
			}
			return nil
		})
		require.Equal(t, c.want, err)
	}
}

// overflowingRouter is a ROUTER of libzmq that answers as vLLM's publisher does. Its queue takes 100 batches.
const overflowingRouter = `
import zmq
s = zmq.Context().socket(zmq.ROUTER)
s.setsockopt(zmq.SNDHWM, 100)
print(s.bind_to_random_port("tcp://127.0.0.1"), flush=True)
while True:
    client, empty, start = s.recv_multipart()
    for n in range(int.from_bytes(start, "big"), 3000):
        s.send_multipart([client, b"", b"", n.to_bytes(8, "big"), bytes(20_000)])
    s.send_multipart([client, b"", b"", b"\xff" * 8, b""])
`

// A ROUTER drops what its queue cannot take, the end too, while we apply slowly.
func TestReplayOfQueueThatOverflows(t *testing.T) {
	cmd := exec.Command(storetest.PyzmqPython(t), "-c", overflowingRouter)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	port := bufio.NewScanner(out)
	require.True(t, port.Scan())
	got, err := replayNumbers(t.Context(), "tcp://127.0.0.1:"+port.Text(), 0, time.Minute, func(seq uint64) error {
		if seq%10 == 0 {
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, upTo(0, 3000, 1), got)
}
