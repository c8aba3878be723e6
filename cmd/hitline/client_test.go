package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/internal/connectflags"
	"github.com/hitline/hitline/internal/fakeserver"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// What scripted servers do in place of a reply: they close the connection, or do not answer the request.
const hangUp, silent = "hang up", ""

// listenAndServe listens on a free port until the test ends and calls serve with each connection.
func listenAndServe(t *testing.T, serve func(conn net.Conn)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	fakeserver.Serve(t, listener, serve)
	return "tcp://" + listener.Addr().String()
}

// listenAndReply listens on a free port. It answers every request of a connection but the first ping, which clients
// send to learn the limits, with reply, or does as silent and hangUp say.
func listenAndReply(t *testing.T, reply string) (address string) {
	t.Helper()
	return listenAndServe(t, func(conn net.Conn) {
		switch reply {
		case hangUp:
			_, _ = conn.Read(make([]byte, 1<<16))
			return
		case silent:
			_, _ = io.Copy(io.Discard, conn) // until the client closes
			return
		}
		setUp := false
		fakeserver.Answer(conn, func(frames [][]byte) []byte {
			if string(frames[0]) == "ping" && !setUp {
				setUp = true
				return []byte(replyDone)
			}
			return []byte(reply)
		})
	})
}

// Replies in the raw dialect.
const (
	replyDone    = "\x00\x01\x01"
	replyPing    = "\x01\x01\x01\x00\x02{}"
	replyRefused = "\x01\x01\x00" + "\x00\x06reason"
	replyHit     = "\x00\x04\x00\x00\x00\x40"
)

// explainJSON is the document of an explain reply.
const explainJSON = `{"start_tokens":0,"hit_tokens":16,"groups":[` +
	`{"group":0,"kind":"full_attention","end_tokens":16,"reason":"rank_missing","first_missing_block":1,` +
	`"missing_rank":{"tp_rank":2,"pp_rank":1,"pcp_rank":0},"missing_ranks":3,"gap_start":1,"gap_end":4},` +
	`{"group":1,"kind":"sliding_window","end_tokens":32,"reason":"window_not_covered","first_missing_block":6,"gap_start":2,"gap_end":3},` +
	`{"group":2,"kind":"mamba","end_tokens":128,"reason":"complete","first_missing_block":null,"gap_start":null,"gap_end":null}]}`

var replyExplain = string(netproto.AppendDone(nil, nil, netproto.AppendFrame(nil, []byte(explainJSON), false)))

var clientCommands = []string{
	"lookup --tokens 128 --hashes-file - --explain",
	"lookup --tokens 128 --hashes-file -", "store --hashes-file -", "evict --hashes-file -", "reset --yes", "ping", "stat", "pools",
}

// runClient runs line against a server.
func runClient(t *testing.T, address, line string) result {
	t.Helper()
	return hitline(t, "00\n01\n", append(strings.Fields(line), "--connect", address)...)
}

