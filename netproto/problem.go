package netproto

import "strconv"

// Problem is why a request that is framed correctly cannot be served.
type Problem struct {
	// Code is for programs: one of the Code constants.
	Code string
	// Text is for people, in the words of docs/protocol.md.
	Text string
	// Frame is the number of the wrong body frame, counted from the tag, which is 0. It is 0 if no
	// other frame is wrong.
	Frame int
	// Limit is what CodeTooLarge exceeds, in the unit of what is too large.
	Limit int64
}

// The codes of a Problem.
const (
	CodeUnknownRequest = "unknown_request"
	CodeBadRequest     = "bad_request"
	CodeTooLarge       = "too_large"
)

// Error returns the text.
func (p *Problem) Error() string { return p.Text }

// maxScratch is the length of Reader.scratch: of the longest frame that is gathered there, or the
// part of an unknown tag that is quoted.
const maxScratch = 32

// unknownRequest returns the problem of an unknown tag of size bytes, which name has in part.
func unknownRequest(name []byte, size uint64) *Problem {
	text := append(make([]byte, 0, 64), "unknown request "...)
	text = strconv.AppendQuote(text, string(name))
	if size > uint64(len(name)) {
		text = append(text, "..."...)
	}
	return &Problem{Code: CodeUnknownRequest, Text: string(text)}
}

// badFrame returns the problem of the current frame: its name and the text.
func (r *Reader) badFrame(text string) *Problem {
	return &Problem{Code: CodeBadRequest, Text: r.field.name + text, Frame: r.body - 1}
}

// wrongSize returns the problem of the current frame that has another length.
func (r *Reader) wrongSize(want string) *Problem {
	unit := " bytes, want "
	if r.frame.Size == 1 {
		unit = " byte, want "
	}
	return r.badFrame(" is " + strconv.FormatUint(r.frame.Size, 10) + unit + want)
}

// largeFrame returns the problem of the current frame that exceeds a limit.
func (r *Reader) largeFrame(limit int, unit string) *Problem {
	text := r.field.name + " exceeds " + strconv.Itoa(limit) + " " + unit
	return &Problem{Code: CodeTooLarge, Text: text, Frame: r.body - 1, Limit: int64(limit)}
}
