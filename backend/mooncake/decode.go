package mooncake

import (
	"fmt"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/printable"
)

// maxText is how much of a text of the peer is in an error or a log line, in bytes.
const maxText = 200

// header is the header of a response.
type header struct {
	code byte // 0 if the function's result follows, else an error code of the RPC layer
	seq  uint32
	body int // length of the body in bytes
}

// parseHeader decodes the header of the response to request seq. The body may have at most
// limit bytes. b has responseLen bytes.
func parseHeader(b []byte, seq uint32, limit int) (header, error) {
	h := header{code: b[2], seq: le.Uint32(b[4:])}
	body, attachment := le.Uint32(b[8:]), le.Uint32(b[12:])
	switch {
	case b[0] != magic || b[1] != 0 || b[3] != 0:
		return h, explainForeign(b)
	case h.seq != seq:
		return h, fmt.Errorf("%w: to request %d, not %d", backend.ErrReply, h.seq, seq)
	case attachment != 0:
		return h, fmt.Errorf("%w: %d bytes attached", backend.ErrReply, attachment)
	case uint64(body) > uint64(limit):
		return h, fmt.Errorf("%w: %d bytes, at most %d were expected", backend.ErrReply, body, limit)
	}
	h.body = int(body)
	return h, nil
}

// reader decodes a body. After the first error every read returns 0; err keeps that error.
type reader struct {
	rest  []byte // not yet read
	width int    // bytes of each count and length
	open  bool   // optional fields may follow the value
	err   error
}

// newReader returns a reader at the value of a body of the type.
func newReader(body []byte, typ wireType) *reader {
	r := &reader{rest: body, width: 1}
	head := uint32(r.uint(4))
	if r.err == nil && head&^hasMeta != typ.code {
		r.fail("type %08x, not %08x", head&^hasMeta, typ.code)
	}
	if r.err != nil || head&hasMeta == 0 {
		return r
	}
	meta := r.uint(1)
	if meta&^(metaWidth|metaLiteral|metaLength) != 0 {
		r.fail("unknown bits of meta %02x", meta)
	}
	if bits := meta & metaLength; bits != 0 {
		if n := r.uint(1 << bits); r.err == nil && n != uint64(len(body)) {
			r.fail("a length of %d in %d bytes", n, len(body))
		}
		r.open = true
	}
	if meta&metaLiteral != 0 {
		if got := r.bytes(len(typ.literal) + 1); r.err == nil && string(got) != typ.literal+"\x00" {
			r.fail("type literal %x, not %x00", got, typ.literal)
		}
	}
	r.width = 1 << (meta & metaWidth >> widthShift)
	return r
}

// fail sets err if it is nil, and drops the rest.
func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", backend.ErrReply, fmt.Sprintf(format, args...))
	}
	r.rest = nil
}

// bytes reads n bytes. They are valid as long as the body.
func (r *reader) bytes(n int) []byte {
	if r.err == nil && n > len(r.rest) {
		r.fail("it ends %d bytes early", n-len(r.rest))
	}
	if r.err != nil {
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// uint reads a little-endian number of width bytes.
func (r *reader) uint(width int) (n uint64) {
	for i, b := range r.bytes(width) {
		n |= uint64(b) << (8 * i)
	}
	return n
}

// bool reads a byte that must be 0 or 1.
func (r *reader) bool() bool {
	b := r.uint(1)
	if b > 1 {
		r.fail("%02x for a bool", b)
	}
	return b == 1
}

// length reads a count of elements that have at least one byte each.
func (r *reader) length() int {
	n := r.uint(r.width)
	if n > uint64(len(r.rest)) {
		r.fail("a length of %d with %d bytes left", n, len(r.rest))
		return 0
	}
	return int(n)
}

// end checks that everything was read, but for optional fields.
func (r *reader) end() error {
	if r.err == nil && len(r.rest) > 0 && !r.open {
		r.fail("%d bytes after it", len(r.rest))
	}
	return r.err
}

// parseExist decodes a reply of BatchExistKey into answers, which has one element for each
// key: 1 if it is present, 0 if it is absent, and negative for an error of the store.
func parseExist(body []byte, answers []int) error {
	r := newReader(body, typeExists)
	if n := r.length(); r.err == nil && n != len(answers) {
		r.fail("%d answers for %d keys", n, len(answers))
	}
	if r.err != nil {
		return r.err
	}
	rest := r.rest // a local variable: faster than the field
	for i := range answers {
		if len(rest) >= 2 && rest[0] == 1 && rest[1] <= 1 { // an answer without an error
			answers[i] = int(rest[1])
			rest = rest[2:]
			continue
		}
		r.rest = rest
		if answers[i] = r.answer(); r.err != nil {
			return r.err
		}
		rest = r.rest
	}
	r.rest = rest
	return r.end()
}

// answer reads an expected<bool, ErrorCode>.
func (r *reader) answer() int {
	switch {
	case !r.bool():
		return r.storeError()
	case r.bool():
		return 1
	}
	return 0
}

// storeError reads an ErrorCode, which replaces a result.
func (r *reader) storeError() int {
	code := int(int32(r.uint(4)))
	if r.err == nil && code >= 0 {
		r.fail("error %d, which is none", code)
	}
	return code
}

// parseVersion decodes a reply of ServiceReady.
func parseVersion(body []byte) (string, error) {
	r := newReader(body, typeVersion)
	if !r.bool() {
		code := r.storeError()
		if err := r.end(); err != nil {
			return "", err
		}
		return "", notServing(code)
	}
	version := printable.Cut(string(r.bytes(r.length())), maxText)
	if err := r.end(); err != nil {
		return "", err
	}
	return version, nil
}

// parseView decodes a reply of Ping: the version of the master's view, 0 without high availability, or if the reply
// is not understood.
func parseView(body []byte) uint64 {
	r := newReader(body, typeView)
	if !r.bool() {
		return 0
	}
	view := r.uint(8)
	r.uint(4)
	if r.end() != nil {
		return 0
	}
	return view
}

// parseCount decodes a reply of RemoveAll: the number of removed keys.
func parseCount(body []byte) (int64, error) {
	r := newReader(body, typeCount)
	n := int64(r.uint(8))
	if r.err == nil && n < 0 {
		r.fail("%d keys removed", n)
	}
	return n, r.end()
}

// parseError decodes the body of an error reply. If the text cannot be read, the error still
// has the code.
func parseError(code byte, body []byte) *rpcError {
	e := &rpcError{code: code}
	typ := typeText
	if code == codeUser {
		typ = typeCodeText
	}
	r := newReader(body, typ)
	if code == codeUser {
		e.user = uint16(r.uint(2))
	}
	if text := printable.Cut(string(r.bytes(r.length())), maxText); r.end() == nil {
		e.text = text
	}
	return e
}
