//go:build linux

package compare

import (
	"fmt"
	"io"
	"net"
	"runtime"

	"github.com/hitline/hitline/bench/wire"
)

// readBuffer is the size in bytes with which the raw server reads. None from 64 KiB to 1 MiB was
// faster by more than runs differ.
const readBuffer = 256 << 10

// ServeRaw serves on a free port, which it announces on log as hitline announces its own: it reads
// and answers 4 bytes for each size bytes. It serves one connection after the other and returns
// when it cannot go on.
func ServeRaw(log io.Writer, size int) error {
	runtime.LockOSThread()
	listener, err := announce(log)
	if err != nil {
		return err
	}
	defer listener.Close()
	b := make([]byte, readBuffer)
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
