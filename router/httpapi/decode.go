package httpapi

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/router"
)

const (
	// maxToken bounds a name, text or number in bytes, with white space in front of it: the longest text, each byte escaped.
	// The decoder has it in its buffer, of up to twice its size.
	maxToken = 6*maxText + 8<<10
	// maxRead is what is read at a time, in bytes.
	maxRead = 4 << 10
)

// Errors of a body: not JSON or cut off, or more than a request may have.
var (
	errSyntax = errors.New("not JSON")
	errMany   = errors.New("too many for one request")
)

// Errors of the value of a field.
var (
	errTwice = errors.New("is there twice, or under two names; give it once")
	errType  = errors.New("has another type, or a number that is too large; GET /openapi.yaml describes it")
	errOther = errors.New("is not known here, and ignoring it could change the answer; leave it out")
	// errTokens is errOther for a name that is easily taken for that of token_ids.
	errTokens = errors.New("is not known here; give the prompt's as token_ids")
	errLong   = fmt.Errorf("has more than %d bytes; give a shorter text", maxText)
)

// boundedReader is a body. It fails if the decoder would need more memory for what follows than it may.
type boundedReader struct {
	io.Reader
	decoder *jsontext.Decoder
	read    int64 // bytes
	// hold is called with the bytes that the decoder may have in its buffer. An error of it ends the body. nil: nothing.
	hold func(buffered int64) error
	most int64 // of buffered
}

// Read implements io.Reader.
func (b *boundedReader) Read(p []byte) (n int, err error) {
	unread := b.read - b.decoder.InputOffset()
	if unread > maxToken {
		return 0, fmt.Errorf("%w: more than %d bytes of one text, number or white space", errMany, maxToken)
	}
	b.most = max(b.most, unread)
	if b.hold != nil {
		if err := b.hold(2 * unread); err != nil {
			return 0, err
		}
	}
	n, err = b.Reader.Read(p[:min(len(p), maxRead)])
	b.read += int64(n)
	return n, err
}

// maxKept bounds the bytes of lists, and of what was buffered, that are kept for the next request. It is half of what a
// small one holds: it gets none of a large one's.
const maxKept = admission.SmallBytes / 2

// decoder reads one body as it arrives.
type decoder struct {
	json jsontext.Decoder
	body boundedReader
}

var decoders = sync.Pool{New: func() any { return new(decoder) }}

// decode reads a body, an object, into the struct that to points to. Fields that the struct lacks are refused. It fails
// with errSyntax, errMany, router.ErrField or as the body does. Unless duplicates are allowed, which fields then check
// themselves, it keeps all names. hold is that of boundedReader.
func decode(body io.Reader, to any, duplicates bool, hold func(buffered int64) error) error {
	d := decoders.Get().(*decoder)
	d.body = boundedReader{Reader: body, decoder: &d.json, hold: hold}
	defer func() {
		if d.body.Reader, d.body.hold = nil, nil; d.body.most <= maxKept {
			decoders.Put(d)
		}
	}()
	d.json.Reset(&d.body, jsontext.AllowDuplicateNames(duplicates))
	if kind := d.json.PeekKind(); kind != jsontext.KindBeginObject && kind != jsontext.KindInvalid {
		return fmt.Errorf("%w: the body must be an object", errSyntax)
	}
	if err := json.UnmarshalDecode(&d.json, to, json.RejectUnknownMembers(true)); err != nil {
		return bodyError(err)
	}
	switch _, err := d.json.ReadToken(); {
	case err == nil:
		return fmt.Errorf("%w: something follows the object", errSyntax)
	case errors.Is(err, io.EOF):
		return nil
	default:
		return bodyError(err)
	}
}

// bodyError returns the error of a body for one of package json, without the Go types that it names.
func bodyError(err error) error {
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		reason := semantic.Err
		isNoText := semantic.GoType == reflect.TypeFor[router.Duration]() && semantic.JSONKind != jsontext.KindString
		if errors.Is(reason, json.ErrUnknownName) {
			if reason = errOther; semantic.JSONPointer == "/tokens" {
				reason = errTokens
			}
		} else if reason == nil || isNoText || errors.Is(reason, strconv.ErrSyntax) || errors.Is(reason, strconv.ErrRange) {
			reason = errType
		}
		return wrongField(strings.TrimPrefix(string(semantic.JSONPointer), "/"), "%w", reason)
	}
	if _, ok := errors.AsType[*refusal](err); ok || errors.Is(err, errMany) {
		return err
	}
	return fmt.Errorf("%w: %w", errSyntax, err) // it is cut off, too, or chunks are wrong
}
