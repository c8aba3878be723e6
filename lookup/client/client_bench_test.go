package client

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

// benchDepth is how many requests the pipelined benchmarks keep in flight, and
// benchBurst how many one write of theirs takes at most.
const benchDepth, benchBurst = 256, 64

// BenchmarkClientPipeline compares the pipelined client with a bare loop over a
// socket that writes the same bytes to the same server, which is a process of its
// own. Both take turns. ratio is the client's throughput over the bare loop's.
func BenchmarkClientPipeline(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	addr := ln.Addr().String()
	ln.Close()
	s := startVictim(b, "tcp://"+addr)
	defer s.kill(b)
	for _, n := range []int{64, 512} {
		keys := lookuptest.Chain("bench", n, 32)
		tokens := uint32(16 * n)
		c, err := Dial(background, addr)
		require.NoError(b, err)
		defer c.Close()
		require.NoError(b, c.Store(background, coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
		bare := dialBare(b, addr, tokens, keys)
		for way, run := range map[string]func(n int) error{
			"batches":    func(n int) error { return runBatches(c, n, tokens, keys) },
			"goroutines": func(n int) error { return runLookups(c, n, tokens, keys) },
		} {
			b.Run(fmt.Sprintf("%d/%s", n, way), func(b *testing.B) {
				b.ReportAllocs()
				var bareTime, clientTime time.Duration
				const turns = 10
				count := b.N/turns + 1
				for range turns {
					begun := time.Now()
					require.NoError(b, bare.run(count))
					bareTime += time.Since(begun)
					begun = time.Now()
					require.NoError(b, run(count))
					clientTime += time.Since(begun)
				}
				b.ReportMetric(float64(turns*count)/clientTime.Seconds(), "lookups/s")
				b.ReportMetric(float64(turns*count)/bareTime.Seconds(), "bare/s")
				b.ReportMetric(bareTime.Seconds()/clientTime.Seconds(), "ratio")
			})
		}
	}
}

// runBatches makes n lookups in batches, several at a time.
func runBatches(c *Client, n int, tokens uint32, keys []byte) error {
	var all sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	errs := make(chan error, 4)
	for range benchDepth / benchBurst {
		all.Go(func() {
			asks := make([]BatchLookup, benchBurst)
			for i := range asks {
				asks[i] = BatchLookup{NumTokens: int64(tokens), Hashes: coordinator.NewHashes(keys, 32)}
			}
			for {
				most := min(int64(len(asks)), left.Add(-benchBurst)+benchBurst)
				if most <= 0 {
					return
				}
				if err := c.Batch(background, asks[:most]); err != nil || asks[0].Hit.Tokens != int64(tokens) {
					errs <- fmt.Errorf("hit %d, %w", asks[0].Hit.Tokens, err)
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs
}

// runLookups makes n lookups by many goroutines.
func runLookups(c *Client, n int, tokens uint32, keys []byte) error {
	var all sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	errs := make(chan error, benchDepth)
	for range benchDepth {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if hit, err := c.Lookup(background, int64(tokens), coordinator.NewHashes(keys, 32)); hit.Tokens != int64(tokens) || err != nil {
					errs <- fmt.Errorf("hit %d, %w", hit.Tokens, err)
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs
}

// bareLoop writes requests that it has encoded before and counts the bytes of the
// replies.
type bareLoop struct {
	net.Conn
	burst []byte // benchBurst requests
	one   int    // bytes of a request
}

func dialBare(t testing.TB, addr string, tokens uint32, keys []byte) *bareLoop {
	conn, err := net.Dial("tcp", strings.TrimPrefix(addr, "tcp://"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	l := &bareLoop{Conn: conn}
	for i := range uint32(benchBurst) {
		l.burst = netproto.AppendLookup(l.burst, appendEnvelope(nil, i, 0), tokens, 32, len(keys))
		l.burst = append(l.burst, keys...)
	}
	l.one = len(l.burst) / benchBurst
	return l
}

// run makes n lookups.
func (l *bareLoop) run(n int) error {
	const reply = envelopeLen + 6
	wrote := make(chan error, 1)
	var answered atomic.Int64
	more := make(chan struct{}, 1)
	go func() {
		for sent := 0; sent < n; {
			burst := min(benchBurst, n-sent)
			for sent+burst-int(answered.Load()) > benchDepth {
				<-more
			}
			if _, err := l.Write(l.burst[:burst*l.one]); err != nil {
				wrote <- err
				return
			}
			sent += burst
		}
		wrote <- nil
	}()
	buf := make([]byte, 64<<10)
	for have := 0; have < n*reply; {
		got, err := l.Read(buf)
		if err != nil {
			return io.ErrUnexpectedEOF
		}
		have += got
		answered.Store(int64(have / reply))
		select {
		case more <- struct{}{}:
		default:
		}
	}
	return <-wrote
}

// victimAddr, in the environment, makes TestClientVictim serve there.
const victimAddr = "HITLINE_TEST_SERVE"

// TestClientVictim is a server in a process of its own, for BenchmarkClientPipeline.
func TestClientVictim(t *testing.T) {
	addr := os.Getenv(victimAddr)
	if addr == "" {
		t.Skip("a process of BenchmarkClientPipeline")
	}
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	s, err := server.New(service, server.Config{Listeners: []server.Listener{{Address: addr}}, Loops: 1, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	if err := s.Start(background); err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent ends
	os.Exit(0)
}

// victim is a TestClientVictim.
type victim struct {
	cmd *exec.Cmd
	in  io.Closer
}

func startVictim(t testing.TB, addr string) *victim {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestClientVictim$")
		cmd.Env = append(os.Environ(), victimAddr+"="+addr)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		if line == "ready\n" {
			return &victim{cmd, in}
		}
		in.Close()
		_ = cmd.Wait()
		require.Less(t, time.Since(begun), lookuptest.Patience, "child says %q, %v", line, err)
	}
}

// kill is kill -9.
func (c *victim) kill(t testing.TB) {
	require.NoError(t, c.cmd.Process.Kill())
	_ = c.cmd.Wait()
	c.in.Close()
}
