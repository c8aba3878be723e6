package server

import (
	"sync"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// mayReadOn reports whether a request is unfinished and the turn has work left.
func (s *session) mayReadOn() bool {
	return s.reader.InMessage() && s.workLeft > 0 && !s.waiting.Load()
}

// maxReads bounds the reads of one request in one turn, to 512 KiB. The work of a lookup over the
// memory index ends its turn before that. Each read after the first saves a round through the
// poller, which costs as much as reading 16 KiB.
const maxReads = 8

// readBuffers holds the read buffers of continueRead.
var readBuffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// continueRead reads on in the same turn, past gnet, if the last read of n bytes filled gnet's
// buffer and left a request unfinished. On an error or the end of the stream it returns nil:
// gnet's next read sees it again and closes the connection.
func (s *Server) continueRead(c gnet.Conn, ses *session, n int) error {
	if n < readBuffer || !ses.mayReadOn() {
		return nil
	}
	buf := readBuffers.Get().(*[readBuffer]byte)
	defer readBuffers.Put(buf)
	for reads := 1; reads < maxReads && n == readBuffer && ses.mayReadOn(); reads++ {
		var err error
		if n, err = unix.Read(c.Fd(), buf[:]); err != nil || n <= 0 {
			return nil // gnet sees it again
		}
		if err := ses.receiveMore(buf[:n]); err != nil {
			return err
		}
	}
	return nil
}
