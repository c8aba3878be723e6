package server

import (
	"sync"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// turnReads is how many read buffers a connection is served before it is another
// one's turn, if it is in the middle of a request and more of it is there: 512 KiB,
// a tenth of a millisecond. Each saves a round through the
// poller, which costs as much as reading 16 KiB.
const turnReads = 8

// readBuffers are for reading on.
var readBuffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// readOn reads the connection itself for the rest of its turn, when the last read,
// of n bytes, has left a request unfinished and probably more in the socket. What
// the socket says of errors and of the end it says again to gnet, which acts on it.
func (s *Server) readOn(c gnet.Conn, ses *session, n int) error {
	if n < readBuffer || !ses.reader.InMessage() {
		return nil
	}
	buf := readBuffers.Get().(*[readBuffer]byte)
	defer readBuffers.Put(buf)
	for reads := 1; reads < turnReads && n == readBuffer && ses.reader.InMessage(); reads++ {
		var err error
		if n, err = unix.Read(c.Fd(), buf[:]); err != nil || n <= 0 {
			return nil // gnet meets it too
		}
		if err := ses.receive(buf[:n]); err != nil {
			return err
		}
	}
	return nil
}
