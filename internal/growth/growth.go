// Package growth is for tests of what CONTRIBUTING.md promises: any release may add fields to a reply. It has two servers
// that answer each request which a client reads the reply of: as this release does, and grown, with a field more of each
// type of JSON in every object. A client must not tell them apart.
//
// It needs the standard library and package netproto alone, as modules next to this one use it, too.
package growth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/hitline/hitline/netproto"
)

// Servers are the addresses of two servers: tcp:// of the lookup protocol, and http:// of router.listen.
type Servers struct{ Lookup, Router string }

// JSON returns a value as a line.
func JSON(t testing.TB, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

// Each runs a test for the servers of this release, and for grown ones. It fails unless both times what returns the same.
func Each(t *testing.T, what func(t *testing.T, s Servers) string) {
	t.Helper()
	now := what(t, Start(t, false))
	if later := what(t, Start(t, true)); later != now {
		t.Errorf("a later server is read as\n%s\nand this release's as\n%s", later, now)
	}
}

// Start starts both servers until the test ends. If they are grown, all their documents are.
func Start(t testing.TB, grown bool) Servers {
	t.Helper()
	documents := func(name string) []byte {
		if grown {
			return replies[name].grown()
		}
		return []byte(replies[name].document)
	}
	router := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		if _, ok := replies[name]; !ok {
			w.WriteHeader(http.StatusConflict)
			name = "refusal over HTTP"
		}
		_, _ = w.Write(documents(name))
	}))
	t.Cleanup(router.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(conn, documents) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); serving.Wait() }) // clients close their connections before
	return Servers{"tcp://" + listener.Addr().String(), router.URL}
}

// serve answers the requests of a connection until its client closes it.
func serve(conn net.Conn, documents func(name string) []byte) {
	defer func() { _ = conn.Close() }()
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
			var envelope []byte
			if len(frames) > 2 && len(frames[1]) == 0 {
				envelope = netproto.AppendFrame(netproto.AppendFrame(nil, frames[0], true), nil, true)
				frames = frames[2:]
			}
			out := answer(string(frames[0]), envelope, documents)
			in = bytes.Clone(in[used:])
			if _, err := conn.Write(out); err != nil {
				return
			}
		}
	}
}

// answer returns the reply to a request.
func answer(tag string, envelope []byte, documents func(name string) []byte) []byte {
	switch tag {
	case "ping", "pool", "stat", "explain":
		return netproto.AppendDone(nil, envelope, netproto.AppendFrame(nil, documents(tag), false))
	case "reset":
		return netproto.AppendRefusal(nil, envelope, netproto.StatusPartial, "not all", documents("partly done"))
	}
	return netproto.AppendRefusal(nil, envelope, netproto.StatusFailed, "no", documents("refusal"))
}

// grown returns the document with a field more of each type of JSON in every object whose keys are fields.
func (r reply) grown() []byte {
	var value any
	decoder := json.NewDecoder(strings.NewReader(r.document))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		panic(fmt.Sprintf("%v: %s", err, r.document))
	}
	r.grow("", value)
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}

// grow adds fields to the objects in a value, which is at a path.
func (r reply) grow(path string, value any) {
	list, _ := value.([]any)
	for _, element := range list {
		r.grow(path+"[]", element)
	}
	object, isObject := value.(map[string]any)
	if !isObject || r.opaque == path && path != "" {
		return
	}
	isMap := false
	for _, known := range r.maps {
		isMap = isMap || known == path
	}
	for key, element := range object {
		if isMap {
			key = "*"
		}
		r.grow(strings.TrimPrefix(path+"."+key, "."), element)
	}
	if isMap {
		return
	}
	for key, text := range map[string]string{
		"null": `null`, "true": `true`, "number": `-1.5e300`, "text": `"later\u0000"`, "list": `[{"a": 1}, []]`, "object": `{"a": {"b": []}}`,
	} {
		object["later_"+key] = json.RawMessage(text)
	}
}

// reply is a document that a server sends.
type reply struct {
	document string
	maps     []string // paths of objects whose keys are no fields; * is for any of those
	opaque   string   // path of what clients hand on
}
