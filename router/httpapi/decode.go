package httpapi

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// decoder reads one JSON value from a stream, token by token, so it holds one token of a body at a time. A number takes no
// allocation. Not safe for concurrent use.
type decoder struct {
	json   jsontext.Decoder
	source boundedReader
}

const (
	// maxToken bounds a token in bytes, with white space in front of it. jsontext has a whole token in its buffer, of up to
	// twice its size. It is for texts in fields that are skipped: a prompt of 200,000 tokens beside its token ids.
	maxToken = 1 << 20
	// maxRead is what is read at a time, in bytes. jsontext doubles its buffer when 3/4 of it are full, and would fill it.
	maxRead = 32 << 10
	// maxDepth bounds values inside each other. Only fields that are skipped have any. jsontext allows 10,000.
	maxDepth = 32
	// maxName bounds a name in bytes, with white space in front of it. The decoder keeps those on the way to a value.
	maxName = 8 << 10
	// maxText bounds one text in bytes. Names have 256, so it is for salts and endpoints.
	maxText = 4096
)

// Errors of a body: not JSON or cut off, and of a value: of another type than that of its field, with a fraction or an
// exponent, of over 64 bits, longer than any text that makes sense.
var (
	errSyntax  = errors.New("not JSON")
	errType    = errors.New("another type")
	errInteger = errors.New("not an integer")
	errRange   = errors.New("out of range")
	errLong    = fmt.Errorf("more than %d bytes", maxText)
)

// boundedReader fails when a token has more than maxToken bytes.
type boundedReader struct {
	io.Reader
	decoder *jsontext.Decoder
	read    int64 // bytes
}

// Read implements io.Reader.
func (b *boundedReader) Read(p []byte) (n int, err error) {
	if b.read-b.decoder.InputOffset() > maxToken {
		return 0, fmt.Errorf("%w: more than %d bytes of one text, number or white space", errMany, maxToken)
	}
	n, err = b.Reader.Read(p[:min(len(p), maxRead)])
	b.read += int64(n)
	return n, err
}

// jsonOptions leave names that are there twice to the caller, who knows which matter. jsontext would keep all names of a body.
var jsonOptions = jsontext.AllowDuplicateNames(true)

// reset makes the decoder read from r. It keeps its buffer.
func (d *decoder) reset(r io.Reader) {
	d.source = boundedReader{Reader: r, decoder: &d.json}
	d.json.Reset(&d.source, jsonOptions)
}

// release drops the stream.
func (d *decoder) release() { d.source.Reader = nil }

// inBody returns an error of jsontext: errSyntax if the body is not JSON or is cut off, otherwise that of the stream.
func inBody(err error) error {
	if err == nil {
		return nil
	}
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", errSyntax, err)
	}
	return err
}

// fail returns the error of a body that is not as it must be here.
func (d *decoder) fail(format string, args ...any) error {
	return fmt.Errorf("%w: %s, before byte %d", errSyntax, fmt.Sprintf(format, args...), d.json.InputOffset())
}

// token reads the next token, which is valid until the next call.
func (d *decoder) token() (jsontext.Token, error) {
	token, err := d.json.ReadToken()
	return token, inBody(err)
}

// object reads the body, an object: it calls field for every field, with its name. field reads the value.
func (d *decoder) object(field func(name string) error) error {
	if kind := d.json.PeekKind(); kind != jsontext.KindBeginObject && kind != jsontext.KindInvalid {
		return d.fail("the body must be an object")
	}
	if _, err := d.token(); err != nil {
		return err
	}
	for {
		before := d.json.InputOffset()
		name, err := d.token()
		switch {
		case err != nil:
			return err
		case name.Kind() == jsontext.KindEndObject:
			return d.finish()
		}
		if err := d.checkName(before); err != nil {
			return err
		}
		if err := field(name.String()); err != nil {
			return err
		}
	}
}

// checkName fails if the name that was read from an offset on is too long.
func (d *decoder) checkName(from int64) error {
	if d.json.InputOffset()-from > maxName {
		return d.fail("a name of a field has more than %d bytes", maxName)
	}
	return nil
}

// finish fails unless nothing but white space follows.
func (d *decoder) finish() error {
	switch _, err := d.json.ReadToken(); {
	case err == nil:
		return d.fail("something follows the object")
	case errors.Is(err, io.EOF):
		return nil
	default:
		return inBody(err)
	}
}

// skip uses a value of any type.
func (d *decoder) skip() error {
	outside := d.json.StackDepth()
	for {
		before := d.json.InputOffset()
		if _, err := d.token(); err != nil {
			return err
		}
		depth := d.json.StackDepth()
		if depth == outside {
			return nil
		}
		if depth-outside > maxDepth {
			return d.fail("more than %d values inside each other", maxDepth)
		}
		if kind, n := d.json.StackIndex(depth); kind == jsontext.KindBeginObject && n%2 == 1 { // a name without its value
			if err := d.checkName(before); err != nil {
				return err
			}
		}
	}
}

// isNull reports whether the next value is null, and then uses it.
func (d *decoder) isNull() (bool, error) {
	if d.json.PeekKind() != jsontext.KindNull {
		return false, nil
	}
	_, err := d.token()
	return err == nil, err
}

// readBool reads true or false.
func (d *decoder) readBool() (bool, error) {
	token, err := d.token()
	switch {
	case err != nil:
		return false, err
	case token.Kind() != jsontext.KindTrue && token.Kind() != jsontext.KindFalse:
		return false, errType
	}
	return token.Bool(), nil
}

// readText reads a text.
func (d *decoder) readText() (string, error) {
	token, err := d.token()
	switch {
	case err != nil:
		return "", err
	case token.Kind() != jsontext.KindString:
		return "", errType
	}
	text := token.String()
	if len(text) > maxText {
		return "", errLong
	}
	return text, nil
}

// readInt reads an integer of 63 bits and a sign.
func (d *decoder) readInt() (int64, error) {
	token, err := d.token()
	if err != nil {
		return 0, err
	}
	return integer(token)
}

// integer returns the value of a token that is an integer of 63 bits and a sign.
func integer(token jsontext.Token) (int64, error) {
	if token.Kind() != jsontext.KindNumber {
		return 0, errType
	}
	v, err := token.Int()
	return v, integerError(err)
}

// integerError returns the error of a JSON number that strconv or jsontext does not take for an integer.
func integerError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, strconv.ErrRange):
		return errRange
	}
	return errInteger
}

// list calls each for every element of a list, with its first token, which is valid until the next one is read.
func (d *decoder) list(each func(jsontext.Token) error) error {
	token, err := d.token()
	if err == nil && token.Kind() != jsontext.KindBeginArray {
		return errType
	}
	for err == nil {
		if token, err = d.token(); err != nil || token.Kind() == jsontext.KindEndArray {
			break
		}
		err = each(token)
	}
	return err
}
