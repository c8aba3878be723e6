package zmtp

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hitline/hitline/netproto"
)

const (
	// stepBytes is what must arrive of a message within Timeout: a slow peer does not hold
	// the connection and what is reserved for the message, and a larger one over a slow link passes.
	stepBytes = 8 << 20
	// minWait is the least that is waited for a peer that has been silent for nearly Timeout:
	// its bytes may be there already.
	minWait = 10 * time.Millisecond
)

// ourPing has a time to live of 0, which is none: the peer must not close the connection while the
// caller handles a message and nothing is sent. The context is empty.
var ourPing = netproto.AppendCommand(nil, netproto.CommandPing, "\x00\x00")

// input reads from the connection, and waits as long as the peer is there.
type input struct {
	c      *Conn
	silent time.Duration // waited since the peer's last bytes
	pinged bool          // since the peer's last bytes

	begun    bool      // a message, command or handshake has, and is not complete
	stepEnd  time.Time // when stepLeft more bytes of it must have arrived; zero before the first wait
	stepLeft int

	end time.Time // of a Receive, while nothing has begun; zero: none
}

// Read reads once, with one of three deadlines: when the peer has been silent for too long, when the
// step of what has begun ends, or when the caller wants to wait no longer. It fails with
// ErrTimeout or ErrNoMessage. After ErrNoMessage it may be called again.
func (in *input) Read(p []byte) (int, error) {
	for {
		start := time.Now()
		end := in.waitEnd(start)
		if err := in.c.conn.SetReadDeadline(in.deadline(start, end)); err != nil {
			return 0, socketError("reading", err)
		}
		in.c.cfg.release()
		n, err := in.c.conn.Read(p)
		if err := in.c.cfg.acquire(); err != nil {
			return 0, err
		}
		if n > 0 {
			in.silent, in.pinged = 0, false
			in.stepLeft -= n
			return n, nil
		}
		switch {
		case isTimeout(err):
			in.silent += time.Since(start)
			err = in.timedOut(end)
		case in.begun && errors.Is(err, io.EOF):
			err = socketError("reading", io.ErrUnexpectedEOF)
		default:
			err = socketError("reading", err)
		}
		if err != nil {
			return 0, err
		}
	}
}

// waitEnd returns when a wait that begins now ends although the peer is there; zero: never.
func (in *input) waitEnd(now time.Time) time.Time {
	if !in.begun {
		return in.end
	}
	if in.stepEnd.IsZero() || in.stepLeft <= 0 {
		in.beginStep(now)
	}
	return in.stepEnd
}

func (in *input) beginStep(now time.Time) {
	in.stepEnd, in.stepLeft = now.Add(in.c.cfg.Timeout), stepBytes
}

// deadline returns that of the next read: end, or when a PING or its answer is due.
func (in *input) deadline(now, end time.Time) time.Time {
	if in.c.minor == 0 {
		return end
	}
	silence := in.c.cfg.Timeout
	if !in.pinged {
		silence /= 3
	}
	due := now.Add(max(silence-in.silent, minWait))
	if end.IsZero() || due.Before(end) {
		return due
	}
	return end
}

// timedOut fails at the end of a wait, or if the peer is silent. Otherwise it sends a PING.
func (in *input) timedOut(end time.Time) error {
	timeout := in.c.cfg.Timeout
	switch {
	case in.pinged && in.silent >= timeout:
		return fmt.Errorf("%w: silent for %v, a PING included", ErrTimeout, timeout)
	case !end.IsZero() && !time.Now().Before(end):
		if in.begun {
			return fmt.Errorf("%w: what the peer began was not complete after %v", ErrTimeout, timeout)
		}
		return ErrNoMessage
	case in.c.minor > 0 && !in.pinged:
		in.pinged = true
		return in.c.write(ourPing)
	}
	return nil
}
