package cpushare

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/lookuptest"
)

// testServer is an http.Server over connections in memory, with one processor, in a synctest bubble.
type testServer struct {
	share  *Share
	pipes  lookuptest.Pipes
	states sync.Map // of http.ConnState, by connection below
}

// startServer serves paths: /quick, /body reads its body, /large replies 1 MiB, /sized says so, /late reads its body after that, /hold computes
// after its body until hold is closed, /pause waits so long, and /probe, too, but as one that needs no processor.
func startServer(t *testing.T, hold chan struct{}, secure *tls.Config) *testServer {
	s := &testServer{share: New(1), pipes: make(lookuptest.Pipes)}
	mux := http.NewServeMux()
	large := func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, 1<<20)) }
	mux.HandleFunc("/quick", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/body", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { large(w) })
	mux.HandleFunc("/sized", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "1048576"); large(w) })
	mux.HandleFunc("/late", func(w http.ResponseWriter, r *http.Request) { large(w); _, _ = io.Copy(io.Discard, r.Body) })
	mux.HandleFunc("/hold", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-hold })
	mux.HandleFunc("/pause", func(_ http.ResponseWriter, r *http.Request) {
		defer Pause(r.Context())()
		defer Pause(r.Context())()
		<-hold
	})
	mux.HandleFunc("/probe", func(http.ResponseWriter, *http.Request) { <-hold })
	mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	server := &http.Server{Handler: mux, MaxHeaderBytes: 1, ConnState: func(c net.Conn, state http.ConnState) { s.states.Store(c, state) }}
	listener := s.share.Bind(server, s.pipes, "test", "/probe")
	if secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close(); <-served })
	return s
}

// dial connects and sends a text as far as it is read, and waits until nothing more happens. The client then reads nothing.
func (s *testServer) dial(t *testing.T, text string) net.Conn {
	near, far := net.Pipe()
	s.pipes <- far
	go func() { _, _ = io.WriteString(near, text) }()
	t.Cleanup(func() { near.Close() })
	synctest.Wait()
	return near
}

func (s *testServer) free() int {
	s.share.mu.Lock()
	defer s.share.mu.Unlock()
	return s.share.free
}

const head = " HTTP/1.1\r\nHost: h\r\n"

// A connection holds no processor while it waits: for its peer, for what its handler waits for, or before it is closed.
func TestWaitingHoldsNothing(t *testing.T) {
	long := strings.Repeat("x", 300<<10)
	for name, text := range map[string]string{
		"silent":                     "",
		"half a header":              "GET /quick HTTP/1.1\r\nHo",
		"a header of 4,095 bytes":    "GET /quick HTTP/1.1\r\nX: " + long[:4095-24],
		"idle":                       "GET /quick" + head + "\r\n",
		"idle, half a header":        "GET /quick" + head + "\r\nGET",
		"half a body":                "POST /body" + head + "Content-Length: 5\r\n\r\n12",
		"half a body, unread":        "POST /quick" + head + "Content-Length: 5\r\n\r\n12",
		"half a body, in its reply":  "POST /late" + head + "Content-Length: 5\r\n\r\n12",
		"half a chunk":               "POST /body" + head + "Transfer-Encoding: chunked\r\n\r\n5\r\n12",
		"half the length of a chunk": "POST /body" + head + "Transfer-Encoding: chunked\r\n\r\n5;" + long[:4000],
		"half a body, not continued": "POST /quick" + head + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
		"half a body, to continue":   "POST /body" + head + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
		"half a body, other Expect":  "POST /body" + head + "Expect: what\r\nContent-Length: 5\r\n\r\n12",
		"half a body of OPTIONS *":   "OPTIONS *" + head + "Content-Length: 5\r\n\r\n12",
		"a large body, unread":       "POST /quick" + head + "Content-Length: 307200\r\n\r\n" + long[:8],
		"a large body and reply":     "POST /large" + head + "Content-Length: 307200\r\n\r\n" + long[:8],
		"a large body, sized reply":  "POST /sized" + head + "Content-Length: 307200\r\n\r\n" + long[:8],
		"a header that is too large": "GET /quick" + head + "X: " + long[:8<<10] + "\r\n\r\n",
		"no HTTP":                    "hello\r\n\r\n",
		"the reply is not read":      "GET /large" + head + "\r\n",
		"no reply is read":           strings.Repeat("GET /quick"+head+"\r\n", 100),
		"no reply is read, bodies":   strings.Repeat("POST /quick"+head+"Content-Length: 2\r\n\r\n12", 100),
		"the handler waits":          "GET /pause" + head + "\r\n",
		"a handler that panics":      "GET /panic" + head + "\r\n",
	} {
		for _, reads := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", reads ", reads), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					hold := make(chan struct{})
					defer close(hold)
					s := startServer(t, hold, nil)
					conn := s.dial(t, text)
					if reads {
						go func() { _, _ = io.Copy(io.Discard, conn) }()
						synctest.Wait()
					}
					assert.Equal(t, 1, s.free())
					conn.Close()
					time.Sleep(time.Second) // longer than net/http does, which is over when the test ends
				})
			})
		}
	}
}