func TestAnswers(t *testing.T) {
	done := listenAndReply(t, replyDone)
	for _, test := range []struct{ line, reply, want string }{
		{"lookup --tokens 128 --hashes-file -", replyHit, "64\n"},
		{"lookup --tokens 128 --hashes-file - --json", replyHit, `{"hit_tokens":64,"start_tokens":0,"num_tokens":128,"hashes":2}` + "\n"},
		{"lookup --tokens 128 --hashes-file - --explain --json", replyExplain, explainJSON + "\n"},
		{"lookup --tokens 128 --hashes-file - --explain", replyExplain, `hit 16 tokens
group  kind            ends at token  reason              first missing block  missing on                                   gap
0      full_attention  16             rank_missing        1                    tp_rank 2, pp_rank 1, pcp_rank 0 and 2 more  1 to 3
1      sliding_window  32             window_not_covered  6                    -                                            2
2      mamba           128            complete            -                    -                                            -
`},
		{"store --hashes-file -", replyDone, "stored 2\n"},
		{"store --hashes-file - --json", replyDone, `{"stored":2}` + "\n"},
		{"evict --hashes-file -", replyDone, "evicted 2\n"},
		{"evict --hashes-file - --json", replyDone, `{"evicted":2}` + "\n"},
		{"reset --yes", replyDone, "done\n"},
		{"reset -y --json", replyDone, `{"reset":true}` + "\n"},
	} {
		t.Run(test.line, func(t *testing.T) {
			address := done
			if test.reply != replyDone {
				address = listenAndReply(t, test.reply)
			}
			assert.Equal(t, result{exitDone, test.want, ""}, runClient(t, address, test.line))
		})
	}
	const instance = `{"instance":"0123456789abcdef","start_time":"2026-01-02T03:04:05Z","version":"v1","protocol":1,` +
		`"requests":["lookup","ping"],"limits":{"max_message":1,"max_frames":2,"max_hashes":3,"max_in_flight":4,"max_in_flight_bytes":5}}`
	answering := listenAndReply(t, string(netproto.AppendDone(nil, nil, netproto.AppendFrame(nil, []byte(instance), false))))
	assert.Regexp(t, `^[0-9.]+(ns|µs|ms)\n$`, runClient(t, answering, "ping").stdout)
	assert.Regexp(t, `^\{"round_trip_us":[0-9.]+,`+regexp.QuoteMeta(instance[1:])+`\n$`, runClient(t, answering, "ping --json").stdout)
}

func TestStat(t *testing.T) {
	const doc = `{"pool": "a<b", "entries": 18014398509481985, "busy": 7, "closed": {"idle": 3}}`
	address := listenAndReply(t, string(netproto.AppendDone(nil, nil, netproto.AppendFrame(nil, []byte(doc), false))))
	got := runClient(t, address, "stat")
	assert.Equal(t, exitDone, got.code, got.stderr)
	assert.Regexp(t, `(?m)^closed\.idle +3$`, got.stdout)
	assert.Regexp(t, `(?m)^busy +7$`, got.stdout)
	assert.Regexp(t, `(?m)^entries +18014398509481985$`, got.stdout)
	got = runClient(t, address, "stat --json")
	assert.Equal(t, exitDone, got.code, got.stderr)
	assert.Contains(t, got.stdout, `"entries":18014398509481985`)
	assert.Equal(t, 1, strings.Count(got.stdout, "\n"))

	for object, want := range map[string]string{
		`{"b":18446744073709551615,"a":{"x":{"k":"y z"}}}`: "a.x.k  y z\nb      18446744073709551615",
		`{"a\u001b[2J":"\u009b\u001b[31m"}`:                `a\x1b[2J  \u009b\x1b[31m`,
	} {
		table, err := formatTable(json.RawMessage(object), nil)
		assert.NoError(t, err)
		assert.Equal(t, want, table)
	}
}

