package workload

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readAll returns the ids of all requests until the first error.
func readAll(src io.ReadCloser) ([][]uint64, error) {
	r, err := newTraceReader("t.jsonl", src)
	if err != nil {
		return nil, err
	}
	defer r.close()
	var all [][]uint64
	for {
		ids, err := r.next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, append([]uint64{}, ids...))
	}
}

func readerOf(text string) io.ReadCloser { return io.NopCloser(strings.NewReader(text)) }

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
	require.Len(t, longest, maxLine)
	tests := map[string]struct {
		text string
		want [][]uint64
	}{
		"as published":        {`{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}` + "\n", [][]uint64{{0, 1, 2}}},
		"several":             {"{\"hash_ids\":[0,1,2]}\n{\"hash_ids\":[3]}\n{\"hash_ids\":[4,5]}\n", [][]uint64{{0, 1, 2}, {3}, {4, 5}}},
		"no last line feed":   {"{\"hash_ids\":[1]}\n{\"hash_ids\":[2]}", [][]uint64{{1}, {2}}},
		"carriage returns":    {"{\"hash_ids\":[1]}\r\n{\"hash_ids\":[2]}\r\n", [][]uint64{{1}, {2}}},
		"blank lines":         {"\n{\"hash_ids\":[1]}\n\n{\"hash_ids\":[2]}\n \r\n", [][]uint64{{1}, {2}}},
		"no blocks":           {"{\"hash_ids\":[]}\n{\"hash_ids\":[ ]}\n", [][]uint64{{}, {}}},
		"unknown keys":        {`{"x":{"hash_ids":[9]},"hash_ids":[ 1 , 2 ],"y":null}`, [][]uint64{{1, 2}}},
		"greatest id":         {`{"hash_ids":[18446744073709551615]}`, [][]uint64{{1<<64 - 1}}},
		"longest line":        {longest + "\n", [][]uint64{{1}}},
		"longest line, \\r":   {longest + "\r\n" + longest, [][]uint64{{1}, {1}}},
		"longest, unfinished": {longest, [][]uint64{{1}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := readAll(readerOf(tt.text))
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
			got, err = readAll(readerOf(zip(t, tt.text)))
			require.NoError(t, err, "with gzip")
			assert.Equal(t, tt.want, got, "with gzip")
		})
	}
}

func TestTraceErrors(t *testing.T) {
	const good = "{\"hash_ids\":[1]}\n"
	tests := map[string]struct{ text, want string }{
		"empty":             {"", "t.jsonl:1: no requests; the trace is empty"},
		"one byte":          {"x", "t.jsonl:1: not JSON: invalid character 'x' looking for beginning of value, at byte 1; a trace holds one object a line"},
		"blank lines":       {"\n\n", "t.jsonl:3: no requests; the trace is empty"},
		"after blank lines": {good + "\n\nx", "t.jsonl:4: not JSON: invalid character 'x' looking for beginning of value, at byte 1; a trace holds one object a line"},
		"cut line":          {good + good + `{"hash_ids":[1,`, "t.jsonl:3: not JSON: unexpected end of JSON input, at byte 15; a trace holds one object a line"},
		"two on a line":     {`{"hash_ids":[1]}{"hash_ids":[1]}`, "t.jsonl:1: not JSON: invalid character '{' after top-level value, at byte 17; a trace holds one object a line"},
		"no object":         {good + "[1,2]", "t.jsonl:2: a JSON array; a trace holds one object a line"},
		"null":              {good + "null", "t.jsonl:2: hash_ids is missing; every request needs the list of its block ids"},
		"missing":           {good + `{"timestamp":0}`, "t.jsonl:2: hash_ids is missing; every request needs the list of its block ids"},
		"ids null":          {good + `{"hash_ids":null}`, "t.jsonl:2: hash_ids is null; it must be a list of block ids"},
		"ids a number":      {`{"hash_ids":12}`, "t.jsonl:1: hash_ids is 12; it must be a list of block ids"},
		"ids an object":     {`{"hash_ids":{"a":"0123456789012345678901234567890"}}`, `t.jsonl:1: hash_ids is {"a":"01234567890123; it must be a list of block ids`},
		"ids twice":         {`{"hash_ids":[1],"hash_ids":[1]}`, "t.jsonl:1: hash_ids is given twice"},
		"negative":          {good + `{"hash_ids":[1,2,-3]}`, "t.jsonl:2: hash_ids[2] is -3; ids are integers from 0 to 2^64-1"},
		"fraction":          {`{"hash_ids":[1.0]}`, "t.jsonl:1: hash_ids[0] is 1.0; ids are integers from 0 to 2^64-1"},
		"exponent":          {`{"hash_ids":[1e3]}`, "t.jsonl:1: hash_ids[0] is 1e3; ids are integers from 0 to 2^64-1"},
		"past 64 bits":      {`{"hash_ids":[18446744073709551616]}`, "t.jsonl:1: hash_ids[0] is 18446744073709551616; ids are integers from 0 to 2^64-1"},
		"string":            {`{"hash_ids":[1,"2"]}`, `t.jsonl:1: hash_ids[1] is "2"; ids are integers from 0 to 2^64-1`},
		"nested":            {`{"hash_ids":[[1]]}`, `t.jsonl:1: hash_ids[0] is [1]; ids are integers from 0 to 2^64-1`},
		"null id":           {`{"hash_ids":[null]}`, `t.jsonl:1: hash_ids[0] is null; ids are integers from 0 to 2^64-1`},
		"line too long":     {good + strings.Repeat(" ", maxLine+1) + "\n" + good, "t.jsonl:2: longer than 1048576 bytes; is this a trace of JSON lines?"},
		"line much longer":  {good + strings.Repeat(" ", 3*maxLine), "t.jsonl:2: longer than 1048576 bytes; is this a trace of JSON lines?"},
		"gzip header":       {"\x1f\x8bxxxxxxxxxx", "t.jsonl: gzip: invalid header"},
		"gzip of nothing":   {"\x1f\x8b", "t.jsonl: unexpected EOF"},
		"after a good line": {good + "?", "t.jsonl:2: not JSON: invalid character '?' looking for beginning of value, at byte 1; a trace holds one object a line"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			all, err := readAll(readerOf(tt.text))
			require.ErrorIs(t, err, ErrTrace)
			assert.Equal(t, "bad trace: "+tt.want, err.Error())
			for _, ids := range all {
				assert.Equal(t, []uint64{1}, ids, "the lines before it")
			}
		})
	}
}

