package server

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/lookup/server/internal/sockets"
)

// openWakeSockets gives each event loop its wake socket. gnet hands connections to its loops in turn, and there
// are no others yet.
func (s *Server) openWakeSockets() error {
	for range s.cfg.Loops {
		if err := s.openWakeSocket(); err != nil {
			return fmt.Errorf("cannot wake an event loop: %w", err)
		}
	}
	if n := len(s.loops.metrics()); n != s.cfg.Loops {
		return fmt.Errorf("%d of %d event loops cannot be woken", s.cfg.Loops-n, s.cfg.Loops)
	}
	return nil
}

// openWakeSocket has the next event loop poll one end of a pair of sockets. OnOpen adds the loop.
func (s *Server) openWakeSocket() error {
	fds, err := sockets.Pair()
	if err != nil {
		return err
	}
	s.loops.wakeFDs = append(s.loops.wakeFDs, fds[1])
	if err := unix.SetNonblock(fds[1], true); err != nil {
		return err
	}
	conn, err := sockets.ConnOf(fds[0])
	if err != nil {
		return err
	}
	_, err = s.engine.EnrollContext(conn, s.newEventLoop(fds[1])) // it closes conn
	return err
}

// closeWakeSockets closes the ends that the server has. The loops and the workers have ended.
func (s *Server) closeWakeSockets() {
	for _, fd := range s.loops.wakeFDs {
		_ = unix.Close(fd)
	}
	s.loops.wakeFDs = nil
}
