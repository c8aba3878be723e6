package redis

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Bounds of what a server may answer. The driver allocates what a header announces before it
// reads on, so a header beyond a bound must not reach it. Real answers are far below.
const (
	// maxReplyString bounds a string in bytes. Our longest are keys of SCAN and the text of
	// INFO, some kilobytes.
	maxReplyString = 1 << 20
	// maxReplyLine bounds a line in bytes: a status, an error, a number, a length.
	maxReplyLine = 16 << 10
	// maxReplyElements bounds the lines of the replies to one request and the elements that
	// they announce, together. A request has at most readBatch commands.
	maxReplyElements = 8 * readBatch
	// maxReplyBytes bounds the replies to one request in bytes. The longest is SCAN's, of
	// about scanCount keys.
	maxReplyBytes = 8 << 20
)

// replyLimit follows a stream of replies and returns an error for the first header that
// exceeds a bound. It splits the stream as the driver does, into lines and strings, and does
// not look at how they are nested: depth is bounded by the number of elements. The zero value
// is at the start of a stream.
type replyLimit struct {
	line     []byte // the start of a line whose end has not arrived
	skip     int    // bytes of a string that are still to come, with its CR and LF
	bytes    int    // since reset
	elements int    // since reset
}

// reset begins the replies to another request. The stream goes on where it is.
func (l *replyLimit) reset() { l.bytes, l.elements = 0, 0 }

// check checks the next bytes of the stream. After an error it must not be called again.
func (l *replyLimit) check(p []byte) error {
	if l.bytes += len(p); l.bytes > maxReplyBytes {
		return fmt.Errorf("the server sent more than %d bytes in answer to one request", maxReplyBytes)
	}
	for len(p) > 0 {
		if l.skip > 0 {
			n := min(l.skip, len(p))
			l.skip, p = l.skip-n, p[n:]
			continue
		}
		end := bytes.IndexByte(p, '\n') + 1
		n := end
		if end == 0 {
			n = len(p)
		}
		if len(l.line)+n > maxReplyLine {
			return fmt.Errorf("the server sent a line of more than %d bytes", maxReplyLine)
		}
		line := p[:n]
		if p = p[n:]; end == 0 || len(l.line) > 0 {
			l.line = append(l.line, line...)
			line = l.line
		}
		if end == 0 {
			return nil
		}
		l.line = l.line[:0]
		if err := l.checkLine(line); err != nil {
			return err
		}
	}
	return nil
}

// replyTypes are the bytes that a reply may begin with, in RESP 2 and 3. Push messages and
// attributes do not come on a connection of RESP 2.
const replyTypes = "+-:_#,($!=*~%"

// checkLine checks a whole line.
func (l *replyLimit) checkLine(line []byte) error {
	text, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || len(text) == 0 || strings.IndexByte(replyTypes, text[0]) < 0 {
		return fmt.Errorf("the server sent a line that is no reply: %.40q", line)
	}
	l.elements++
	if strings.IndexByte("$!=*~%", text[0]) >= 0 {
		n, err := strconv.Atoi(string(text[1:]))
		if err != nil || n < -1 {
			return fmt.Errorf("the server announced a length that is not a number: %.40q", text)
		}
		switch text[0] {
		case '$', '!', '=':
			if n > maxReplyString {
				return fmt.Errorf("the server announced a string of %d bytes, at most %d are accepted", n, maxReplyString)
			}
			if n >= 0 {
				l.skip = n + len("\r\n")
			}
		case '%':
			l.elements += 2 * min(max(n, 0), maxReplyElements)
		default:
			l.elements += min(max(n, 0), maxReplyElements)
		}
	}
	if l.elements > maxReplyElements {
		return fmt.Errorf("the server announced more than %d elements in answer to one request", maxReplyElements)
	}
	return nil
}
