package wire

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Poller waits for several sockets, each known by a number of the caller's. Not safe for
// concurrent use.
type Poller struct {
	fd     int
	events []unix.EpollEvent
	ready  []int
}

// NewPoller returns a poller that tells of at most this number of sockets at once. The caller
// closes it.
func NewPoller(most int) (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return &Poller{fd: fd, events: make([]unix.EpollEvent, most), ready: make([]int, 0, most)}, nil
}

// Add has the poller tell when s, by a number, can be read.
func (p *Poller) Add(number int, s Socket) error {
	return p.control(unix.EPOLL_CTL_ADD, unix.EPOLLIN, number, s)
}

// Watch says whether the poller tells also when s can be written to.
func (p *Poller) Watch(number int, s Socket, writable bool) error {
	events := uint32(unix.EPOLLIN)
	if writable {
		events |= unix.EPOLLOUT
	}
	return p.control(unix.EPOLL_CTL_MOD, events, number, s)
}

func (p *Poller) control(operation int, events uint32, number int, s Socket) error {
	event := unix.EpollEvent{Events: events, Fd: int32(number)} // what is in Fd is ours to choose
	if err := unix.EpollCtl(p.fd, operation, s.fd, &event); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// Wait waits for at most the given ns and returns the numbers of the sockets that are ready, until
// the next call. If it is not precise, it waits for whole milliseconds.
func (p *Poller) Wait(patience int64, precise bool) []int {
	milliseconds := patience / 1e6
	if precise && patience > 0 { // epoll knows no shorter waits
		limit := unix.NsecToTimespec(patience)
		fd := unix.PollFd{Fd: int32(p.fd), Events: unix.POLLIN}
		n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fd)), 1, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
		if n == 0 || errno != 0 { // cut short by a signal at worst
			return nil
		}
		milliseconds = 0
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])),
		uintptr(len(p.events)), uintptr(milliseconds), 0, 0)
	if errno != 0 {
		return nil
	}
	p.ready = p.ready[:0]
	for i := range p.events[:n] {
		p.ready = append(p.ready, int(p.events[i].Fd))
	}
	return p.ready
}

// Close closes the poller.
func (p *Poller) Close() { _ = unix.Close(p.fd) } // nothing is lost with it

// SetTimerSlack has the kernel end the waits of this thread when they are over; it may
// else add 50 us, to save power.
func SetTimerSlack() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) } // without it, arrivals are later

// Sleep blocks the thread for the given ns, or less if a signal comes.
func Sleep(ns int64) {
	limit := unix.NsecToTimespec(ns)
	_ = unix.Nanosleep(&limit, nil) // its only error is that signal
}
