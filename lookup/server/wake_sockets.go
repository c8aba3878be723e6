package server

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/panjf2000/gnet/v2"

	"github.com/hitline/hitline/lookup/server/internal/sockets"
)

// openWakeSockets gives each event loop of an engine its wake socket. gnet hands connections to its loops in turn, and
// there are no others yet.
func (s *shared) openWakeSockets(engine *gnet.Client, loops int) error {
	for range loops {
		if err := s.openWakeSocket(engine); err != nil {
			return fmt.Errorf("cannot wake an event loop: %w", err)
		}
	}
	if n := len(s.loops.metrics()); n != loops {
		return fmt.Errorf("%d of %d event loops cannot be woken", loops-n, loops)
	}
	return nil
}

// openWakeSocket has the next event loop poll one end of a pair of sockets. OnOpen adds the loop.
func (s *shared) openWakeSocket(engine *gnet.Client) error {
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
	_, err = engine.EnrollContext(conn, s.newEventLoop(fds[1])) // it closes conn
	return err
}

// closeWakeSockets closes the ends that the server has. The loops and the workers have ended.
func (ls *eventLoops) closeWakeSockets() {
	for _, fd := range ls.wakeFDs {
		_ = unix.Close(fd)
	}
	ls.wakeFDs = nil
}
