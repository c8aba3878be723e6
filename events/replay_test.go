package events

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
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
	done := make(chan []string)
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
