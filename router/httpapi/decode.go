package httpapi

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/router"
)

// Errors of a body: not JSON or cut off, more than a request may have, or a name that no field has.
var (
	errSyntax = errors.New("not JSON")
	errMany   = errors.New("too many for one request")
	errName   = fmt.Errorf("%w: a name, or white space, of more than %d bytes; GET /openapi.yaml describes the fields", router.ErrField, maxPiece)
)

// Errors of the value of a field.
var (
	errTwice = errors.New("is there twice, or under two names; give it once")
	errType  = errors.New("has another type, or a number that is too large; GET /openapi.yaml describes it")
	errOther = errors.New("is not known here, and ignoring it could change the answer; leave it out")
	errText  = errors.New("is a text; give a list of token ids; for a text ask the engine's /tokenize")
	errLong  = fmt.Errorf("has more than %d bytes; give a shorter text", maxText)
	errPiece = fmt.Errorf("has more than %d bytes in one text or number; give a shorter one", maxPiece)
)

// meant has, for names in a request about a prompt that must not be left out, the field that is meant.
var meant = map[string]string{"tokens": "token_ids", "prompt": "token_ids", "lora": "lora_name", "lora_id": "lora_name"}

const (
	// maxText bounds one text in bytes. Names have 256, so it is for salts.
	maxText = 4096
	// maxPiece bounds what the decoder keeps at a time, in bytes: a name, a text or a number with the white space before it.
	// An escape takes six bytes for one.
	maxPiece = 8 * maxText
	// maxTexts bounds the bytes of all texts of a body, and of what the decoder keeps.
	maxTexts = 16 * maxPiece
	// readSize bounds how many bytes are decoded before other requests get the processor: some 0.1 ms.
	readSize = 4 << 10
	// maxKept bounds the bytes of lists that are kept for the next request. It is half of what a small one holds: it gets
	// none of a large one's.
	maxKept = admission.SmallBytes / 2
)

// bodyReader is a body, as its decoder reads it: in small pieces, with the processor yielded before each. It is reused.
type bodyReader struct {
	io.Reader
	call    *call
	decoder jsontext.Decoder
	read    int64 // bytes
	err     error // why the body is not read on; nil at its end, too
}

// reset makes b read the body of another request.
func (b *bodyReader) reset(body io.Reader, c *call) {
	b.Reader, b.call, b.read, b.err = body, c, 0, nil
	b.decoder.Reset(b)
}

// Read implements io.Reader. What it returns as an error is errPiece, a refusal, or an error of the body.
func (b *bodyReader) Read(p []byte) (n int, err error) {
	p = p[:min(len(p), readSize)]
	cpushare.Yield(b.call.http.Context())
	switch unread := b.read - b.decoder.InputOffset(); {
	case unread > maxPiece:
		err = errPiece
	case b.read < maxTexts:
		err = b.call.lease.exchange(0, int64(len(p)))
	}
	if err == nil {
		n, err = b.Reader.Read(p)
	}
	b.read += int64(n)
	if err != io.EOF { //nolint:errorlint // what a reader returns at its end
		b.err = err
	}
	return n, err
}

// decode reads a body, an object, into the struct that to points to. Fields that the struct lacks are refused. It fails
// with errSyntax, errMany, router.ErrField, a refusal, or as the body does.
func (c *call) decode(body io.Reader, to any) error {
	in := c.prompt.body
	in.reset(body, c)
	err := json.UnmarshalDecode(&in.decoder, to, json.RejectUnknownMembers(true))
	if err == nil {
		err = in.checkEnd()
	}
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused
	}
	if in.err == nil || errors.Is(in.err, errPiece) { // many clients read no reply before they have sent all
		c.lease.release()
		_, _ = io.Copy(io.Discard, body) // what is wrong is known
	}
	return in.errorOf(err)
}

// checkEnd returns an error if anything follows the object.
func (b *bodyReader) checkEnd() error {
	switch _, err := b.decoder.ReadToken(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return errors.New("something follows the object")
}

// errorOf returns the error of a body for one of the decoder, without the Go types and packages that it names.
func (b *bodyReader) errorOf(err error) error {
	semantic, isSemantic := errors.AsType[*json.SemanticError](err)
	syntactic, isSyntactic := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case errors.Is(b.err, errPiece):
		return b.pieceError()
	case b.err != nil: // chunks are wrong, or the end is missing
		return fmt.Errorf("%w: %w", errSyntax, b.err)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the body is empty", errSyntax)
	case isSyntactic:
		return fmt.Errorf("%w: %w at byte %d", errSyntax, syntactic.Err, syntactic.ByteOffset)
	case !isSemantic:
		return fmt.Errorf("%w: %w", errSyntax, err)
	}
	field := fieldOf(semantic.JSONPointer)
	isUnknown := errors.Is(semantic.Err, json.ErrUnknownName) || errors.Is(semantic.Err, errOther)
	if near := meant[field]; near != "" && isUnknown && !b.call.operation.admin {
		return wrongField(field, "is not known here; did you mean %s?", near)
	}
	return valueError(field, semantic.Err)
}

// pieceError returns the error of a name, a text or a number that is too long.
func (b *bodyReader) pieceError() error {
	_, fields := b.decoder.StackIndex(min(b.decoder.StackDepth(), 1))
	if isName := fields%2 == 0; isName && b.decoder.StackDepth() <= 1 {
		return errName
	}
	return wrongField(fieldOf(b.decoder.StackPointer()), "%w", errPiece)
}

// fieldOf returns the name of the field that a value is in, "" for the whole body.
func fieldOf(value jsontext.Pointer) string {
	for name := range value.Tokens() {
		return name
	}
	return ""
}

// valueError returns the error of a field for the decoder's reason, nil if its value has another type.
func valueError(field string, reason error) error {
	switch {
	case errors.Is(reason, json.ErrUnknownName):
		return wrongField(fmt.Sprintf("%.40q", field), "%w", errOther)
	case field == "":
		return fmt.Errorf("%w: the body must be an object", errSyntax)
	case errors.Is(reason, errMany):
		return fmt.Errorf("%w: %s", errMany, field)
	case errors.Is(reason, errOther): // whichever element
		reason = errOther
	case reason == nil || errors.Is(reason, strconv.ErrSyntax) || errors.Is(reason, strconv.ErrRange):
		reason = errType
	}
	return wrongField(field, "%w", reason)
}