// What a server says reaches no terminal as a command, in JSON neither.
func TestHostileAnswers(t *testing.T) {
	const csi = "\u009b2J\u007f\u202e"
	frame := func(doc string) string {
		return string(netproto.AppendDone(nil, nil, netproto.AppendFrame(nil, []byte(doc), false)))
	}
	holders := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"instances": {"`+csi+`": {"longest_matched": 64, "media": {"`+csi+`": 64}}}}`)
	}))
	defer holders.Close()
	for line, address := range map[string]string{
		"stat": listenAndReply(t, frame(`{"pool":"`+csi+`"}`)), "ping": listenAndReply(t, frame(`{"version":"`+csi+`"}`)),
		"holders --hashes-file -": holders.URL,
	} {
		for _, more := range []string{"", " --json"} {
			got := hitline(t, strings.Repeat("ab", 32), append(strings.Fields(line+more), "--connect", address)...)
			assert.Equal(t, exitDone, got.code, got.stderr)
			assert.False(t, strings.ContainsFunc(strings.TrimSuffix(got.stdout, "\n"), func(r rune) bool {
				return r != '\n' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
			}), "%s%s: %q", line, more, got.stdout)
		}
	}
}

// Every command that connects asks the server of HITLINE_ADDRESS, unless --connect names another.
func TestAddressVariable(t *testing.T) {
	done, refused := listenAndReply(t, replyPing), listenAndReply(t, replyRefused)
	commands := append([]string{"doctor --pool p"}, clientCommands...)
	t.Setenv(connectflags.AddressVariable, refused)
	for _, line := range commands {
		got := hitline(t, "00\n01\n", strings.Fields(line)...)
		assert.Equal(t, exitFailed, got.code, line)
		assert.Contains(t, got.stderr, refused+": ", line)
		assert.Contains(t, got.stderr, "reason", line)
	}
	assert.Equal(t, exitDone, runClient(t, done, "ping").code, "the flag goes before the variable")
	assert.Equal(t, exitDone, hitline(t, "", "doctor").code, "it does not connect")
	assert.Equal(t, exitDone, runClient(t, "127.0.0.1:1, "+done, "ping").code, "the next of a list")
	assert.Contains(t, runClient(t, "127.0.0.1:1,localhost:1", "ping").stderr, "no server at 127.0.0.1:1,localhost:1 (connection refused)")

	for value, want := range map[string]string{
		"udp://a:1": `HITLINE_ADDRESS: "udp://a:1": unknown scheme "udp"; use tcp://host:port, tls://host:port or ipc:///path`,
		"a:0":       `HITLINE_ADDRESS: "a:0" has port 0; give the port of the server, 1 to 65535`,
		"a,auto":    "HITLINE_ADDRESS: auto is no address of a list: an engine with it runs a server of its own",
		"a,b:0":     `HITLINE_ADDRESS: "b:0" has port 0; give the port of the server, 1 to 65535`,
		"auto":      "HITLINE_ADDRESS is auto: an engine with that runs a server of its own; give the address in its log by --connect",
	} {
		t.Setenv(connectflags.AddressVariable, value)
		for _, line := range commands {
			got := hitline(t, "", append(strings.Fields(line), "--json")...)
			assert.Equal(t, exitUsage, got.code, line)
			assert.Contains(t, got.stderr, "hitline: "+want+"\n", line)
			assert.Regexp(t, `^\{"error":".*","exit":2\}\n$`, got.stdout, line)
		}
	}
	t.Setenv(connectflags.AddressVariable, "")
	assert.Contains(t, hitline(t, "", "ping", "--tls-ca", "x").stderr, "this is tcp://127.0.0.1:7557", "an empty variable counts as not set")
}

func TestRefused(t *testing.T) {
	address := listenAndReply(t, replyRefused)
	for _, line := range clientCommands {
		got := runClient(t, address, line)
		assert.Equal(t, exitFailed, got.code, line)
		assert.Empty(t, got.stdout, line)
		assert.Contains(t, got.stderr, "reason", line)
		assert.Equal(t, 1, strings.Count(got.stderr, "\n"), "%s: %s", line, got.stderr)

		got = runClient(t, address, line+" --json")
		assert.Equal(t, exitFailed, got.code, line)
		assert.Regexp(t, `^\{"error":".*reason","exit":1\}\n$`, got.stdout, line)
	}
}

// A refusal of every code exits with 1, and its one line has what the server says.
// One of busy is tried again until the time is up.
func TestRefusedByCode(t *testing.T) {
	codes := []string{
		api.RefusalUnknownRequest, api.RefusalBadRequest, api.RefusalNoPool, api.RefusalPoolDiffers, api.RefusalNotAllowed,
		api.RefusalNotAuthenticated, api.RefusalUnsupported, api.RefusalTooLarge, api.RefusalBusy, api.RefusalStoreFailed,
		api.RefusalPartlyDone,
	}
	for _, code := range codes {
		details, err := json.Marshal(api.Refusal{Refusal: code, Request: "reset", Limit: 3})
		require.NoError(t, err)
		address := listenAndReply(t, string(netproto.AppendRefusal(nil, nil, netproto.StatusFailed, "why not", details)))
		want, flags := "why not", ""
		switch code {
		case api.RefusalNoPool:
			want = "name one by --pool"
		case api.RefusalBusy:
			want, flags = "refused for 500ms: the server is busy", " --timeout 500ms"
		}
		for _, line := range []string{"lookup --tokens 1 --hashes-file -", "reset --yes", "stat", "ping"} {
			got := runClient(t, address, line+flags)
			assert.Equal(t, exitFailed, got.code, "%s: %s: %s", code, line, got.stderr)
			assert.Empty(t, got.stdout, code)
			assert.Contains(t, got.stderr, want, code)
			assert.Equal(t, 1, strings.Count(got.stderr, "\n"), "%s: %s", code, got.stderr)
		}
	}
}

