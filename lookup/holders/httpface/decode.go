package httpface

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// decoder reads one JSON value from a stream. It keeps to RFC 8259, and it is for bodies that are mostly long arrays of
// numbers: it has one buffer, and a number takes no allocation. Not safe for concurrent use.
type decoder struct {
	r       io.Reader
	buf     []byte
	at, end int   // buf[at:end] is read and not used yet
	before  int64 // bytes of the body in front of buf
	readErr error // of r, io.EOF at the end
	text    []byte
}

const (
	// decodeBuffer is what is read at a time.
	decodeBuffer = 32 << 10
	// maxDepth bounds values inside each other. Only fields that are skipped have any.
	maxDepth = 32
	// maxText bounds one text in bytes. Names have 256, so it is for salts and endpoints.
	maxText = 4096
)

// errSyntax is the error of a body that is not JSON, or is cut off.
var errSyntax = errors.New("not JSON")

// reset makes the decoder read from r.
func (d *decoder) reset(r io.Reader) {
	if d.buf == nil {
		d.buf = make([]byte, decodeBuffer)
	}
	d.r, d.at, d.end, d.before, d.readErr = r, 0, 0, 0, nil
}

// fail returns the error of a body that is not JSON here.
func (d *decoder) fail(format string, args ...any) error {
	return fmt.Errorf("%w at byte %d: %s", errSyntax, d.before+int64(d.at), fmt.Sprintf(format, args...))
}

// fill reads more, when all of the buffer is used. It fails with the error of the stream, or where the body ends.
func (d *decoder) fill() error {
	d.before += int64(d.end)
	d.at, d.end = 0, 0
	for tries := 0; d.end == 0; tries++ {
		if d.readErr != nil {
			if errors.Is(d.readErr, io.EOF) || errors.Is(d.readErr, io.ErrUnexpectedEOF) {
				return d.fail("the body ends too early")
			}
			return d.readErr
		}
		if tries == maxEmptyReads {
			return io.ErrNoProgress
		}
		d.end, d.readErr = d.r.Read(d.buf)
	}
	return nil
}

// maxEmptyReads is how often a reader may return nothing.
const maxEmptyReads = 100

// peek returns the next byte that is not white space.
func (d *decoder) peek() (byte, error) {
	for {
		for d.at < d.end {
			if c := d.buf[d.at]; c != ' ' && c != '\n' && c != '\t' && c != '\r' {
				return c, nil
			}
			d.at++
		}
		if err := d.fill(); err != nil {
			return 0, err
		}
	}
}

// next returns and uses the next byte.
func (d *decoder) next() (byte, error) {
	if d.at == d.end {
		if err := d.fill(); err != nil {
			return 0, err
		}
	}
	d.at++
	return d.buf[d.at-1], nil
}

// expect uses a byte, after white space.
func (d *decoder) expect(want byte) error {
	c, err := d.peek()
	if err == nil && c != want {
		return d.fail("%q where %q was expected", c, want)
	}
	d.at++
	return err
}

// finish fails unless nothing but white space follows.
func (d *decoder) finish() error {
	for {
		for d.at < d.end {
			if c := d.buf[d.at]; c != ' ' && c != '\n' && c != '\t' && c != '\r' {
				return d.fail("something follows the value")
			}
			d.at++
		}
		if errors.Is(d.readErr, io.EOF) {
			return nil
		}
		if err := d.fill(); err != nil && !errors.Is(d.readErr, io.EOF) {
			return err
		}
	}
}

// elements calls each for every element of a list, or every field of an object. each reads it.
func (d *decoder) elements(open, end byte, each func() error) error {
	if err := d.expect(open); err != nil {
		return err
	}
	for first := true; ; first = false {
		c, err := d.peek()
		if err != nil {
			return err
		}
		switch {
		case c == end:
			d.at++
			return nil
		case first:
		case c != ',':
			return d.fail("%q where ',' or %q was expected", c, end)
		default:
			d.at++ // each fails if no value follows
		}
		if err := each(); err != nil {
			return err
		}
	}
}

// object calls field for every field, with its name, which is valid until field reads. field reads the value.
func (d *decoder) object(field func(name []byte) error) error {
	return d.elements('{', '}', func() error {
		name, err := d.readText()
		switch {
		case errors.Is(err, errType), errors.Is(err, errLong):
			return d.fail("a name of a field that is no text, or of more than %d bytes", maxText)
		case err != nil:
			return err
		}
		if err := d.expect(':'); err != nil {
			return err
		}
		return field(name)
	})
}

// isNull reports whether the next value is null, and then uses it.
func (d *decoder) isNull() (bool, error) {
	c, err := d.peek()
	if err != nil || c != 'n' {
		return false, err
	}
	return true, d.literal("null")
}

