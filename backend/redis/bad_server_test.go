package redis

import (
	"bufio"
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

// scriptedServer starts a server. It calls script for each connection, and the returned
// answer for each command, in lower case.
func scriptedServer(t *testing.T, script func() (answer func(command string) string)) (addr string) {
	t.Helper()
	return listen(t, func(c net.Conn) {
		answer := script()
		serveCommands(c, func(command string, _ ...string) (string, bool) { return answer(command), true })
	})
}

// serveCommands writes the answer to each command, in lower case, until one has none.
func serveCommands(c net.Conn, answer func(command string, args ...string) (string, bool)) {
	for in := bufio.NewReader(c); ; {
		words, err := readCommand(in)
		if err != nil {
			return
		}
		text, ok := answer(strings.ToLower(words[0]), words[1:]...)
		if !ok {
			return
		}
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
	}
}

// noCommand is the reply to an unknown command.
const noCommand = "-ERR unknown command\r\n"

// readCommand reads one command in RESP.
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

// TestSampleOfOtherKeys has a server that has keys of other programs, and ignores the pattern of SCAN.
func TestSampleOfOtherKeys(t *testing.T) {
	bulk := func(key string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(key), key) }
	long := strings.Repeat("x", maxSampleKeyBytes)
	reply := "*2\r\n$1\r\n0\r\n*4\r\n" + bulk("other") + bulk(long+"@0") + bulk("m@group:0") + bulk("m@0")
	b := testBackend(t, Config{URL: "redis://" + scriptedServer(t, func() func(string) string {
		return func(name string) string {
			return map[string]string{"hello": noCommand, "info": noCommand, "ping": "+PONG\r\n", "scan": reply}[name]
		}
	})})
	got, err := b.Sample(testContext(t))
	require.NoError(t, err)
	require.Equal(t, []string{"m@0"}, got.Keys)
	require.True(t, got.Complete)
}

// TestLateFirstReply has a server whose reply to the first PING arrives after the timeout. It
// must not be read as the reply to the next command.
func TestLateFirstReply(t *testing.T) {
	addr := scriptedServer(t, func() func(string) string {
		late := ""
		return func(name string) string {
			answer := noCommand
			switch name {
			case "ping":
				late = "+PONG\r\n"
				return ""
			case "info":
				return ""
			case "set":
				answer = "-OOM command not allowed when used memory > 'maxmemory'.\r\n"
			}
			answer, late = late+answer, ""
			return answer
		}
	})
	b := testBackend(t, Config{URL: "redis://" + addr, IOTimeout: 50 * time.Millisecond})
	require.Error(t, b.Store(testContext(t), blocks("m", 1)), "nothing is stored")
}

// TestFailedConnectionsAreClosed checks that a connection whose first command fails is closed,
// not left to the garbage collector.
func TestFailedConnectionsAreClosed(t *testing.T) {
	open, maxOpen := make(chan int, 1), 0 // open connections now, and at most
	open <- 0
	addr := listen(t, func(c net.Conn) {
		n := <-open + 1
		maxOpen = max(maxOpen, n)
		open <- n
		_, _ = io.Copy(io.Discard, c)
		open <- <-open - 1
	})
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	b := testBackend(t, Config{URL: "redis://" + addr, IOTimeout: 5 * time.Millisecond})
	for range 10 {
		_, err := b.Exists(testContext(t), backend.KeyList(blocks("m", 1)), false)
		require.Error(t, err)
	}
	require.Eventually(t, func() bool {
		n := <-open
		closed := n == 0 && maxOpen > 0
		open <- n
		return closed
	}, testTimeout, time.Millisecond)
}

// TestRepliesPerRequest has one connection get more bytes than the replies to one request may
// have, in answer to several requests.
func TestRepliesPerRequest(t *testing.T) {
	reply := "$1048576\r\n" + strings.Repeat("x", 1<<20) + "\r\n"
	d := dialer{processes: &processes{}}
	conn, err := d.dial(testContext(t), "tcp", scriptedServer(t, func() func(string) string { return func(string) string { return reply } }))
	require.NoError(t, err)
	defer conn.Close()
	for range 2 * maxReplyBytes >> 20 {
		_, err := io.WriteString(conn, "*1\r\n$4\r\nping\r\n")
		require.NoError(t, err)
		_, err = io.ReadFull(conn, make([]byte, len(reply)))
		require.NoError(t, err)
	}
}

// TestClosedTwice checks that the driver may close a connection that has closed itself.
func TestClosedTwice(t *testing.T) {
	d := dialer{processes: &processes{}}
	conn, err := d.dial(testContext(t), "tcp", listen(t, func(net.Conn) {}))
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err, "the server has hung up")
	require.NoError(t, conn.Close())
}
