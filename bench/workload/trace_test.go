package workload

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readAll returns the requests of a trace until the first error.
func readAll(t *testing.T, text string) (all []Request, err error) {
	t.Helper()
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("t.jsonl", []byte(text), 0o600))
	err = Trace("t.jsonl").Requests(t.Context(), BlockTokens, 0, func(r Request) error {
		all = append(all, r)
		return nil
	})
	return all, err
}

// A prompt has the length that the trace states, if its blocks can have that.
func TestTraceTokens(t *testing.T) {
	all, err := readAll(t, `{"input_length": 513, "hash_ids": [1, 2]}
{"input_length": 1024, "hash_ids": [1, 2]}
{"input_length": 512, "hash_ids": [1, 2]}
{"input_length": 1025, "hash_ids": [1, 2]}
{"input_length": "x", "hash_ids": [1, 2]}
{"hash_ids": [1, 2]}
{"input_length": 0, "hash_ids": []}`)
	require.NoError(t, err)
	var tokens []int
	for _, r := range all {
		tokens = append(tokens, r.Tokens)
	}
	assert.Equal(t, []int{513, 1024, 1024, 1024, 1024, 1024, 0}, tokens)
}

func zip(t *testing.T, text string) string {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return packed.String()
}

func TestTraceReads(t *testing.T) {
	longest := `{"hash_ids": [1]` + strings.Repeat(" ", maxLine-len(`{"hash_ids": [1]}`)) + `}`
	for name, tt := range map[string]struct{ text, want string }{
		"as published":      {`{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}` + "\n", "1: [0 1 2] "},
		"no last line feed": {"{\"hash_ids\":[0,1,2]}\n{\"hash_ids\":[3]}\n{\"hash_ids\":[4,5]}", "1: [0 1 2] 2: [3] 3: [4 5] "},
		"blank lines":       {"\n{\"hash_ids\":[1]}\r\n\n{\"hash_ids\":[2]}\n \r\n", "2: [1] 4: [2] "},
		"no blocks":         {"{\"hash_ids\":[]}\n{\"hash_ids\":[ ]}\n", "1: [] 2: [] "},
		"unknown keys":      {`{"x":{"hash_ids":[9]},"hash_ids":[ 1 , 2 ],"y":null}`, "1: [1 2] "},
		"greatest id":       {`{"hash_ids":[18446744073709551615]}`, "1: [18446744073709551615] "},
		"longest lines":     {longest + "\r\n" + longest, "1: [1] 2: [1] "},
	} {
		for _, text := range []string{tt.text, zip(t, tt.text)} {
			all, err := readAll(t, text)
			require.NoError(t, err, name)
			got := ""
			for _, r := range all {
				got += fmt.Sprintf("%d: %v ", r.Number, r.IDs)
			}
			assert.Equal(t, tt.want, got, name)
		}
	}
}

func TestTraceErrors(t *testing.T) {
	const good = "{\"hash_ids\":[1]}\n"
	for want, text := range map[string]string{
		"t.jsonl:1: no requests; the trace is empty":                                               "",
		"t.jsonl:3: no requests; the trace is empty":                                               "\n\n",
		"t.jsonl:4: not JSON: invalid character 'x' looking for beginning of value, at byte 1":     good + "\n\nx",
		"t.jsonl:3: not JSON: unexpected end of JSON input, at byte 15; a trace holds one object":  good + good + `{"hash_ids":[1,`,
		"t.jsonl:2: a JSON array; a trace holds one object a line":                                 good + "[1,2]",
		"t.jsonl:1: hash_ids is missing; every request needs the list of its block ids":            `{"timestamp":0}`,
		"t.jsonl:1: hash_ids has a JSON number; it must be a list":                                 `{"hash_ids":12}`,
		"t.jsonl:2: hash_ids has a JSON number -3; it must be a list of integers from 0 to 2^64-1": good + `{"hash_ids":[1,2,-3]}`,
		"t.jsonl:1: hash_ids has a JSON number 1.0; it must be":                                    `{"hash_ids":[1.0]}`,
		"t.jsonl:1: hash_ids has a JSON number 18446744073709551616; it":                           `{"hash_ids":[18446744073709551616]}`,
		"t.jsonl:1: hash_ids has a JSON string; it must be":                                        `{"hash_ids":[1,"2"]}`,
		"t.jsonl:2: longer than 1048576 bytes; is this a trace of JSON lines?":                     good + strings.Repeat(" ", maxLine) + "x\n" + good,
		"t.jsonl:3: longer than 1048576 bytes; is this a trace of JSON lines? ":                    good + good + strings.Repeat(" ", 3*maxLine),
		"t.jsonl: gzip: invalid header":                                                            "\x1f\x8bxxxxxxxxxx",
		"t.jsonl:4: unexpected EOF":                                                                zip(t, strings.Repeat(good, 3))[:len(zip(t, strings.Repeat(good, 3)))-4],
	} {
		all, err := readAll(t, text)
		require.ErrorIs(t, err, ErrTrace)
		assert.ErrorContains(t, err, "bad trace: "+strings.TrimSpace(want))
		for _, r := range all {
			assert.Equal(t, []uint64{1}, r.IDs, "the lines before it")
		}
	}
	err := Trace(filepath.Join(t.TempDir(), "none")).Requests(t.Context(), BlockTokens, 0, nil)
	require.ErrorIs(t, err, ErrTrace)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestTraceEndsWithItsReader(t *testing.T) {
	stop := errors.New("stop")
	path := filepath.Join(t.TempDir(), "t.jsonl")
	require.NoError(t, os.WriteFile(path, []byte("{\"hash_ids\":[1]}\n?"), 0o600))
	require.ErrorIs(t, Trace(path).Requests(t.Context(), BlockTokens, 0, func(Request) error { return stop }), stop)
	require.NoError(t, Trace(path).Requests(t.Context(), BlockTokens, 1, func(Request) error { return nil }), "what follows is not read")
}