// literal uses a word.
func (d *decoder) literal(word string) error {
	for i := range len(word) {
		c, err := d.next()
		if err != nil {
			return err
		}
		if c != word[i] {
			d.at--
			return d.fail("no value")
		}
	}
	return nil
}

// errType is the error of a value of another type than that of its field. The value is not used.
var errType = errors.New("another type")

// otherType returns errType for a value that begins with c, or errSyntax if none does.
func (d *decoder) otherType(c byte) error {
	if strings.IndexByte(`"{[tfn-0123456789`, c) < 0 {
		return d.fail("%q where a value was expected", c)
	}
	return errType
}

// readBool reads true or false.
func (d *decoder) readBool() (bool, error) {
	c, err := d.peek()
	switch {
	case err != nil:
		return false, err
	case c == 't':
		return true, d.literal("true")
	case c == 'f':
		return false, d.literal("false")
	}
	return false, d.otherType(c)
}

// errInteger is the error of a number with a fraction or an exponent, errRange of one that has over 64 bits.
var (
	errInteger = errors.New("not an integer")
	errRange   = errors.New("out of range")
)

// readInteger reads an integer: its sign and absolute value.
func (d *decoder) readInteger() (negative bool, v uint64, err error) {
	c, err := d.peek()
	if err != nil {
		return false, 0, err
	}
	if c == '-' {
		negative = true
		d.at++
		if c, err = d.next(); err != nil {
			return false, 0, err
		}
		d.at--
		if c < '0' || c > '9' {
			return false, 0, d.fail("%q behind a minus sign", c)
		}
	}
	if c < '0' || c > '9' {
		return false, 0, d.otherType(c)
	}
	v, digits, overflow, err := d.readDigits()
	switch {
	case err != nil:
		return false, 0, err
	case c == '0' && digits > 1:
		return false, 0, d.fail("a number that begins with 0")
	}
	switch c := d.buf[d.at]; {
	case c == '.' || c == 'e' || c == 'E':
		return false, 0, errInteger
	case overflow:
		return false, 0, errRange
	}
	return negative, v, nil
}

// uncheckedDigits is how many digits cannot exceed 64 bits.
const uncheckedDigits = 19

// readDigits reads all digits that follow, and what is behind them into the buffer. A number is inside of a list or an
// object, so something must follow.
func (d *decoder) readDigits() (v uint64, digits int, overflow bool, err error) {
	for {
		read := d.buf[d.at:d.end]
		n := 0
		for ; n < len(read); n++ {
			digit := read[n] - '0'
			if digit > 9 {
				break
			}
			if digits+n >= uncheckedDigits {
				overflow = overflow || v > (math.MaxUint64-uint64(digit))/10
			}
			v = v*10 + uint64(digit)
		}
		digits += n
		d.at += n
		if n < len(read) {
			return v, digits, overflow, nil
		}
		if err := d.fill(); err != nil {
			return 0, 0, false, err
		}
	}
}

// readInt reads an integer of 63 bits and a sign.
func (d *decoder) readInt() (int64, error) {
	negative, v, err := d.readInteger()
	switch {
	case err != nil:
		return 0, err
	case negative && v <= 1<<63:
		return -int64(v), nil //nolint:gosec // -(1<<63) is itself
	case negative || v > math.MaxInt64:
		return 0, errRange
	}
	return int64(v), nil
}

const (
	// shortElement is the longest comma, space and number that appendInts reads. Such a number has 18 digits at most, so
	// it fits 63 bits.
	shortElement = 19
	// elementMargin is what must be in the buffer for it, with what follows.
	elementMargin = 32
)

// appendInts appends the next elements of a list, each behind its comma, up to limit in all. It stops, perhaps at once, in
// front of what is not plain: a number that is negative or long, other white space than one blank, the end of the buffer.
// It is for speed alone: readInt reads them all.
func (d *decoder) appendInts(dst []int64, limit int) []int64 {
	buf, at := d.buf[:d.end], d.at
	for len(dst) < limit && len(buf)-at >= elementMargin {
		b := buf[at : at+elementMargin]
		i := 1
		if b[1] == ' ' {
			i = 2
		}
		first := b[i] - '0'
		v, begin := int64(first), i
		for i++; i < shortElement; i++ {
			digit := b[i] - '0'
			if digit > 9 {
				break
			}
			v = v*10 + int64(digit)
		}
		behind := b[i]
		if b[0] != ',' || first > 9 || first == 0 && i-begin > 1 || behind != ',' && behind != ']' {
			break
		}
		dst = append(dst, v)
		at += i
	}
	d.at = at
	return dst
}

// errLong is the error of a text that is longer than any that makes sense.
var errLong = fmt.Errorf("more than %d bytes", maxText)

