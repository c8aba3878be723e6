//go:build linux && hitline_attack

package attack

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// ofHTTP says which of the two ports with HTTP an attack is on.
type ofHTTP func(a *attacker) string

func ofRouter(a *attacker) string  { return a.router }
func ofMetrics(a *attacker) string { return a.metrics }

// get is a GET request without a body, and post one with a body of JSON.
func get(path string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", path)
}

func post(path, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, len(body), body)
}

// numbers are n of a prompt's token ids or hashes, in JSON.
func numbers(n, from int) string {
	text := make([]byte, 0, 10*n)
	for i := range n {
		text = fmt.Appendf(text, "%d,", from+i)
	}
	return string(bytes.TrimSuffix(text, []byte(",")))
}

// httpStream writes blob to n connections again and again, and reads what comes, until the attack's
// duration is over. A connection that the server closes is replaced. Over TLS it makes the handshakes.
func httpStream(name, what string, at ofHTTP, n int, blob func() []byte) row {
	return row{
		name: name, what: fmt.Sprintf("%d connections %s, again and again", n, what), files: uint64(n) + 500,
		spec: serverSpec{metrics: true, router: true},
		prepare: func(a *attacker) (func(), error) {
			b := blob()
			return func() { a.streamHTTP(at(a), n, b) }, nil
		},
	}
}

func (a *attacker) streamHTTP(addr string, n int, blob []byte) {
	end := time.Now().Add(duration())
	a.forDuration(n, func(int) bool {
		conn, err := a.dialHTTP(addr)
		if err != nil {
			time.Sleep(10 * time.Millisecond) // the server's queue is full
			return true
		}
		defer conn.Close()
		_ = conn.SetDeadline(end) // it may be lost
		var reader sync.WaitGroup
		reader.Go(func() {
			defer conn.Close() // ends the writes
			for buf := make([]byte, 64*kib); ; {
				n, err := conn.Read(buf)
				a.replies.Add(int64(bytes.Count(buf[:n], []byte("HTTP/1.1 "))))
				if err != nil {
					return
				}
			}
		})
		for a.write(conn, blob, bytes.Count(blob, []byte(" HTTP/1.1\r\n"))) {
		}
		conn.Close()
		reader.Wait()
		return true
	})
}

// dialHTTP connects to one of the ports with HTTP: the routers' has TLS if the server's first has it.
func (a *attacker) dialHTTP(addr string) (net.Conn, error) {
	a.opened.Add(1)
	if addr == a.router && *overTLS {
		addr = tlsScheme + addr
	}
	return dial(addr)
}

// beside is a row during which bystanders are measured.
func beside(r row) row {
	r.bystanders = true
	return r
}

// httpRows are floods of the ports that speak HTTP. Each request is one that anybody on loopback may
// make, or one that is refused.
func httpRows() []row {
	piped := func(request []byte) func() []byte {
		return func() []byte {
			blob, _ := repeat(request, 16*kib)
			return blob
		}
	}
	query := func(field string, n int) func() []byte {
		return func() []byte {
			return post("/query", fmt.Sprintf(`{"model":"m","block_size":%d,%q:[%s]}`, blockTokens, field, numbers(n, 1)))
		}
	}
	longHead := func() []byte {
		return fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: %s\r\n\r\n", strings.Repeat("x", 2*mib))
	}
	noJSON := func() []byte { return post("/query", strings.Repeat("[", 64*kib)) }
	rows := []row{
		httpStream("http-404", "pipeline requests of a path that does not exist", ofRouter, 200, piped(get("/x"))),
		httpStream("http-404-metrics", "pipeline them at the metrics port", ofMetrics, 64, piped(get("/x"))),
		httpStream("http-405", "pipeline requests of a method that the path has not", ofRouter, 200, piped(get("/query"))),
		httpStream("http-services", "pipeline GET /services", ofRouter, 500, piped(get("/services"))),
		httpStream("http-scrape", "pipeline GET /metrics", ofMetrics, 60, piped(get("/metrics"))),
		httpStream("http-status", "pipeline GET /status", ofMetrics, 60, piped(get("/status"))),
		httpStream("http-dump", "pipeline GET /dump", ofRouter, 64, piped(get("/dump"))),
		httpStream("http-hashes", "query by 262,144 hashes", ofRouter, 8, query("seq_hashes", 262144)),
		httpStream("http-tokens", "query by 1,000,000 token ids", ofRouter, 70, query("token_ids", 1000000)),
		httpStream("http-tokens-refused", "send 1,000,000 token ids to a path that does not exist", ofRouter, 70,
			func() []byte { return bytes.Replace(query("token_ids", 1000000)(), []byte("/query"), []byte("/x"), 1) }),
		beside(httpStream("http-long-name", "send a field whose name has 19 MiB", ofRouter, 8, func() []byte {
			return post("/query", `{"`+strings.Repeat("x", 19*mib)+`":1}`)
		})),
		beside(httpStream("http-long-text", "send a lora_name of 19 MiB, in escapes", ofRouter, 8, func() []byte {
			return post("/query", `{"model":"m","token_ids":[1],"lora_name":"`+strings.Repeat(`\u00e9`, 3*mib)+`"}`)
		})),
		beside(httpStream("http-foreign", "send extra_keys of 3,145,728 nulls", ofRouter, 8, func() []byte {
			return post("/query", `{"model":"m","token_ids":[1],"extra_keys":[`+strings.Repeat("null,", 3*mib)+`null]}`)
		})),
		beside(httpStream("http-long-step", "query by 1,000,000 token ids and by 262,144 hashes in turn", ofRouter, 8, func() []byte {
			return append(query("token_ids", 1000000)(), query("seq_hashes", 262144)()...)
		})),
		httpStream("http-small", "pipeline queries by 64 hashes", ofRouter, 64, func() []byte {
			blob, _ := repeat(query("seq_hashes", 64)(), 16*kib)
			return blob
		}),
		httpStream("http-json", "send what is no JSON", ofRouter, 64, noJSON),
		httpStream("http-head", "send a head of 2 MiB", ofRouter, 64, longHead),
		{name: "http-reconnect", what: "connections are opened and closed at the routers' port", spec: serverSpec{metrics: true, router: true},
			prepare: alone(func(a *attacker) {
				a.forDuration(parallel, func(int) bool {
					if conn, err := net.Dial("tcp", a.router); err == nil {
						a.opened.Add(1)
						conn.Close()
					}
					return true
				})
			})},
	}
	hellos := httpStream("http-hellos", "send a ClientHello to the routers' port and close after 100 ms", ofRouter, 64, clientHello)
	hellos.tls = true
	hellos.prepare = alone(func(a *attacker) {
		hello := clientHello()
		a.forDuration(64, func(int) bool { return a.sendAndClose(a.router, hello, 100*time.Millisecond) })
	})
	return append(rows, hellos)
}
