package load

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"
	"unsafe"

	"github.com/hitline/hitline/bench/measure"

	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/bench/wire"
)

// socket is a connection on which a worker makes raw system calls: the Go scheduler
// is not told that they may block, which would cost microseconds. They block for a
// tick at most, so that nothing waits longer for this thread.
type socket struct {
	fd    int
	flags uintptr // of every call: MSG_DONTWAIT, or 0 to block for a tick
}

// tick is how long a worker waits for anything before it looks around: at its
// deadlines, and whether to stop.
const tick = 20 * time.Millisecond

// errAgain says that nothing could be read or written for now.
var errAgain = errors.New("nothing for now")

// takeSocket takes over conn, which nobody may use any more. If it blocks, it does
// so for a tick.
func takeSocket(conn net.Conn, blocks bool) (socket, error) {
	fd, err := wire.Descriptor(conn)
	if err != nil {
		return socket{}, lost(err)
	}
	s := socket{fd: fd, flags: unix.MSG_DONTWAIT}
	if !blocks {
		return s, nil
	}
	s.flags = 0
	if err := s.block(); err != nil {
		s.close()
		return socket{}, lost(err)
	}
	return s, nil
}

// block has calls wait for a tick.
func (s socket) block() error {
	if err := unix.SetNonblock(s.fd, false); err != nil {
		return err
	}
	limit := unix.NsecToTimeval(int64(tick))
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, option, &limit); err != nil {
			return err
		}
	}
	return nil
}

// blocks tells whether calls wait for a tick.
func (s socket) blocks() bool { return s.flags == 0 }

func (s socket) close() { _ = unix.Close(s.fd) } // nothing is lost with it

// receive reads once.
func (s socket) receive(b []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), s.flags, 0, 0)
	if errno == 0 && n == 0 {
		return 0, fmt.Errorf("%w: closed by the server", measure.ErrLost)
	}
	return int(n), failure(errno)
}

// send writes once, from as many vectors as one call takes.
func (s socket) send(v []unix.Iovec) (int, error) {
	message := unix.Msghdr{Iov: &v[0]}
	message.SetIovlen(min(len(v), maxVectors))
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&message)), s.flags|unix.MSG_NOSIGNAL)
		if errno != unix.EINTR {
			return int(n), failure(errno)
		}
		runtime.Gosched() // the collector may be waiting for this thread, and nothing else here would notice
	}
}

// maxVectors is how many vectors one call takes.
const maxVectors = 1024

func failure(errno unix.Errno) error {
	switch errno {
	case 0:
		return nil
	case unix.EAGAIN, unix.EINTR: // the worker asks again
		return errAgain
	case unix.EPIPE, unix.ECONNRESET:
		return fmt.Errorf("%w: closed by the server: %w", measure.ErrLost, errno)
	}
	return fmt.Errorf("%w: %w", measure.ErrLost, errno)
}

// vectorOf points to b, which is not empty.
func vectorOf(b []byte) unix.Iovec {
	v := unix.Iovec{Base: &b[0]}
	v.SetLen(len(b))
	return v
}

// after takes n bytes off the front of v.
func after(v []unix.Iovec, n int) []unix.Iovec {
	for len(v) > 0 && n >= int(v[0].Len) {
		n -= int(v[0].Len)
		v = v[1:]
	}
	if n > 0 {
		v[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(v[0].Base), n))
		v[0].SetLen(int(v[0].Len) - n)
	}
	return v
}

// watch waits on an epoll for so many ns and returns how many of its connections
// are ready.
func watch(poll int, events []unix.EpollEvent, patience int64, precise bool) int {
	milliseconds := patience / 1e6
	if precise && patience > 0 { // epoll waits for whole milliseconds only
		limit := unix.NsecToTimespec(patience)
		fd := unix.PollFd{Fd: int32(poll), Events: unix.POLLIN}
		n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fd)), 1, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
		if n == 0 || errno != 0 { // cut short by a signal at worst
			return 0
		}
		milliseconds = 0
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(poll), uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), uintptr(milliseconds), 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// setTimerSlack has the kernel end the waits of this thread when they are over; it may
// else add 50 us, to save power.
func setTimerSlack() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) } // without it, arrivals are later