// The handshake of TLS is no different, nor is what follows.
func TestWaitingHoldsNothingOverTLS(t *testing.T) {
	leaf := certtest.NewCA("ca").Leaf("h")
	for name, text := range map[string]string{
		"idle":                 "GET /quick" + head + "\r\n",
		"half a body":          "POST /body" + head + "Content-Length: 5\r\n\r\n12",
		"too large":            "GET /quick" + head + "X: " + strings.Repeat("x", 8<<10) + "\r\n\r\n",
		"a large body, unread": "POST /large" + head + "Content-Length: 307200\r\n\r\n12345678",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startServer(t, nil, &tls.Config{Certificates: []tls.Certificate{leaf}})
				half := s.dial(t, "\x16\x03\x01")
				assert.Equal(t, 1, s.free())
				half.Close()
				secure := tls.Client(s.dial(t, ""), &tls.Config{InsecureSkipVerify: true})
				require.NoError(t, secure.Handshake())
				go func() { _, _ = io.Copy(io.Discard, secure) }()
				go func() { _, _ = io.WriteString(secure, text) }()
				synctest.Wait()
				assert.Equal(t, 1, s.free())
				idle := 0
				s.states.Range(func(conn, state any) bool {
					if _, isTLS := conn.(*tls.Conn); !isTLS && state == http.StateIdle {
						idle++
					}
					return true
				})
				assert.Equal(t, name == "idle", idle == 1, "the state is that of the connection below")
				secure.Close()
				time.Sleep(time.Second)
			})
		})
	}
}

// A handler holds a processor, although net/http reads from the connection meanwhile.
func TestHandlerHoldsProcessor(t *testing.T) {
	quick := "GET /quick" + head + "\r\n"
	for name, text := range map[string]string{
		"no body":            "GET /hold" + head + "\r\n",
		"a request behind":   "GET /hold" + head + "\r\n" + quick,
		"many behind":        "GET /hold" + head + "\r\n" + strings.Repeat(quick, 1000),
		"a body":             "POST /hold" + head + "Content-Length: 5\r\n\r\n12345",
		"a body and behind":  "POST /hold" + head + "Content-Length: 5\r\n\r\n12345" + quick,
		"chunks":             "POST /hold" + head + "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n",
		"continued":          "POST /hold" + head + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n12345",
		"the second request": quick + "GET /hold" + head + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hold := make(chan struct{})
				s := startServer(t, hold, nil)
				conn := s.dial(t, text)
				go func() { _, _ = io.Copy(io.Discard, conn) }()
				synctest.Wait()
				assert.Zero(t, s.free())
				close(hold)
				synctest.Wait()
				assert.Equal(t, 1, s.free())
				s.states.Range(func(_, state any) bool { return assert.Equal(t, http.StateIdle, state) })
			})
		})
	}
}

// A request that has arrived with the one before it waits for a processor before it is read.
func TestNextRequestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		s := startServer(t, hold, nil)
		conn := s.dial(t, "GET /hold"+head+"\r\nGET /quick"+head+"\r\n")
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		other := s.share.NewClaim(Key{})
		go other.Acquire()
		synctest.Wait()
		close(hold)
		synctest.Wait()
		s.states.Range(func(_, state any) bool { return assert.Equal(t, http.StateIdle, state) })
		s.share.mu.Lock()
		assert.Equal(t, 1, s.share.turns.Len())
		s.share.mu.Unlock()
		other.Close()
		synctest.Wait()
		assert.Equal(t, 1, s.free())
	})
}

