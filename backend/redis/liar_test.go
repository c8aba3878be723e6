package redis

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
)

// scripted is a server whose answers are those of a connection's script, which is told
// each command in lower case.
func scripted(t *testing.T, begin func() (answer func(command string) string)) (addr string) {
	t.Helper()
	return listen(t, func(c net.Conn) {
		in, answer := bufio.NewReader(c), begin()
		for {
			words, err := readCommand(in)
			if err != nil {
				return
			}
			if _, err := io.WriteString(c, answer(strings.ToLower(words[0]))); err != nil {
				return
			}
		}
	})
}

// noCommand is the answer to what a server does not know.
const noCommand = "-ERR unknown command\r\n"

// liar is a server that answers pings, and to one command what it should not.
func liar(t *testing.T, command, reply string) (addr string) {
	t.Helper()
	return scripted(t, func() func(string) string {
		return func(asked string) string {
			switch asked {
			case "ping":
				return "+PONG\r\n"
			case command:
				return reply
			}
			return noCommand
		}
	})
}

func readCommand(in *bufio.Reader) ([]string, error) {
	var args, size int
	if _, err := fmt.Fscanf(in, "*%d\r\n", &args); err != nil {
		return nil, err
	}
	words := make([]string, args)
	for i := range words {
		if _, err := fmt.Fscanf(in, "$%d\r\n", &size); err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(in, word); err != nil {
			return nil, err
		}
		words[i] = string(word[:size])
	}
	return words, nil
}

// A server that does not heed the pattern of a scan sends keys of any shape.
func TestSampleOfOtherKeys(t *testing.T) {
	b := testBackend(t, Config{URL: "redis://" + liar(t, "scan", "*2\r\n$1\r\n0\r\n*2\r\n$5\r\nother\r\n$3\r\nm@0\r\n")})
	got, err := b.Sample(soon(t))
	require.NoError(t, err)
	require.Equal(t, []string{"m@0"}, got.Keys)
}

// A server may announce more than any memory holds, and that ends no process.
func TestHugeAnswers(t *testing.T) {
	const huge = "*4611686018427387904\r\n"
	slots := "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%s\r\n"
	for name, one := range map[string]struct {
		layout Layout
		ask    func(ctx context.Context, b *Backend) error
	}{
		"smismember": {LayoutSet, func(ctx context.Context, b *Backend) error { _, err := b.Exists(ctx, blocks("m", 3)); return err }},
		"scan":       {LayoutKeys, func(ctx context.Context, b *Backend) error { _, err := b.Sample(ctx); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			node := liar(t, name, "*2\r\n$1\r\n0\r\n"+huge)
			if name == "smismember" {
				node = liar(t, name, huge)
			}
			_, port, _ := net.SplitHostPort(node)
			seed := liar(t, "cluster", fmt.Sprintf(slots, port))
			for _, url := range []string{"redis://" + node, "redis-cluster://" + seed} {
				b := testBackend(t, Config{URL: url, Layout: one.layout})
				for range 2 {
					err := one.ask(soon(t), b)
					require.ErrorIs(t, err, backend.ErrReply, url)
				}
			}
		})
	}
}

// A server that is stopped between a connection's first two commands answers late, and
// what comes late is no answer to the next one.
func TestLateBeginning(t *testing.T) {
	addr := scripted(t, func() func(string) string {
		late := ""
		return func(asked string) string {
			answer := noCommand
			switch asked {
			case "ping":
				late = "+PONG\r\n"
				return ""
			case "set":
				answer = "-OOM command not allowed when used memory > 'maxmemory'.\r\n"
			}
			answer, late = late+answer, ""
			return answer
		}
	})
	b := testBackend(t, Config{URL: "redis://" + addr, IOTimeout: 50 * time.Millisecond})
	require.Error(t, b.Store(soon(t), blocks("m", 1)), "nothing is stored")
}

// A connection whose beginning fails is closed, and not left to the collector of garbage.
func TestFailedBeginningsAreClosed(t *testing.T) {
	open, most := make(chan int, 1), 0
	open <- 0
	addr := listen(t, func(c net.Conn) {
		n := <-open + 1
		most = max(most, n)
		open <- n
		_, _ = io.Copy(io.Discard, c)
		open <- <-open - 1
	})
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	b := testBackend(t, Config{URL: "redis://" + addr, IOTimeout: 5 * time.Millisecond})
	for range 10 {
		_, err := b.Exists(soon(t), blocks("m", 1))
		require.Error(t, err)
	}
	require.Eventually(t, func() bool {
		n := <-open
		closed := n == 0 && most > 0
		open <- n
		return closed
	}, patience, time.Millisecond)
}

// A connection that has closed itself is closed again by the driver, and that is no error
// of Backend.Close.
func TestClosedTwice(t *testing.T) {
	var d dialer
	conn, err := d.dial(soon(t), "tcp", listen(t, func(net.Conn) {}))
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err, "the server has hung up")
	require.NoError(t, conn.Close())
}
