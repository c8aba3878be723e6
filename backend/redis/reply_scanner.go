package redis

import (
	"bytes"
	"fmt"
)

// Bounds of what a server may answer. The driver allocates what a header announces, so a
// header beyond a bound must not reach it. Real answers are far below: see each.
const (
	// maxReplyString bounds a string in bytes. Our longest are keys of SCAN and the text of
	// INFO, some kilobytes.
	maxReplyString = 1 << 20
	// maxReplyLine bounds a line in bytes: a status, an error, a number.
	maxReplyLine = 16 << 10
	// maxReplyElements bounds the replies to one request and the elements announced in them.
	// A request has at most readBatch commands. COMMAND has 15,000 elements in Redis 7.
	maxReplyElements = 4 * readBatch
	// maxReplyBytes bounds the replies to one request in bytes. The longest is SCAN's, of
	// about scanCount keys.
	maxReplyBytes = 8 << 20
	// maxReplyDepth bounds how deep arrays may lie in arrays. COMMAND has 8 levels.
	maxReplyDepth = 10
	// maxLengthDigits is the most digits of a length. maxReplyString has 7.
	maxLengthDigits = 10
	// maxIntegerDigits is the most digits of an int64.
	maxIntegerDigits = 19
)

// scanState is what the next byte of the stream belongs to.
type scanState uint8

const (
	scanType    scanState = iota // the type of a reply or an element
	scanText                     // a line of text, up to its CR
	scanSign                     // the first byte of an integer
	scanInteger                  // the digits of an integer, up to their CR
	scanLength                   // a length, up to its CR
	scanBody                     // a string
	scanBodyCR                   // the CR behind a string
	scanLF                       // the LF of a line
	scanBodyLF                   // the LF behind a string
)

// replyScanner follows a stream of replies and fails at the first one that exceeds a bound or
// violates the protocol. It reads RESP 2 and those types of RESP 3 that a reply may have; push
// messages and attributes come on no connection of RESP 2. It is stricter than the driver
// wherever the driver accepts something: what a scanner accepts, both split into the same
// headers and strings. It allocates only its error. The zero value is at the start of a stream.
type replyScanner struct {
	state  scanState
	kind   byte  // type of the line that is read
	null   bool  // the length is -1
	digits int   // of the length or the integer so far; with null the "1" counts
	length int64 // so far; in scanBody the bytes left

	depth    int                  // aggregates that are open
	left     [maxReplyDepth]int32 // elements that each of them still needs
	line     int                  // bytes of the line so far
	bytes    int                  // since reset
	elements int                  // since reset
	memory   *connMemory          // of the replies since reset; nil for none
}

// scanError says what is wrong with a reply.
type scanError struct{ text string }

func (e *scanError) Error() string { return e.text }

// reset begins the replies to another request. The stream goes on where it is.
func (s *replyScanner) reset() {
	s.bytes, s.elements = 0, 0
	if s.memory != nil {
		s.memory.reset()
	}
}

// charge charges the memory of the replies since reset, and of a string that is announced.
func (s *replyScanner) charge(announced int64) *scanError {
	total := int64(s.bytes) + elementBytes*int64(s.elements) + announced
	if s.memory != nil && total > freeReplyBytes {
		return s.memory.grow(total)
	}
	return nil
}

