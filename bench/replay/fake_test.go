package replay

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
)

// fake is a connection to an unbounded index in a Go map. The hooks, if set, are told the number
// of the call, from 1.
type fake struct {
	t         *testing.T
	stored    map[string]bool
	lookups   int
	stores    int
	answer    func(call int, right uint32) (uint32, error)
	failStore func(call int) error
}

func newFake(t *testing.T) *fake { return &fake{t: t, stored: map[string]bool{}} }

func (f *fake) Lookup(ctx context.Context, numTokens uint32, hashes []byte, length int) (uint32, error) {
	f.lookups++
	_, limited := ctx.Deadline()
	assert.True(f.t, limited, "a lookup has a deadline")
	if len(hashes) == 0 {
		assert.Zero(f.t, length, "no hashes")
		assert.Zero(f.t, numTokens, "no hashes")
	} else {
		assert.Equal(f.t, workload.HashLen, length)
		assert.Zero(f.t, len(hashes)%length)
	}
	right := f.hit(numTokens, hashes)
	if f.answer == nil {
		return right, nil
	}
	return f.answer(f.lookups, right)
}

// hit returns the tokens of the leading hashes that are stored.
func (f *fake) hit(numTokens uint32, hashes []byte) uint32 {
	n := len(hashes) / workload.HashLen
	for k := range n {
		if !f.stored[string(hashes[k*workload.HashLen:][:workload.HashLen])] {
			return uint32(k) * (numTokens / uint32(n))
		}
	}
	return numTokens
}

func (f *fake) Store(ctx context.Context, keys []byte, length int) error {
	f.stores++
	_, limited := ctx.Deadline()
	assert.True(f.t, limited, "a store has a deadline")
	assert.Equal(f.t, workload.HashLen, length)
	if len(keys) == 0 || len(keys)%length != 0 {
		return fmt.Errorf("%w: store of %d bytes", measure.ErrRefused, len(keys))
	}
	if f.failStore != nil {
		if err := f.failStore(f.stores); err != nil {
			return err
		}
	}
	for at := 0; at < len(keys); at += length {
		f.stored[string(keys[at:][:length])] = true
	}
	return nil
}

// refusedFor is the error of a server that does not serve.
func refusedFor(reason string) error { return fmt.Errorf("%w: %s", measure.ErrRefused, reason) }

// traceOf returns a trace of lines, the file t.jsonl in a directory that it changes to.
func traceOf(t *testing.T, text string) workload.Trace {
	t.Helper()
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("t.jsonl", []byte(text), 0o600))
	return "t.jsonl"
}

// options returns options that fail the test on a problem.
func options(t *testing.T, trace workload.Trace) Options {
	return Options{
		Trace: trace, BlockSize: workload.BlockTokens, Timeout: time.Minute,
		OnProblem: func(err error) { assert.NoError(t, err) }, OnRequest: func() {},
	}
}

// collect makes o keep what OnProblem is told.
func collect(o *Options) *[]error {
	var problems []error
	o.OnProblem = func(err error) { problems = append(problems, err) }
	return &problems
}

// counters returns the report without what depends on the clock and the machine.
func counters(r Report) Report {
	r.Setup, r.Latency = measure.Setup{}, measure.Latency{}
	r.HitRatio, r.Seconds, r.RequestsPerS = 0, 0, 0
	return r
}

// small has hits of 0, 2, 1 and 3 blocks and one request without blocks.
const small = `{"hash_ids":[1,2]}
{"hash_ids":[1,2,3]}
{"hash_ids":[1,4]}
{"hash_ids":[]}
{"hash_ids":[1,2,3]}
`
