package redis

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
)

// fault is what a faultyServer does in place of an answer. The connection is closed when it
// returns false.
type fault func(conn net.Conn) (keep bool)

// faultyServer is a server on which all keys exist. While a fault is set it answers the
// command with it. It is also the only node of a cluster.
type faultyServer struct {
	addr    string
	command string // in lower case
	fault   atomic.Pointer[fault]
	unknown sync.Map      // commands that it does not know, in lower case
	stop    chan struct{} // closed at the end of the test
}

func startFaulty(t *testing.T, command string) *faultyServer {
	t.Helper()
	s := &faultyServer{command: command, stop: make(chan struct{})}
	s.addr = listen(t, s.serve)
	t.Cleanup(func() { close(s.stop) })
	return s
}

// serve serves one connection until the test ends: the driver does not close a new connection
// whose first answer is of a wrong type.
func (s *faultyServer) serve(conn net.Conn) {
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-s.stop:
			conn.Close()
		case <-ended:
		}
	}()
	for in := bufio.NewReader(conn); ; {
		words, err := readCommand(in)
		if err != nil {
			return
		}
		command := strings.ToLower(words[0])
		if f := s.fault.Load(); f != nil && command == s.command {
			if !(*f)(conn) {
				return
			}
			continue
		}
		if _, err := io.WriteString(conn, s.answer(words)); err != nil {
			return
		}
	}
}

// others returns the commands that it got and that this package and HELLO do not explain.
func (s *faultyServer) others() (names []string) {
	for name := range s.unknown.Range {
		if !slices.Contains([]string{"hello", "set", "unlink", "scan", "dbsize", "info"}, name.(string)) {
			names = append(names, name.(string))
		}
	}
	return names
}

// answer returns the right answer to a command.
func (s *faultyServer) answer(words []string) string {
	switch strings.ToLower(words[0]) {
	case "ping":
		return "+PONG\r\n"
	case "exists":
		return fmt.Sprintf(":%d\r\n", len(words)-1)
	case "cluster":
		host, port, _ := net.SplitHostPort(s.addr)
		return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
	}
	s.unknown.Store(strings.ToLower(words[0]), true)
	return noCommand
}

// sends answers with text.
func sends(text string) fault {
	return func(conn net.Conn) bool {
		_, err := io.WriteString(conn, text)
		return err == nil
	}
}

// repeats answers with start, and then with text for ever.
func repeats(start, text string) fault {
	return func(conn net.Conn) bool {
		for chunk := start + text; ; chunk = strings.Repeat(text, max(1, 4096/len(text))) {
			if _, err := io.WriteString(conn, chunk); err != nil {
				return false
			}
		}
	}
}

