package replay

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/hitline/hitline/bench/workload"
)

// excerptTrace is the trace that hitline's tests have.
var excerptTrace = workload.FileTrace(excerpt)

// traceOf returns a trace of lines.
func traceOf(text string) workload.Trace { return workload.TextTrace("t.jsonl", text) }

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
func lines(times ...int) workload.Trace {
	var text strings.Builder
	for i, at := range times {
		fmt.Fprintf(&text, "{\"timestamp\":%d,\"hash_ids\":[%d]}\n", at, i%2)
	}
	return traceOf(text.String())
}

// trees returns a trace of random requests under the opening ids, in several trees
// or, with an empty request, none.
func trees(opening string, trees int) workload.Trace {
	random := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for range 1000 {
		if random.IntN(50) == 0 {
			text.WriteString("{\"timestamp\":1,\"hash_ids\":[]}\n")
			continue
		}
		fmt.Fprintf(&text, "{\"timestamp\":1,\"hash_ids\":[%s%d", opening, random.IntN(trees))
		for range random.IntN(5) {
			fmt.Fprintf(&text, ",%d", random.IntN(3))
		}
		text.WriteString("]}\n")
	}
	return traceOf(text.String())
}

// withTimes is a trace of requests of one time with the lists of ids in text.
func withTimes(text string) workload.Trace {
	return traceOf(strings.NewReplacer("[", `{"timestamp":1,"hash_ids":[`, "]", "]}").Replace(text))
}

// byTurns is a trace whose requests have one of two blocks, by turns.
func byTurns(requests int) workload.Trace {
	var text strings.Builder
	for i := range requests {
		fmt.Fprintf(&text, "{\"hash_ids\":[%d]}\n", i%2)
	}
	return traceOf(text.String())
}