// A refusal is printed in one line, without control characters.
func TestRefusedInSeveralLines(t *testing.T) {
	reason := "one\r\ntwo\x1b[31m\u009b"
	address := listenAndReply(t, string(netproto.AppendRefusal(nil, nil, netproto.StatusFailed, reason, nil)))
	got := runClient(t, address, "ping")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.stderr, `one\r\ntwo\x1b[31m\u009b`+"\n")
	assert.Equal(t, 1, strings.Count(got.stderr, "\n"), got.stderr)
}

// An answer that is not of the protocol is a failure, not a lost connection.
func TestBadAnswers(t *testing.T) {
	for _, test := range []struct{ line, reply string }{
		{"ping", "\x00\x01\x07"}, {"ping", "HTTP/1.1 400"}, {"lookup --tokens 1 --hashes-file -", "\x00\x05\x01\x00\x00\x00\x00"},
		{"stat", "\x01\x01\x01\x00\x01{"}, {"stat", "\x01\x01\x01\x00\x02[]"}, {"reset --yes", replyHit},
	} {
		got := runClient(t, listenAndReply(t, test.reply), test.line)
		assert.Equal(t, exitFailed, got.code, "%s: %q: %s", test.line, test.reply, got.stderr)
		assert.Empty(t, got.stdout)
	}
}

func TestLost(t *testing.T) {
	closed := "tcp://" + storetest.FreeAddr(t)
	closing, mute := listenAndReply(t, hangUp), listenAndReply(t, silent)
	for _, line := range clientCommands {
		for address, want := range map[string]string{closed: "connection refused", closing: closing, mute: "connected, but no answer within "} {
			timeout := 20 * time.Second
			if address == mute {
				timeout = 50 * time.Millisecond
			}
			started := time.Now()
			got := runClient(t, address, fmt.Sprintf("%s --timeout %v", line, timeout))
			for address == mute && strings.Contains(got.stderr, "no connection within") && timeout < 20*time.Second {
				timeout *= 4 // a busy machine connects late
				started = time.Now()
				got = runClient(t, address, fmt.Sprintf("%s --timeout %v", line, timeout))
			}
			if address == mute {
				want += timeout.String() + "\n"
			}
			assert.Equal(t, exitNoConnection, got.code, line)
			assert.Empty(t, got.stdout, line)
			assert.Contains(t, got.stderr, want, line)
			assert.Equal(t, 1, strings.Count(got.stderr, "\n"), "%s: %s", line, got.stderr)
			assert.Less(t, time.Since(started), timeout+20*time.Second, line)
		}
	}
}

// The group rank of the flags is in the request.
func TestRankOnTheWire(t *testing.T) {
	got := make(chan [][]byte, 2)
	address := listenAndServe(t, func(conn net.Conn) {
		fakeserver.Answer(conn, func(frames [][]byte) []byte {
			got <- frames
			return []byte(replyDone)
		})
	})
	assert.Equal(t, "stored 2\n", runClient(t, address, "store --group 1 --tp-rank 2 --pp-rank 3 --pcp-rank 4 --hashes-file -").stdout)
	assert.Equal(t, "ping", string((<-got)[0]))
	frames := <-got
	assert.Equal(t, "store", string(frames[0]))
	assert.Equal(t, "\x00\x01\x00\x02\x00\x03\x00\x04", string(frames[1]))
	assert.Equal(t, "\x00\x01", string(frames[3]))
}