// A turn ends between two requests: a connection that pipelines many delays another by one that takes longer than a turn.
func TestTurnEndsBetweenRequests(t *testing.T) {
	var order []string
	var mu sync.Mutex
	share, first := New(1), make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-first
		mu.Lock()
		defer mu.Unlock()
		order = append(order, r.URL.Path)
	})}
	bound, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listener := share.Bind(server, bound, "test")
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	dial := func(text string) net.Conn {
		conn, err := net.Dial("tcp", bound.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(conn, text)
		require.NoError(t, err)
		return conn
	}
	crowd := dial(strings.Repeat("GET /crowd"+head+"\r\n", 50))
	defer crowd.Close()
	waiting := func() (n int) {
		share.mu.Lock()
		defer share.mu.Unlock()
		for _, q := range share.queues {
			n += q.claims.Len()
		}
		return n
	}
	require.Eventually(t, func() bool { share.mu.Lock(); defer share.mu.Unlock(); return share.free == 0 }, 20*time.Second, time.Millisecond)
	one := dial("GET /one" + head + "\r\n")
	defer one.Close()
	require.Eventually(t, func() bool { return waiting() == 1 }, 20*time.Second, time.Millisecond)
	close(first)
	for conn, n := range map[net.Conn]int{crowd: 50, one: 1} {
		replies := bufio.NewReader(conn)
		for range n {
			reply, err := http.ReadResponse(replies, nil)
			require.NoError(t, err)
			reply.Body.Close()
		}
	}
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, []string{"/crowd", "/one", "/crowd"}, order[:3])
}

// answered returns how many connections have got a reply.
func (s *testServer) answered() (n int) {
	synctest.Wait()
	s.states.Range(func(_, state any) bool {
		if state == http.StateIdle {
			n++
		}
		return true
	})
	return n
}

// A probe is answered though others have all processors, one at a time. What is more than a probe is not.
func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		s := startServer(t, hold, nil)
		send := func(text string) {
			conn := s.dial(t, text)
			go func() { _, _ = io.Copy(io.Discard, conn) }()
		}
		other := s.share.NewClaim(Key{})
		require.True(t, other.Acquire())
		send("GET /probe" + head + "\r\n")
		send("GET /probe" + head + "\r\n") // meanwhile
		close(hold)
		require.Equal(t, 1, s.answered())
		send("HEAD /probe" + head + "\r\n")
		require.Equal(t, 2, s.answered())
		for _, text := range []string{
			"GET /quick" + head + "\r\n", "POST /probe" + head + "\r\n", "GET /probe/" + head + "\r\n",
			"GET /probe" + head + "\r\nGET /quick" + head + "\r\n", "GET /probe" + head + "Content-Length: 1\r\n\r\n1",
		} {
			send(text)
		}
		require.Equal(t, 2, s.answered())
		other.Close()
		require.Equal(t, 8, s.answered())
		require.Equal(t, 1, s.free())
	})
}

// A probe that waits for its peer keeps no other from being answered.
func TestProbesThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		close(hold)
		s := startServer(t, hold, nil)
		s.dial(t, "GET /probe"+head+"\r\n") // reads no reply
		s.dial(t, "GET /probe"+head+"Content-Length: 1\r\n\r\n")
		other := s.share.NewClaim(Key{})
		require.True(t, other.Acquire())
		conn := s.dial(t, "GET /probe"+head+"\r\n")
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		require.Equal(t, 1, s.answered())
		other.Close()
	})
}

// Over sockets: as many handlers as there are processors compute at a time, replies arrive whole though their readers are
// slow, and at the end nothing is held.
func TestLoadOverSockets(t *testing.T) {
	const processors = 2
	share := New(processors)
	var computing, most atomic.Int64
	reply := strings.Repeat("0123456789abcdef", 1<<14)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n := computing.Add(1)
		for have := most.Load(); n > have && !most.CompareAndSwap(have, n); have = most.Load() {
		}
		Yield(context.Background()) // of no connection
		computing.Add(-1)
		Yield(r.Context())
		SetCredential(r.Context(), r.Header.Get("Name"))
		_, _ = io.WriteString(w, reply)
	})}
	bound, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listener := share.Bind(server, bound, "test")
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	client := &http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for range 5 {
				request, _ := http.NewRequest(http.MethodPost, "http://"+bound.Addr().String(), strings.NewReader(reply[:100<<10]))
				request.Header.Set("Name", fmt.Sprint(i%3))
				response, err := client.Do(request)
				if !assert.NoError(t, err) {
					return
				}
				body, err := io.ReadAll(response.Body)
				response.Body.Close()
				assert.NoError(t, err)
				assert.Equal(t, len(reply), len(body))
			}
		})
	}
	all.Wait()
	require.NoError(t, server.Shutdown(t.Context()))
	<-served
	assert.LessOrEqual(t, most.Load(), int64(processors))
	share.mu.Lock()
	defer share.mu.Unlock()
	assert.Equal(t, processors, share.free)
	assert.Empty(t, share.queues)
}
