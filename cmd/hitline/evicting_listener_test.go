package main

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pipeServer is an HTTP server behind an evictingListener, in a synctest bubble.
type pipeServer struct {
	t       *testing.T
	pipes   lookuptest.Pipes
	http    *http.Server
	clients []*pipeClient
}

// pipeClient is a connection to a pipeServer. It reads nothing until status is called.
type pipeClient struct {
	net.Conn
	id     int // 0 for the first client of a server
	server *pipeServer
	ended  chan struct{} // closed when the server has closed the connection
	reply  *bufio.Reader
}

// startHTTP serves handler until the test ends.
func startHTTP(t *testing.T, maxConns int, handler http.Handler) *pipeServer {
	s := &pipeServer{t: t, pipes: make(lookuptest.Pipes)}
	s.http = newHTTPServer(handler, func() bool { return false }, slog.New(slog.DiscardHandler))
	listener := (&httpListener{bound: s.pipes, maxConns: maxConns, cpu: cpushare.New(8)}).listen(s.http)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.http.Serve(listener)
	}()
	t.Cleanup(func() { _ = s.http.Close(); <-served })
	return s
}

// trackedConn is the server's end of a connection.
type trackedConn struct {
	net.Conn
	ended chan struct{}
}

func (c *trackedConn) Close() error {
	select {
	case <-c.ended:
	default:
		close(c.ended)
	}
	return c.Conn.Close()
}

// dial connects, sends request and waits until the server has nothing to do.
func (s *pipeServer) dial(request string) *pipeClient {
	near, far := net.Pipe()
	c := &pipeClient{Conn: near, id: len(s.clients), server: s, ended: make(chan struct{}), reply: bufio.NewReader(near)}
	s.t.Cleanup(func() { near.Close() })
	s.clients = append(s.clients, c)
	s.pipes <- &trackedConn{Conn: far, ended: c.ended}
	if request != "" {
		go func() { _, _ = io.WriteString(near, request) }()
	}
	synctest.Wait()
	return c
}

// wait lets time pass.
func (s *pipeServer) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// open returns the ids of the connections that the server has not closed.
func (s *pipeServer) open() (open []int) {
	for _, c := range s.clients {
		select {
		case <-c.ended:
		default:
			open = append(open, c.id)
		}
	}
	return open
}

// status reads a reply.
func (c *pipeClient) status() int {
	response, err := http.ReadResponse(c.reply, nil)
	require.NoError(c.server.t, err)
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(c.server.t, err)
	synctest.Wait()
	return response.StatusCode
}

const (
	getQuick = "GET /quick HTTP/1.1\r\nHost: h\r\n\r\n"
	getSlow  = "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n"
)

// quickAndSlow answers /slow when release is closed.
func quickAndSlow(release chan struct{}) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/quick", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) {
		defer cpushare.Pause(r.Context())()
		<-release
	})
	return mux
}

// At the limit the connection that has waited for a request for longest is closed, and
// those with a request are closed last, the oldest first.
func TestEvictionOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := startHTTP(t, 4, quickAndSlow(release))
		defer close(release)
		dial := func(request string) *pipeClient {
			c := s.dial(request)
			s.wait(minConnAge)
			return c
		}
		slow := dial(getSlow)
		idle := dial(getQuick)
		silent := dial("")
		half := dial("GET /qui")
		assert.Equal(t, 200, idle.status()) // from here on it waits for a request
		s.wait(minConnAge)
		assert.Len(t, s.open(), 4)

		slow2 := dial(getSlow)
		assert.Equal(t, []int{slow.id, idle.id, half.id, slow2.id}, s.open(), "client %d was silent for longest", silent.id)
		slow3 := dial(getSlow)
		assert.Equal(t, []int{slow.id, idle.id, slow2.id, slow3.id}, s.open(), "client %d has half a request, which is none", half.id)
		slow4 := dial(getSlow)
		assert.Equal(t, []int{slow.id, slow2.id, slow3.id, slow4.id}, s.open(), "client %d was idle", idle.id)
		last := dial("")
		assert.Equal(t, []int{slow2.id, slow3.id, slow4.id, last.id}, s.open(), "client %d is the oldest", slow.id)
		dial("")
		assert.Len(t, s.open(), 4)
		assert.Equal(t, []int{slow2.id, slow3.id, slow4.id}, s.open()[:3], "client %d has no request", last.id)
	})
}

// A connection has minConnAge to send a request. A further one is accepted after that.
func TestEvictionMinimumAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startHTTP(t, 2, quickAndSlow(nil))
		first := s.dial("")
		s.wait(minConnAge / 2)
		second := s.dial(getQuick)
		third := s.dial(getQuick)
		s.wait(minConnAge/2 - 2*time.Millisecond)
		assert.Equal(t, []int{first.id, second.id, third.id}, s.open(), "the third waits")
		s.wait(3 * time.Millisecond)
		assert.Equal(t, []int{second.id, third.id}, s.open())
		assert.Equal(t, 200, third.status())
	})
}

// Each connection that lets the server wait is closed in time.
func TestHTTPTimeouts(t *testing.T) {
	for name, c := range map[string]struct {
		request string
		reads   bool
		timeout time.Duration
	}{
		"silent":          {"", false, headerTimeout},
		"half a header":   {"GET /quick HTTP/1.1\r\nHo", true, headerTimeout}, // the reply is 400
		"half a body":     {"POST /quick HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n12", true, requestTimeout},
		"reading nothing": {getQuick, false, replyTimeout},
		"idle":            {getQuick, true, idleTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mux := http.NewServeMux()
				mux.HandleFunc("/quick", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
				s := startHTTP(t, 2, mux)
				conn := s.dial(c.request)
				if c.reads {
					go func() { _, _ = io.Copy(io.Discard, conn) }()
				}
				s.wait(c.timeout - 1)
				assert.Len(t, s.open(), 1)
				s.wait(time.Second)
				assert.Empty(t, s.open())
			})
		})
	}
}

// A header of over 8 KiB is refused before it has arrived.
func TestBigHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startHTTP(t, 2, quickAndSlow(nil))
		const begin, end = "GET /quick HTTP/1.1\r\nHost: h\r\nX: ", "\r\n\r\n"
		fits := begin + strings.Repeat("x", 8<<10-len(begin)-len(end))
		assert.Equal(t, 200, s.dial(fits+end).status())
		assert.Equal(t, 431, s.dial(fits+"xxxxx").status())
	})
}

// Shutdown closes connections without a request at once, and waits for the others.
func TestShutdownBesideSilentConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := startHTTP(t, 3, quickAndSlow(release))
		slow := s.dial(getSlow)
		s.dial("")
		s.dial("GET /qui")
		s.dial(getQuick) // Accept waits for a place
		ended := make(chan error)
		go func() { ended <- s.http.Shutdown(t.Context()) }()
		s.wait(2 * time.Millisecond)
		assert.Equal(t, []int{slow.id}, s.open())
		close(release)
		assert.Equal(t, 200, slow.status())
		assert.NoError(t, <-ended)
	})
}