// readText reads a text, which is valid until the next call.
func (d *decoder) readText() ([]byte, error) {
	if c, err := d.peek(); err != nil {
		return nil, err
	} else if c != '"' {
		return nil, d.otherType(c)
	}
	d.at++
	d.text = d.text[:0]
	for {
		c, err := d.next()
		switch {
		case err != nil:
			return nil, err
		case c == '"':
			if !utf8.Valid(d.text) {
				return nil, d.fail("a text that is not UTF-8")
			}
			return d.text, nil
		case c < ' ':
			return nil, d.fail("a control character in a text")
		case len(d.text) >= maxText:
			return nil, errLong
		case c == '\\':
			if err := d.escape(); err != nil {
				return nil, err
			}
		default:
			d.text = append(d.text, c)
		}
	}
}

// escapes are the characters that follow a backslash, each with what it stands for.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads what follows a backslash and appends what it stands for.
func (d *decoder) escape() error {
	c, err := d.next()
	if err != nil {
		return err
	}
	if c != 'u' {
		if escapes[c] == 0 {
			return d.fail("an unknown escape in a text")
		}
		d.text = append(d.text, escapes[c])
		return nil
	}
	r, err := d.hex4()
	if err != nil {
		return err
	}
	if utf16.IsSurrogate(r) {
		for _, want := range []byte(`\u`) {
			if c, err = d.next(); err != nil {
				return err
			}
			if c != want {
				return d.fail("half of a surrogate pair")
			}
		}
		low, err := d.hex4()
		if err != nil {
			return err
		}
		if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
			return d.fail("half of a surrogate pair")
		}
	}
	d.text = utf8.AppendRune(d.text, r)
	return nil
}

// hexValue returns the value of a digit, over 15 if it is none.
func hexValue(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return math.MaxUint8
}

func (d *decoder) hex4() (r rune, err error) {
	for range 4 {
		c, err := d.next()
		if err != nil {
			return 0, err
		}
		v := hexValue(c)
		if v > 15 {
			return 0, d.fail("no hexadecimal digit in an escape")
		}
		r = r<<4 | rune(v)
	}
	return r, nil
}

// skip uses a value of any type. Texts in it may be of any length.
func (d *decoder) skip(depth int) error {
	c, err := d.peek()
	if err != nil {
		return err
	}
	if depth > maxDepth {
		return d.fail("more than %d values inside each other", maxDepth)
	}
	switch c {
	case '{':
		return d.elements('{', '}', func() error {
			if err := d.skipText(); err != nil {
				return err
			}
			if err := d.expect(':'); err != nil {
				return err
			}
			return d.skip(depth + 1)
		})
	case '[':
		return d.elements('[', ']', func() error { return d.skip(depth + 1) })
	case '"':
		return d.skipText()
	case 't':
		return d.literal("true")
	case 'f':
		return d.literal("false")
	case 'n':
		return d.literal("null")
	}
	return d.skipNumber()
}

// skipText uses a text.
func (d *decoder) skipText() error {
	if err := d.expect('"'); err != nil {
		return err
	}
	for {
		c, err := d.next()
		switch {
		case err != nil:
			return err
		case c == '"':
			return nil
		case c < ' ':
			return d.fail("a control character in a text")
		case c != '\\':
			continue
		}
		if c, err = d.next(); err != nil {
			return err
		}
		if c == 'u' {
			_, err = d.hex4()
		} else if escapes[c] == 0 {
			err = d.fail("an unknown escape in a text")
		}
		if err != nil {
			return err
		}
	}
}

// skipNumber uses a number of any length. A number is inside of a list or an object, so something must follow.
func (d *decoder) skipNumber() error {
	c, err := d.next()
	if err == nil && c == '-' {
		c, err = d.next()
	}
	switch {
	case err != nil:
		return err
	case c < '0' || c > '9':
		d.at--
		return d.fail("no value")
	case c == '0':
		c, err = d.next()
	default:
		c, err = d.skipDigits()
	}
	if err == nil && c == '.' {
		c, err = d.skipSomeDigits()
	}
	if err == nil && (c == 'e' || c == 'E') {
		if c, err = d.next(); err == nil && c != '+' && c != '-' {
			d.at--
		}
		if err == nil {
			_, err = d.skipSomeDigits()
		}
	}
	if err != nil {
		return err
	}
	d.at-- // what follows the number
	return nil
}

// skipDigits uses digits, and returns what follows, used as well.
func (d *decoder) skipDigits() (c byte, err error) {
	for {
		if c, err = d.next(); err != nil || c < '0' || c > '9' {
			return c, err
		}
	}
}

// skipSomeDigits is skipDigits for one digit or more.
func (d *decoder) skipSomeDigits() (byte, error) {
	c, err := d.next()
	if err == nil && (c < '0' || c > '9') {
		d.at--
		return 0, d.fail("a number that ends too early")
	}
	if err != nil {
		return 0, err
	}
	return d.skipDigits()
}
