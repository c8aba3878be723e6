// Package fakeserver has servers that clients are tested with, all clients with the same ones. They answer each request whose
// reply a client reads, and note what was sent.
//
// CONTRIBUTING.md promises that any release may add fields to a reply in JSON. So the replies can be grown: with a field more
// of each type of JSON in every object. A client must not tell.
//
// It needs the standard library and package netproto alone, as modules next to this one use it, too.
package fakeserver

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/hitline/hitline/netproto"
)

// Server is two servers: one of the lookup protocol, and one of router.listen.
type Server struct {
	Lookup, Router string // addresses
	grown          bool
	mu             sync.Mutex
	sent           strings.Builder
}

// Config is how a Server differs from one of this release.
type Config struct {
	Grown bool        // its documents have more fields
	TLS   *tls.Config // nil: none. What it learns of a client is noted
}

// Start starts a server until the test ends. Clients must have closed their connections before that.
func Start(t testing.TB, cfg Config) *Server {
	t.Helper()
	s := &Server{grown: cfg.Grown}
	secure := cfg.TLS.Clone()
	router := httptest.NewUnstartedServer(http.HandlerFunc(s.serveHTTP))
	router.Config.ErrorLog = log.New(io.Discard, "", 0)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Lookup = "tcp://" + listener.Addr().String()
	if secure != nil {
		secure.VerifyConnection = s.noteTLS
		router.TLS = secure
		router.StartTLS()
		s.Lookup = "tls://" + listener.Addr().String()
		listener = tls.NewListener(listener, secure)
	} else {
		router.Start()
	}
	s.Router = router.URL
	t.Cleanup(router.Close)
	Serve(t, listener, func(conn net.Conn) { Answer(conn, s.answer) })
	return s
}

// Serve calls serve with each connection to a listener, which is then closed, until the test ends. It waits for all then.
func Serve(t testing.TB, listener net.Listener, serve func(net.Conn)) {
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = conn.Close() }()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() { _ = listener.Close(); serving.Wait() })
}

// Answer answers each request of a connection with what answer returns for its frames, both without their envelope, until the
// connection ends or answer returns nil. answer may keep the frames.
func Answer(conn net.Conn, answer func(frames [][]byte) (reply []byte)) {
	var in []byte
	for buf := make([]byte, 1<<16); ; {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		in = append(in, buf[:n]...)
		for {
			frames, used, err := netproto.ParseMessage(in, netproto.Limits{}, nil)
			if err != nil {
				break
			}
			in = bytes.Clone(in[used:])
			var envelope []byte
			if len(frames) > 2 && len(frames[1]) == 0 {
				envelope = netproto.AppendFrame(netproto.AppendFrame(nil, frames[0], true), nil, true)
				frames = frames[2:]
			}
			reply := answer(frames)
			if reply == nil {
				return
			}
			if _, err := conn.Write(append(envelope, reply...)); err != nil {
				return
			}
		}
	}
}

// Sent returns what clients have sent since the last call, a line for each request. Documents and tokens are as they were
// sent, other frames in hex.
func (s *Server) Sent() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.sent.Reset()
	return s.sent.String()
}

func (s *Server) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&s.sent, format, args...)
}

// noteTLS notes what a client has told in a handshake.
func (s *Server) noteTLS(state tls.ConnectionState) error {
	s.note("TLS to %q", state.ServerName)
	for _, certificate := range state.PeerCertificates {
		s.note(" of %s", certificate.DNSNames)
	}
	s.note("\n")
	return nil
}

// document returns a document of replies.
func (s *Server) document(name string) []byte {
	if s.grown {
		return replies[name].grown()
	}
	return []byte(replies[name].document)
}

func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // the client may be gone
	s.note("%s %s %s %s\n", r.Method, r.URL.Path, r.Header.Get("Authorization"), body)
	name := strings.TrimPrefix(r.URL.Path, "/")
	if _, ok := replies[name]; !ok {
		w.WriteHeader(http.StatusConflict)
		name = "refusal over HTTP"
	}
	_, _ = w.Write(s.document(name))
}

// answer notes a request, and returns its reply.
func (s *Server) answer(frames [][]byte) []byte {
	tag := string(frames[0])
	line := tag
	for _, frame := range frames[1:] {
		if tag == "auth" || json.Valid(frame) {
			line += " " + string(frame)
		} else {
			line += fmt.Sprintf(" %x", frame)
		}
	}
	s.note("%s\n", line)
	switch tag {
	case "auth":
		return netproto.AppendDone(nil, nil, nil)
	case "ping", "pool", "stat", "explain":
		return netproto.AppendDone(nil, nil, netproto.AppendFrame(nil, s.document(tag), false))
	case "lookup", "lookup_from":
		return netproto.AppendFrame(nil, binary.BigEndian.AppendUint32(nil, 32), false)
	case "reset":
		return netproto.AppendRefusal(nil, nil, netproto.StatusPartial, "not all", s.document("partly done"))
	}
	return netproto.AppendRefusal(nil, nil, netproto.StatusFailed, "no", s.document("refusal"))
}
