package replay

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/workload"
)

// excerptTrace is the trace that hitline's tests have.
const excerptTrace workload.Trace = excerpt

// traceOf returns a trace of lines, the file t.jsonl in a directory that it changes to.
func traceOf(t *testing.T, text string) workload.Trace {
	t.Helper()
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("t.jsonl", []byte(text), 0o600))
	return "t.jsonl"
}

// timed is a trace of four requests at 0, 100, 100 and 400 ms after the first.
const timed = `{"timestamp":1000,"hash_ids":[1]}
{"timestamp":1100,"hash_ids":[1,2]}
{"timestamp":1100,"hash_ids":[1,2]}
{"timestamp":1400.0,"hash_ids":[1,3]}
`

// small has hits of 0, 2, 1 and 3 blocks and one request without blocks.
const small = `{"hash_ids":[1,2]}
{"hash_ids":[1,2,3]}
{"hash_ids":[1,4]}
{"hash_ids":[]}
{"hash_ids":[1,2,3]}
`

// lines returns a trace with one request of one block at each of the times, in ms.
func lines(t *testing.T, times ...int) workload.Trace {
	var text strings.Builder
	for i, at := range times {
		fmt.Fprintf(&text, "{\"timestamp\":%d,\"hash_ids\":[%d]}\n", at, i%2)
	}
	return traceOf(t, text.String())
}