func TestTraceCutGzip(t *testing.T) {
	packed := zip(t, strings.Repeat("{\"hash_ids\":[1]}\n", 3))
	_, err := readAll(readerOf(packed[:len(packed)-4]))
	require.ErrorIs(t, err, ErrTrace)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Contains(t, err.Error(), "t.jsonl:4: ")
}

func TestTraceReadError(t *testing.T) {
	cause := errors.New("disk on fire")
	for text, at := range map[string]string{"": "t.jsonl: ", "{\"hash_ids\":[1]}\n": "t.jsonl:2: "} {
		_, err := readAll(io.NopCloser(io.MultiReader(strings.NewReader(text), iotest.ErrReader(cause))))
		require.ErrorIs(t, err, ErrTrace)
		require.ErrorIs(t, err, cause)
		assert.Contains(t, err.Error(), at+"disk on fire")
	}
}

func TestTraceRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	trace := Trace(path)
	read := func() (all [][]uint64, err error) {
		err = trace.Requests(t.Context(), BlockTokens, 0, false, func(r Request) error {
			all = append(all, append([]uint64{}, r.IDs...))
			return nil
		})
		return all, err
	}
	_, err := read()
	require.ErrorIs(t, err, ErrTrace)
	require.ErrorIs(t, err, fs.ErrNotExist)

	require.NoError(t, os.WriteFile(path, []byte("{\"hash_ids\":[1,2]}\n"), 0o600))
	for range 2 { // each reading begins at the beginning
		got, err := read()
		require.NoError(t, err)
		assert.Equal(t, [][]uint64{{1, 2}}, got)
	}
}

// closeFunc is a reader that calls a function when it is closed.
type closeFunc struct {
	io.Reader
	close func()
}

func (c closeFunc) Close() error { c.close(); return nil }

func TestTraceCloses(t *testing.T) {
	for _, text := range []string{"{\"hash_ids\":[1]}\n", "?", "\x1f\x8b"} {
		closed := 0
		_, _ = readAll(closeFunc{strings.NewReader(text), func() { closed++ }})
		assert.Equal(t, 1, closed, "%q", text)
	}
}

// Reading a request with many ids must cost no more allocations than one with few.
func TestTraceAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	perRequest := func(ids int) float64 {
		line := `{"timestamp": 0, "hash_ids": [123456` + strings.Repeat(", 123456", ids-1) + "]}\n"
		r, err := newTraceReader("t.jsonl", readerOf(strings.Repeat(line, 200)))
		require.NoError(t, err)
		defer r.close()
		return testing.AllocsPerRun(100, func() {
			if _, err := r.next(); err != nil {
				t.Error(err)
			}
		})
	}
	assert.InDelta(t, perRequest(1), perRequest(2000), 1)
}
