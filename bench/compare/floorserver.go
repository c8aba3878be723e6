package compare

import (
	"fmt"
	"io"
	"net"
	"runtime"

	"github.com/hitline/hitline/bench/wire"
)

// ReadBuffer is the size in bytes with which the floor server reads. None from
// 64 KiB to 1 MiB was faster by more than runs differ.
const ReadBuffer = 256 << 10

// ServeFloor serves the floor on a free port, which it announces on log as hitline
// announces its own: it reads and answers 4 bytes for each size bytes. It serves
// one connection after the other and returns when it cannot go on.
func ServeFloor(log io.Writer, size, buffer int) error {
	runtime.LockOSThread()
	listener, err := announce(log)
	if err != nil {
		return err
	}
	defer listener.Close()
	b := make([]byte, buffer)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		s, err := wire.Take(conn, wire.Wait{})
		if err != nil {
			return err
		}
		answerAll(s, size, b)
		s.Close()
	}
}

// announce listens on a free port of loopback and says so on log as hitline does.
func announce(log io.Writer) (net.Listener, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Fprintf(log, "{\"msg\":\"ready\",\"listen\":[\"tcp://%s\"]}\n", listener.Addr())
	}
	return listener, err
}

// serveEach serves each connection in a goroutine of its own, and closes it after that. It
// returns when it cannot go on.
func serveEach(listener net.Listener, serve func(net.Conn)) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			serve(conn)
		}()
	}
}

// answerAll serves a connection until it ends.
func answerAll(s wire.Socket, size int, b []byte) {
	answers := make([]byte, hitLen*(len(b)/size+1))
	for have := 0; ; {
		n, err := s.Read(b)
		if err != nil {
			return
		}
		have += n
		if whole := have / size; whole > 0 {
			have -= whole * size
			if _, err := s.Write(answers[:whole*hitLen]); err != nil {
				return
			}
		}
	}
}