// scan reads the next bytes of the stream. After an error it must not be called again.
func (s *replyScanner) scan(p []byte) *scanError {
	if s.bytes += len(p); s.bytes > maxReplyBytes {
		return &scanError{fmt.Sprintf("the server sent more than %d bytes in answer to one request", maxReplyBytes)}
	}
	if err := s.charge(0); err != nil {
		return err
	}
	for len(p) > 0 {
		n, err := s.next(p)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// next reads at least one byte of p and returns how many it has read.
func (s *replyScanner) next(p []byte) (int, *scanError) {
	switch s.state {
	case scanType:
		return s.scanType(p)
	case scanText:
		return s.scanText(p)
	case scanSign, scanInteger:
		return s.scanInteger(p)
	case scanLength:
		return 1, s.scanLength(p[0])
	case scanBody:
		n := int(min(s.length, int64(len(p))))
		if s.length -= int64(n); s.length == 0 {
			s.state = scanBodyCR
		}
		return n, nil
	case scanBodyCR:
		s.state = scanBodyLF
		return 1, wantByte(p[0], '\r')
	}
	if err := wantByte(p[0], '\n'); err != nil {
		return 1, err
	}
	if s.state == scanLF {
		return 1, s.endLine()
	}
	s.endElement()
	return 1, nil
}

// scanType reads the type of a reply or an element. An integer that p holds whole is read at
// once, since long replies consist of them.
func (s *replyScanner) scanType(p []byte) (int, *scanError) {
	if s.depth == 0 { // the others were counted when they were announced
		if s.elements++; s.elements > maxReplyElements {
			return 1, tooManyElements(int64(s.elements))
		}
	}
	s.kind, s.line, s.digits, s.length, s.null = p[0], 0, 0, 0, false
	switch p[0] {
	case ':':
		if len(p) >= 4 && p[1]-'0' <= 9 && p[2] == '\r' && p[3] == '\n' {
			s.endElement()
			return 4, nil
		}
		s.state = scanSign
	case '$', '!', '=', '*', '~', '%':
		s.state = scanLength
	case '+', '-', '_', '#', ',', '(':
		s.state = scanText
	case '>', '|':
		return 1, &scanError{fmt.Sprintf("the server sent a reply of type %q, which RESP 2 does not have", p[0])}
	default:
		return 1, &scanError{fmt.Sprintf("the server sent a reply of unknown type %q", p[0])}
	}
	return 1, nil
}

// scanText reads a line up to its CR.
func (s *replyScanner) scanText(p []byte) (int, *scanError) {
	n := bytes.IndexAny(p[:min(len(p), maxReplyLine+1)], "\r\n")
	switch {
	case n >= 0 && p[n] == '\n':
		return n, &scanError{"the server sent a line that does not end in CR and LF"}
	case n >= 0:
		s.state = scanLF
	default:
		n = min(len(p), maxReplyLine+1)
	}
	if s.line += n; s.line > maxReplyLine {
		return n, &scanError{fmt.Sprintf("the server sent a line of more than %d bytes", maxReplyLine)}
	}
	if s.state == scanLF {
		n++
	}
	return n, nil
}

// scanInteger reads an integer up to its CR.
func (s *replyScanner) scanInteger(p []byte) (int, *scanError) {
	for i, b := range p {
		switch {
		case b-'0' <= 9 && s.digits < maxIntegerDigits:
			s.digits++
		case s.state == scanSign && (b == '-' || b == '+'):
		case b == '\r' && s.digits > 0:
			s.state = scanLF
			return i + 1, nil
		default:
			return i, &scanError{"the server sent an integer that is not one of 64 bits"}
		}
		s.state = scanInteger
	}
	return len(p), nil
}

// scanLength reads a byte of a length, up to its CR.
func (s *replyScanner) scanLength(b byte) *scanError {
	switch {
	case b-'0' <= 9 && s.digits < maxLengthDigits && (!s.null || s.digits == 0 && b == '1'):
		s.digits++
		s.length = s.length*10 + int64(b-'0')
	case b == '-' && s.digits == 0 && !s.null && (s.kind == '$' || s.kind == '*'):
		s.null = true
	case b == '\r' && s.digits > 0:
		s.state = scanLF
		if !s.null {
			return s.checkLength()
		}
	case b-'0' <= 9 && !s.null:
		return &scanError{fmt.Sprintf("the server announced a length of more than %d digits", maxLengthDigits)}
	default:
		return &scanError{"the server announced a length that is not a number"}
	}
	return nil
}

// checkLength checks the length that a header announces.
func (s *replyScanner) checkLength() *scanError {
	switch s.kind {
	case '$', '!', '=':
		if s.length > maxReplyString {
			return &scanError{fmt.Sprintf("the server announced a string of %d bytes, at most %d are accepted", s.length, maxReplyString)}
		}
		return s.charge(s.length)
	case '%':
		s.length *= 2 // keys and values
	}
	if int64(s.elements)+s.length > maxReplyElements {
		return tooManyElements(int64(s.elements) + s.length)
	}
	s.elements += int(s.length)
	return s.charge(0)
}

// tooManyElements is the error of more elements than maxReplyElements.
func tooManyElements(n int64) *scanError {
	return &scanError{fmt.Sprintf("the server announced %d elements in answer to one request, at most %d are accepted", n, maxReplyElements)}
}

// endLine acts on the line that has ended: a string follows, elements follow, or the element
// is complete.
func (s *replyScanner) endLine() *scanError {
	switch s.kind {
	case '$', '!', '=':
		if s.null {
			break
		}
		if s.state = scanBody; s.length == 0 {
			s.state = scanBodyCR
		}
		return nil
	case '*', '~', '%':
		if s.null || s.length == 0 {
			break
		}
		if s.depth == maxReplyDepth {
			return &scanError{fmt.Sprintf("the server sent arrays nested more than %d deep", maxReplyDepth)}
		}
		s.left[s.depth] = int32(s.length)
		s.depth++
		s.state = scanType
		return nil
	}
	s.endElement()
	return nil
}

// endElement ends an element, and all aggregates of which it is the last one.
func (s *replyScanner) endElement() {
	s.state = scanType
	for s.depth > 0 {
		if s.left[s.depth-1]--; s.left[s.depth-1] > 0 {
			return
		}
		s.depth--
	}
}

// wantByte returns an error if a byte is not the expected one.
func wantByte(got, want byte) *scanError {
	if got != want {
		return &scanError{fmt.Sprintf("the server sent %q in place of %q at the end of a line or a string", got, want)}
	}
	return nil
}
