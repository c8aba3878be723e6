package workload

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// BlockTokens is how many tokens one id of a trace stands for.
const BlockTokens = 512

// maxLine bounds a line of a trace, in bytes. A prompt of a million tokens takes
// some 15 KB, so a longer line means that the file is no trace; without a bound,
// one without line feeds would be read into memory whole.
const maxLine = 1 << 20

// ErrTrace marks a trace that cannot be read or is malformed. The message says
// where, as file:line.
var ErrTrace = errors.New("bad trace")

// Trace is the path of a recorded list of requests, plain or compressed with gzip (told by
// its first bytes, not by its name).
type Trace string

// Request is one line of a trace.
type Request struct {
	Number int // the line, from 1
	IDs    []uint64
	Tokens int // of the prompt: all that the ids stand for, or less if the last block is not full
}

// Requests calls f for each of the first limit requests, in order, or for all if limit is 0.
// f may keep their ids. An error of f ends it, as does the end of ctx. A request of more
// hashes than a lookup carries, blockSize tokens each, is refused.
func (t Trace) Requests(ctx context.Context, blockSize, limit int, f func(Request) error) error {
	if ctx.Err() != nil { // before any error: a reading cut short is no bad trace
		return context.Cause(ctx)
	}
	file, err := os.Open(string(t))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTrace, err)
	}
	defer func() { _ = file.Close() }() // only read from
	r, err := newTraceReader(string(t), file)
	if err != nil {
		return err
	}
	for requests := 0; limit == 0 || requests < limit; requests++ {
		one, err := r.next()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n := len(one.IDs) * (BlockTokens / blockSize); n > MaxHashes {
			return r.fail(fmt.Errorf("%d hash blocks; a lookup carries at most %d", n, MaxHashes))
		}
		if err := f(one); err != nil {
			return err
		}
	}
	return nil
}

// traceReader reads the requests of a trace one by one. Not safe for concurrent use.
type traceReader struct {
	name  string
	lines *bufio.Scanner
	line  int  // number of the line read last, from 1
	began bool // a request was read
}

// newTraceReader returns a reader of a file, which may be compressed.
func newTraceReader(name string, file io.Reader) (*traceReader, error) {
	buffered := bufio.NewReader(file)
	magic, err := buffered.Peek(2)
	var plain io.Reader = buffered
	if bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		plain, err = gzip.NewReader(buffered)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: %s: %w", ErrTrace, name, err)
	}
	lines := bufio.NewScanner(plain)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine+len("\r\n"))
	return &traceReader{name: name, lines: lines}, nil
}

// next returns the next request, or io.EOF after the last one.
func (r *traceReader) next() (Request, error) {
	var text []byte
	for len(bytes.TrimSpace(text)) == 0 { // a blank line, such as the last one of many files, is none
		if !r.lines.Scan() {
			return Request{}, r.ended()
		}
		r.line++
		text = r.lines.Bytes()
	}
	if len(text) > maxLine {
		return Request{}, r.fail(errLongLine)
	}
	var record struct { // what a replay needs of a line; other keys are skipped
		HashIDs     []uint64        `json:"hash_ids"`
		InputLength json.RawMessage `json:"input_length"` // not every trace has it
	}
	if err := json.Unmarshal(text, &record); err != nil {
		return Request{}, r.fail(explain(err))
	}
	if record.HashIDs == nil {
		return Request{}, r.fail(errors.New("hash_ids is missing; every request needs the list of its block ids"))
	}
	r.began = true
	all := len(record.HashIDs) * BlockTokens
	tokens, err := strconv.Atoi(string(record.InputLength))
	if err != nil || tokens <= all-BlockTokens || tokens > all {
		tokens = all
	}
	return Request{Number: r.line, IDs: record.HashIDs, Tokens: tokens}, nil
}

// explain says what the error of a line means for a trace.
func explain(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON: %w, at byte %d; a trace holds one object a line", err, syntax.Offset)
	}
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case ok && wrong.Field == "hash_ids":
		return fmt.Errorf("hash_ids has a JSON %s; it must be a list of integers from 0 to 2^64-1", wrong.Value)
	case ok:
		return fmt.Errorf("a JSON %s; a trace holds one object a line", wrong.Value)
	}
	return err
}

var errLongLine = fmt.Errorf("longer than %d bytes; is this a trace of JSON lines?", maxLine)

// ended tells a clean end from a failure.
func (r *traceReader) ended() error {
	err := r.lines.Err()
	if err == nil && r.began {
		return io.EOF
	}
	r.line++ // the line that could not be read
	switch {
	case err == nil:
		err = errors.New("no requests; the trace is empty")
	case errors.Is(err, bufio.ErrTooLong):
		err = errLongLine
	}
	return r.fail(err)
}

// fail says where err is.
func (r *traceReader) fail(err error) error {
	return fmt.Errorf("%w: %s:%d: %w", ErrTrace, r.name, r.line, err)
}
