package zmtp

import "io"

const (
	// minBuffer is the read buffer that is kept. Many small messages come with one system call.
	minBuffer = 64 << 10
	// shrinkAfter is how many messages in a row must fit minBuffer before a larger buffer is
	// released.
	shrinkAfter = 1024
	// minRead avoids reads into the last few bytes of the buffer.
	minRead = 4 << 10
)

// input is the read buffer: buf[begin:end] was read and is not consumed.
type input struct {
	buf        []byte
	begin, end int
	small      int // messages since the last that did not fit minBuffer
}

func (in *input) init() { in.buf = make([]byte, minBuffer) }

func (in *input) unread() []byte { return in.buf[in.begin:in.end] }

func (in *input) skip(n int) { in.begin += n }

// read reads once. want is how many bytes of the message in progress are missing, as the peer
// claims. The buffer at most doubles, when it is full, so a false claim costs no more than
// twice what was sent.
func (in *input) read(r io.Reader, want uint64) error {
	in.makeFit(want)
	n, err := r.Read(in.buf[in.end:])
	in.end += n
	if n > 0 {
		return nil // an error comes again
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// makeFit makes space behind end: for want bytes if that needs no more than moving or doubling.
func (in *input) makeFit(want uint64) {
	if in.begin == in.end {
		in.begin, in.end = 0, 0
	}
	if uint64(len(in.buf)-in.end) >= max(want, minRead) {
		return
	}
	unread := in.end - in.begin
	if in.begin > 0 {
		copy(in.buf, in.buf[in.begin:in.end])
		in.begin, in.end = 0, unread
	}
	if in.end < len(in.buf) {
		return
	}
	grown := make([]byte, in.grownLen(want))
	copy(grown, in.buf)
	in.buf = grown
}

// grownLen returns the size of the next buffer: twice the last, or what the message in progress
// needs and a little more, if that is less.
func (in *input) grownLen(want uint64) int {
	twice := 2 * len(in.buf)
	if twice <= 1<<20 || want > uint64(twice) {
		return twice
	}
	needed := in.end + int(want)
	return min(twice, needed+needed/8)
}

// consumed skips the last message, of n bytes with its headers, or of 0 if there was none.
func (in *input) consumed(n int) {
	in.begin += n
	switch {
	case n > minBuffer:
		in.small = 0
	case n > 0:
		in.small++
	}
}

// shrink releases a large buffer that is not needed: after shrinkAfter small messages, or when
// the peer has nothing to say (idle). No frame may be borrowed from it.
func (in *input) shrink(idle bool) {
	if len(in.buf) == minBuffer || in.end-in.begin > minBuffer/2 || !idle && in.small < shrinkAfter {
		return
	}
	kept := make([]byte, minBuffer)
	in.end = copy(kept, in.unread())
	in.begin, in.buf = 0, kept
}
