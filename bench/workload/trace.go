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
	"math"
	"os"
	"strconv"
	"time"
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
	Number int           // from 1; also the line
	At     time.Duration // since the trace's first request; 0 where times are not read
	Tokens int64         // of the prompt, its input_length; 0 if the line has none
	IDs    []uint64
}

// TokensFit reports whether the prompt has as many ids as its tokens need.
func (r Request) TokensFit() bool {
	return r.Tokens == 0 || (r.Tokens+BlockTokens-1)/BlockTokens == int64(len(r.IDs))
}

// Requests calls f for each of the first limit requests, in order, or for all if limit is 0.
// The ids are valid during the call. If timed, the requests have their times, which the trace
// must then have on every line. An error of f ends it, as does the end of ctx. A request of more
// hashes than a lookup carries, blockSize tokens each, is refused.
func (t Trace) Requests(ctx context.Context, blockSize, limit int, timed bool, f func(Request) error) error {
	r, err := t.open()
	if err == nil {
		defer r.close()
	}
	if ctx.Err() != nil { // before err: a reading cut short is no bad trace
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	for limit == 0 || r.requests < limit {
		ids, err := r.next()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n := len(ids) * (BlockTokens / blockSize); n > MaxHashes {
			return r.fail(fmt.Errorf("%d hash blocks; a lookup carries at most %d", n, MaxHashes))
		}
		one := Request{Number: r.line, Tokens: int64(r.rec.InputLength), IDs: ids}
		if timed {
			if one.At, err = r.clock.at(r.rec.Timestamp); err != nil {
				return r.fail(err)
			}
		}
		if err := f(one); err != nil {
			return err
		}
	}
	return nil
}

// traceReader reads the requests of a trace one by one. Not safe for concurrent use.
type traceReader struct {
	name     string
	src      io.Closer
	lines    *bufio.Scanner
	line     int         // number of the line read last, from 1; also the request's number
	requests int         // read so far
	rec      traceRecord // reused, so that reading does not allocate per id
	clock    traceClock
}

// open starts a reading. The caller closes the reader.
func (t Trace) open() (*traceReader, error) {
	src, err := os.Open(string(t))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTrace, err)
	}
	return newTraceReader(string(t), src)
}

// newTraceReader returns a reader of src, which it closes on an error.
func newTraceReader(name string, src io.ReadCloser) (*traceReader, error) {
	plain, err := unpack(src)
	if err != nil {
		_ = src.Close() // only read from
		return nil, fmt.Errorf("%w: %s: %w", ErrTrace, name, err)
	}
	lines := bufio.NewScanner(plain)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine+len("\r\n"))
	return &traceReader{name: name, src: src, lines: lines}, nil
}

// unpack returns a reader of the text in src, which may be compressed.
func unpack(src io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(src)
	magic, err := buffered.Peek(2)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return buffered, nil
	}
	return gzip.NewReader(buffered)
}

func (r *traceReader) close() {
	_ = r.src.Close() // only read from: nothing can be lost
}

// next returns the ids of the next request, or io.EOF after the last one. The
// slice is valid until the following call.
func (r *traceReader) next() ([]uint64, error) {
	var text []byte
	for len(bytes.TrimSpace(text)) == 0 { // a blank line, such as the last one of many files, is none
		if !r.lines.Scan() {
			return nil, r.ended()
		}
		r.line++
		text = r.lines.Bytes()
		if len(text) > maxLine {
			return nil, r.fail(errLongLine)
		}
	}
	r.requests++
	r.rec.HashIDs.reset()
	r.rec.Timestamp, r.rec.InputLength = timestamp{}, 0
	if err := json.Unmarshal(text, &r.rec); err != nil {
		return nil, r.fail(explain(err))
	}
	if !r.rec.HashIDs.given {
		return nil, r.fail(errors.New("hash_ids is missing; every request needs the list of its block ids"))
	}
	return r.rec.HashIDs.ids, nil
}

// explain says what the error of a line means for a trace.
func explain(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON: %w, at byte %d; a trace holds one object a line", err, syntax.Offset)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("a JSON %s; a trace holds one object a line", wrong.Value)
	}
	return err
}

var errLongLine = fmt.Errorf("longer than %d bytes; is this a trace of JSON lines?", maxLine)

// ended tells a clean end from a failure.
func (r *traceReader) ended() error {
	err := r.lines.Err()
	if err == nil && r.requests > 0 {
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

// traceRecord is what a replay needs of a line; other keys are skipped.
type traceRecord struct {
	HashIDs     idList    `json:"hash_ids"`
	Timestamp   timestamp `json:"timestamp"`
	InputLength numTokens `json:"input_length"`
}

// numTokens is a number of tokens; 0 for what is none.
type numTokens int64

// UnmarshalJSON reads text, which encoding/json has found to be valid JSON. It does not fail.
func (n *numTokens) UnmarshalJSON(text []byte) error {
	number, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || number < 0 || number > math.MaxInt64-BlockTokens {
		number = 0
	}
	*n = numTokens(number)
	return nil
}

// idList reads a JSON list of ids into a slice that it uses again.
type idList struct {
	given bool
	ids   []uint64
}

func (l *idList) reset() {
	l.given, l.ids = false, l.ids[:0]
}

// UnmarshalJSON reads text, which encoding/json has found to be valid JSON. It
// stands in for the package's own decoding to say which id is wrong.
func (l *idList) UnmarshalJSON(text []byte) error {
	if l.given {
		return errors.New("hash_ids is given twice")
	}
	if text[0] != '[' {
		return fmt.Errorf("hash_ids is %.20s; it must be a list of block ids", text)
	}
	l.given = true
	rest := bytes.TrimSpace(text[1 : len(text)-1])
	for more := len(rest) > 0; more; {
		var item []byte
		item, rest, more = bytes.Cut(rest, []byte{','})
		item = bytes.TrimSpace(item)
		id, err := strconv.ParseUint(string(item), 10, 64)
		if err != nil {
			return fmt.Errorf("hash_ids[%d] is %.24s; ids are integers from 0 to 2^64-1", len(l.ids), item)
		}
		l.ids = append(l.ids, id)
	}
	return nil
}
