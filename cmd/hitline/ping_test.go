package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/client"
)

// startScript listens on a free port and answers one request after the other, over however many
// connections, by the next step of script. Behind its end it repeats the last one.
func startScript(t *testing.T, script ...string) (address string) {
	t.Helper()
	address, _ = startWatchedScript(t, script...)
	return address
}

// startWatchedScript is startScript with a channel that is closed at the first step silent.
func startWatchedScript(t *testing.T, script ...string) (address string, reached <-chan struct{}) {
	t.Helper()
	isSilent := make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	return listenAndServe(t, func(conn net.Conn) {
		for buf := make([]byte, 1<<12); ; {
			if _, err := conn.Read(buf); err != nil { // small requests arrive whole on loopback
				return
			}
			mu.Lock()
			reply := script[0]
			if len(script) > 1 {
				script = script[1:]
			}
			mu.Unlock()
			switch reply {
			case hangUp:
				return
			case silent:
				once.Do(func() { close(isSilent) })
			}
			_, _ = io.WriteString(conn, reply)
		}
	}), isSilent
}

const (
	someTime    = `[0-9.]+(ns|µs|ms|s)`
	summaryText = `: min ` + someTime + `, mean ` + someTime + `, p50 ` + someTime + `, p99 ` + someTime + `, max ` + someTime + "\n$"
)

func TestPingCount(t *testing.T) {
	got := runClient(t, startScript(t, replyDone), "ping -n 3 -i 0s")
	assert.Equal(t, exitDone, got.code)
	assert.Empty(t, got.stderr)
	assert.Regexp(t, "^1  "+someTime+"\n2  "+someTime+"\n3  "+someTime+"\n3 requests, 0 lost"+summaryText, got.stdout)

	got = runClient(t, startScript(t, replyDone), "ping --requests 2 --interval 1ms --json")
	assert.Equal(t, exitDone, got.code)
	assert.Regexp(t, `^\{"requests":2,"lost":0,"min_us":[\d.]+,"mean_us":[\d.]+,"p50_us":[\d.]+,"p99_us":[\d.]+,"max_us":[\d.]+,"exit":0\}\n$`, got.stdout)
}

// A lost ping is a line, and the next one connects anew.
func TestPingLost(t *testing.T) {
	got := runClient(t, startScript(t, replyDone, hangUp, replyDone, hangUp, replyDone), "ping --requests 5 --interval 0s")
	assert.Equal(t, exitFailed, got.code)
	assert.Regexp(t, "^1  "+someTime+"\n2  lost: tcp://.*\n3  "+someTime+"\n4  lost: tcp://.*\n5  "+someTime+"\n5 requests, 2 lost"+summaryText, got.stdout)
	assert.Equal(t, "hitline: 2 of 5 round trips lost\n", got.stderr)

	got = runClient(t, startScript(t, hangUp), "ping --requests 1 --json")
	assert.Equal(t, exitFailed, got.code)
	assert.Equal(t, `{"requests":1,"lost":1,"error":"1 of 1 round trips lost","exit":1}`+"\n", got.stdout)
}

// A server that refuses would refuse again.
func TestPingCountRefused(t *testing.T) {
	got := runClient(t, startScript(t, replyDone, replyRefused), "ping --requests 0 --interval 0s --json")
	assert.Equal(t, exitFailed, got.code)
	assert.Regexp(t, `^\{"error":".*reason","exit":1\}\n$`, got.stdout)
}

// An interrupt ends without losing the ping that it interrupts, and the summary is printed.
func TestPingInterrupted(t *testing.T) {
	for _, test := range interruptions("0s") {
		t.Run(test.name, func(t *testing.T) {
			lines, stderr, code := test.run(t, replyDone, "ping", "--requests", "0", "--interval", test.interval)
			require.Len(t, lines, 2)
			assert.Regexp(t, "^1  "+someTime+"$", lines[0])
			assert.Regexp(t, "^1 requests, 0 lost"+summaryText, lines[1]+"\n")
			assert.Equal(t, exitDone, code)
			assert.Empty(t, stderr)
		})
	}
}

// interruption ends a command line that makes requests at an interval, after its first line.
type interruption struct {
	name, interval string
	atRequest      bool
}

// interruptions are one between two requests and one while the second is not answered.
func interruptions(interval string) []interruption {
	return []interruption{{"between two", "1h", false}, {"while it waits for the answer", interval, true}}
}

// run runs the command line. Its first request is answered by reply.
func (i interruption) run(t *testing.T, reply string, args ...string) (lines []string, stderr string, code int) {
	t.Helper()
	address, reached := startWatchedScript(t, reply, silent)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	reader, writer := io.Pipe()
	defer reader.Close()
	var errors strings.Builder
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, append(args, "--connect", address), nil, writer, &errors)
		writer.Close()
	}()
	for out := bufio.NewScanner(reader); out.Scan(); {
		lines = append(lines, out.Text())
		if i.atRequest && len(lines) == 1 {
			<-reached
		}
		stop()
	}
	return lines, errors.String(), <-ended
}

// After an error a session has no connection: the next request dials at once, with the files as they
// are then. Otherwise it keeps its connection.
func TestSession(t *testing.T) {
	var to target
	to.addFlags(&cobra.Command{})
	to.connect = startScript(t, replyDone, replyDone, hangUp, replyDone)
	s := session{target: &to}
	defer s.close()
	_, err := s.ping(t.Context())
	require.NoError(t, err)
	first := s.client
	require.NotNil(t, first)
	_, err = s.ping(t.Context())
	require.NoError(t, err)
	require.Same(t, first, s.client)
	_, err = s.ping(t.Context())
	require.ErrorIs(t, err, client.ErrConnect)
	require.Nil(t, s.client)
	_, err = s.ping(t.Context())
	require.NoError(t, err)
}

// Its memory is bounded, and no time is out of range.
func TestPingStats(t *testing.T) {
	stats := newPingStats()
	assert.Nil(t, stats.summary())
	for _, took := range []time.Duration{0, 10 * time.Microsecond, 20 * time.Microsecond, 100 * time.Hour} {
		stats.add(took, nil)
	}
	stats.add(0, io.EOF)
	assert.Equal(t, [2]uint{5, 1}, [2]uint{stats.requests, stats.lost})
	got := stats.summary()
	assert.Equal(t, 0.001, got.Min)
	assert.Equal(t, 10*time.Microsecond, shortDuration(got.P50))
	assert.InEpsilon(t, time.Hour.Microseconds(), got.Max, 0.001)
	assert.Equal(t, got.Max, got.P99)
	for us, want := range map[float64]string{0: "0s", 0.999: "999ns", 123.456: "123µs", 1999.999: "2ms", 61_234_567.890: "1m1.2s"} {
		assert.Equal(t, want, fmt.Sprint(shortDuration(us)))
	}
}
