package mooncake

import (
	"bytes"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
)

// faultyReply is what a fake master does in place of the normal reply. It returns when the
// request is done with; the connection stays open unless it closes it.
type faultyReply func(q *request, normal []byte)

// announce returns a response header that announces a body and an attachment.
func announce(code byte, seq, body, attachment uint32) []byte {
	b := le.AppendUint32([]byte{magic, 0, code, 0}, seq)
	return le.AppendUint32(le.AppendUint32(b, body), attachment)
}

// sends replies with what make returns for the request.
func sends(reply func(q *request) []byte) faultyReply {
	return func(q *request, _ []byte) { q.write(reply(q)) }
}

// repeats replies with start, and then with zeros for ever.
func repeats(start func(q *request) []byte) faultyReply {
	return func(q *request, _ []byte) {
		for chunk := start(q); ; chunk = make([]byte, 4096) {
			if _, err := q.Write(chunk); err != nil {
				return
			}
		}
	}
}

// body returns a reply with the body of a type and then rest. Lengths have width bytes.
func body(q *request, typ wireType, width int, rest ...byte) []byte {
	return response(0, q.seq, append(appendHead(nil, typ, width), rest...))
}

// faults are those of a request for keys. stop ends those that wait.
func faults(stop chan struct{}) map[string]faultyReply {
	return map[string]faultyReply{
		"body of 4 GB":       sends(func(q *request) []byte { return announce(0, q.seq, math.MaxUint32, 0) }),
		"body of 2 GB":       repeats(func(q *request) []byte { return announce(0, q.seq, 1<<31, 0) }),
		"body of 1 MB":       repeats(func(q *request) []byte { return announce(0, q.seq, 1<<20, 0) }),
		"error of 4 GB":      sends(func(q *request) []byte { return announce(codeException, q.seq, math.MaxUint32, 0) }),
		"attachment of 4 GB": sends(func(q *request) []byte { return announce(0, q.seq, 8, math.MaxUint32) }),
		"2^63 answers":       sends(func(q *request) []byte { return body(q, typeExists, 8, 0, 0, 0, 0, 0, 0, 0, 0x80) }),
		"2^64-1 answers":     sends(func(q *request) []byte { return body(q, typeExists, 8, bytes.Repeat([]byte{0xff}, 8)...) }),
		"2^31 answers":       sends(func(q *request) []byte { return body(q, typeExists, 4, 0, 0, 0, 0x80) }),
		"2^31 answers, 10 there": sends(func(q *request) []byte {
			return body(q, typeExists, 4, append([]byte{0, 0, 0, 0x80}, bytes.Repeat([]byte{1}, 20)...)...)
		}),
		"fewer answers": sends(func(q *request) []byte { return response(0, q.seq, existBody(make([]int, len(q.keys)-1), false)) }),
		"more answers":  sends(func(q *request) []byte { return response(0, q.seq, existBody(make([]int, len(q.keys)+1), false)) }),
		"answers and more": sends(func(q *request) []byte {
			return response(0, q.seq, append(existBody(make([]int, len(q.keys)), false), 0))
		}),
		"no body":      sends(func(q *request) []byte { return response(0, q.seq, nil) }),
		"another type": sends(func(q *request) []byte { return body(q, typeText, 1, 3, 'a', 'b', 'c') }),
		"error text of 2^31 bytes": sends(func(q *request) []byte {
			return response(codeException, q.seq, append(appendHead(nil, typeText, 4), 0, 0, 0, 0x80))
		}),
		"error without a body":     sends(func(q *request) []byte { return response(codeException, q.seq, nil) }),
		"another request's answer": sends(func(q *request) []byte { return response(0, q.seq+1, existBody(make([]int, len(q.keys)), false)) }),
		"zeros for ever":           repeats(func(*request) []byte { return nil }),
		"half a header for ever":   func(q *request, normal []byte) { q.write(normal[:responseLen/2]); <-stop },
		"half a body for ever":     func(q *request, normal []byte) { q.write(normal[:len(normal)-1]); <-stop },
		"no answer":                func(*request, []byte) { <-stop },
		"closed":                   func(q *request, _ []byte) { q.Close() },
		"closed in the header":     func(q *request, normal []byte) { q.write(normal[:3]); q.Close() },
		"closed in the body":       func(q *request, normal []byte) { q.write(normal[:len(normal)-1]); q.Close() },
		"garbage":                  sends(func(*request) []byte { return bytes.Repeat([]byte{0xff, 0x15}, 100) }),
		"HTTP":                     sends(func(*request) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") }),
		"TLS":                      sends(func(*request) []byte { return append([]byte{0x15, 3, 3, 0, 2, 2, 40}, make([]byte, 20)...) }),
		"only errors of the store": sends(func(q *request) []byte {
			return response(0, q.seq, existBody(bytesOf(len(q.keys), storeNotServing), false))
		}),
		"an error that is positive": sends(func(q *request) []byte { return response(0, q.seq, existBody(bytesOf(len(q.keys), -1), true)[:8]) }),
	}
}

// bytesOf returns n equal answers.
func bytesOf(n, answer int) []int {
	answers := make([]int, n)
	for i := range answers {
		answers[i] = answer
	}
	return answers
}

// maxFaultBytes bounds what a lookup over a faulty master allocates.
const maxFaultBytes = 16 << 20

// TestFaultyMaster has a master that fails in many ways. A lookup is a hit of 0 without an
// error, the failure is counted, and little memory is allocated. Lookups hit again when the
// master is well.
func TestFaultyMaster(t *testing.T) {
	for name := range faults(nil) {
		for _, first := range []bool{false, true} {
			if first && (name == "fewer answers" || name == "only errors of the store") { // there is no key
				continue
			}
			t.Run(map[bool]string{false: "later/", true: "first/"}[first]+name, func(t *testing.T) {
				stop := make(chan struct{})
				defer close(stop) // before the fake master ends
				checkFault(t, faults(stop)[name], first)
			})
		}
	}
}

// checkFault checks lookups while a master replies so, and after it. first has the first
// reply on a connection fail, too, otherwise that to the first request for keys.
func checkFault(t *testing.T, reply faultyReply, first bool) {
	const timeout, blocks = 100 * time.Millisecond, 8
	f := startFake(t, loopback, FormTenant)
	f.lease = 0 // nothing is remembered
	do := (func(q *request, normal []byte))(reply)
	if first {
		f.always.Store(&do)
	}
	c := newClient(t, Config{Masters: []string{f.addr}, DialTimeout: timeout})
	service, err := lookup.NewService(lookup.ServiceConfig{
		Pool: coordinator.Pool{ModelName: "m", HashBlockSize: 16}, Backend: c,
		Remote: lookup.RemoteConfig{Timeout: timeout, BreakerFailures: 1 << 20, Remember: -1}})
	require.NoError(t, err)
	hashes := coordinator.NewHashes(make([]byte, blocks*32), 32)
	look := func() api.Hit {
		begun := time.Now()
		hit, err := service.Lookup(t.Context(), blocks*16, hashes)
		require.NoError(t, err)
		require.Less(t, time.Since(begun), testTimeout)
		return hit
	}
	f.holdAll(t, service, hashes)
	failed := func() int64 { stat := service.Stat(); return stat.BackendErrors + stat.BackendTimeouts }
	if !first { // on an open connection
		eventually(t, "a leader is found", func() bool { return look().Tokens == blocks*16 })
		f.setReply(reply)
	}
	before, begun := failed(), allocated()
	require.Zero(t, look().Tokens)
	require.Less(t, allocated()-begun, uint64(maxFaultBytes))
	require.Equal(t, before+1, failed())
	f.resetReply()
	f.always.Store(nil)
	f.closeConns() // the fake may still be writing
	eventually(t, "lookups hit again", func() bool { return look().Tokens == blocks*16 })
}

// allocated returns the bytes allocated since the start.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// holdAll makes all keys of hashes present.
func (f *fakeMaster) holdAll(t *testing.T, service *lookup.Service, hashes coordinator.Hashes) {
	coord, err := coordinator.New(service.Pool())
	require.NoError(t, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range coordinator.JoinKeys(coord.KeyPrefix(0, coord.Ranks(0)[0]), hashes.Len(), hashes.HashLen(), hashes.All()) {
		f.present[key] = 1
	}
}