// faults are those of any command. The store must fail with each.
func (s *faultyServer) faults() map[string]fault {
	return map[string]fault{
		"string of 512 MiB":      sends("$536870912\r\n"),
		"error of 2 GB":          sends("!2147483647\r\n"),
		"verbatim of 2 GB":       sends("=2147483647\r\n"),
		"array of 2^31":          sends("*2147483648\r\n"),
		"map of 2^31":            sends("%2147483648\r\n"),
		"nested arrays of 65000": repeats("", "*65000\r\n"),
		"huge in a small array":  sends("*2\r\n:1\r\n$2147483647\r\n"),
		"length of 300 digits":   sends("$" + strings.Repeat("9", 300) + "\r\n"),
		"negative string":        sends("$-2\r\n"),
		"negative array":         sends("*-2147483648\r\n"),
		"streamed string":        sends("$?\r\n;4\r\nabcd\r\n;0\r\n"),
		"streamed array":         sends("*?\r\n:1\r\n.\r\n"),
		"nested 1,000 deep":      sends(strings.Repeat("*1\r\n", 1000) + ":1\r\n"),
		"nested without end":     repeats("", "*1\r\n"),
		"endless line":           repeats("+", strings.Repeat("x", 1024)),
		"endless error":          repeats("-", strings.Repeat("x", 1024)),
		"endless integer":        repeats(":", "1"),
		"endless array":          repeats("*2147483647\r\n", ":1\r\n"),
		"endless strings":        repeats("*1000\r\n", "$1048576\r\n"+strings.Repeat("x", 1<<20)+"\r\n"),
		"no answer":              func(net.Conn) bool { <-s.stop; return false },
		"half an answer":         func(c net.Conn) bool { sends("*2\r\n:1")(c); return false },
		"half a string":          func(c net.Conn) bool { sends("$100\r\nabc")(c); return false },
		"closed":                 func(net.Conn) bool { return false },
		"garbage":                sends("\x00\xff\x00\xffgarbage\r\n"),
		"HTTP":                   sends("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"push messages for ever": repeats("", ">2\r\n+invalidate\r\n*1\r\n+a\r\n"),
		"huge push message":      sends(">2147483647\r\n"),
		"attributes for ever":    repeats("", "|1\r\n+ttl\r\n:1\r\n"),
		"empty attributes":       repeats("", "|0\r\n"),
		"null in an attribute":   sends("|1\r\n+a\r\n$-1\r\n+x$2147483647\r\n"),
		"null string":            sends("$-1\r\n"),
		"null array":             sends("*-1\r\n"),
		"wrong type":             sends("*1\r\n*1\r\n$3\r\nabc\r\n"),
		"wrong text":             sends("+OK\r\n"),
		"wrong error":            sends("-WRONGTYPE Operation against a key\r\n"),
		"LF alone":               sends(":1\n:1\n"),
	}
}

// maxFaultBytes bounds what a lookup over a faulty server allocates, with the retries of the
// driver.
const maxFaultBytes = 64 << 20

// TestFaultyServer has a server that fails in many ways. A lookup is a hit of 0 without an
// error, the failure is counted, and little memory is allocated. Lookups hit again when the
// server is well.
func TestFaultyServer(t *testing.T) {
	for _, scheme := range []string{"redis", "redis-cluster"} {
		s := startFaulty(t, "exists")
		faults := s.faults()
		faults["more than asked"], faults["negative count"] = sends(":9\r\n"), sends(":-1\r\n")
		for name, f := range faults {
			t.Run(scheme+"/"+name, func(t *testing.T) { checkFault(t, s, scheme, f) })
		}
	}
}

// TestFaultyFirstAnswer has the first answer on a connection fail.
func TestFaultyFirstAnswer(t *testing.T) {
	for command, scheme := range map[string]string{"ping": "redis", "cluster": "redis-cluster"} {
		s := startFaulty(t, command)
		faults := s.faults()
		for _, name := range []string{"wrong text", "wrong error", "null string", "null array"} { // a PING may be answered so
			delete(faults, name)
		}
		for name, f := range faults {
			t.Run(command+"/"+name, func(t *testing.T) { checkFault(t, s, scheme, f) })
		}
	}
}

// TestCommandsOfLookups checks that the driver sends no commands but ours, HELLO and CLUSTER
// SLOTS. In answers to COMMAND it skips a null string as one of two bytes, so that the
// replyLimit would not see the same headers.
func TestCommandsOfLookups(t *testing.T) {
	for _, scheme := range []string{"redis", "redis-cluster"} {
		s := startFaulty(t, "nothing")
		b := testBackend(t, Config{URL: scheme + "://" + s.addr})
		answers, err := b.Exists(testContext(t), backend.KeyList(blocks("m", 1000)), false)
		require.NoError(t, err)
		require.Len(t, answers, 1000)
		_ = b.Store(testContext(t), blocks("m", 3))
		_ = b.Evict(testContext(t), blocks("m", 3))
		_ = b.Reset(testContext(t))
		_, _ = b.Sample(testContext(t))
		_, _ = b.Info(testContext(t))
		require.Empty(t, s.others())
	}
}

// checkFault checks lookups while f is set and after it.
func checkFault(t *testing.T, s *faultyServer, scheme string, f fault) {
	const timeout, blocks = 200 * time.Millisecond, 8
	pool := coordinator.Pool{ModelName: "m", HashBlockSize: 16}
	coord, err := coordinator.New(pool)
	require.NoError(t, err)
	b := testBackend(t, Config{URL: scheme + "://" + s.addr, KeyPrefix: PoolPrefix(coord), DialTimeout: timeout, IOTimeout: timeout})
	service, err := lookup.NewService(lookup.ServiceConfig{
		Pool: pool, Backend: b, Remote: lookup.RemoteConfig{Timeout: timeout, BreakerFailures: 1 << 20}})
	require.NoError(t, err)
	look := func() api.Hit {
		begun := time.Now()
		hit, err := service.Lookup(t.Context(), blocks*16, coordinator.NewHashes(make([]byte, blocks*32), 32))
		require.NoError(t, err)
		require.Less(t, time.Since(begun), testTimeout)
		return hit
	}
	if s.command == "exists" { // on an open connection
		require.Eventually(t, func() bool { return look().Tokens == blocks*16 }, testTimeout, time.Millisecond)
	}
	failed := func() int64 { stat := service.Stat(); return stat.BackendErrors + stat.BackendTimeouts }
	failedBefore := failed()
	s.fault.Store(&f)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.Zero(t, look().Tokens)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(maxFaultBytes))
	require.Equal(t, failedBefore+1, failed())
	s.fault.Store(nil)
	require.Eventually(t, func() bool { return look().Tokens == blocks*16 }, testTimeout, time.Millisecond)
}

// TestHugeAnnouncementError checks the text of the error, which says what the server did.
func TestHugeAnnouncementError(t *testing.T) {
	s := startFaulty(t, "exists")
	f := sends("$2147483647\r\n")
	s.fault.Store(&f)
	_, err := testBackend(t, Config{URL: "redis://" + s.addr}).Exists(testContext(t), backend.KeyList(blocks("m", 3)), false)
	require.EqualError(t, err, "bad reply: redis: "+s.addr+
		": the server announced a string of 2147483647 bytes, at most 1048576 are accepted")
}

// TestHugeAnnouncementTransports has the server behind a socket's path, and behind TLS.
func TestHugeAnnouncementTransports(t *testing.T) {
	s := &faultyServer{command: "exists", stop: make(chan struct{})}
	defer close(s.stop)
	f := sends("$2147483647\r\n")
	s.fault.Store(&f)
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	path := filepath.Join(t.TempDir(), "s")
	for network, address := range map[string]string{"unix": path, "tcp": "127.0.0.1:0"} {
		l, err := net.Listen(network, address)
		require.NoError(t, err)
		defer l.Close()
		url := "unix://" + path
		if network == "tcp" {
			url = "rediss://" + l.Addr().String() + "?skip_verify=true"
			l = tls.NewListener(l, certified.TLS)
		}
		go serveListener(l, s.serve)
		_, err = testBackend(t, Config{URL: url}).Exists(testContext(t), backend.KeyList(blocks("m", 3)), false)
		require.ErrorContains(t, err, "a string of 2147483647 bytes", url)
	}
}
