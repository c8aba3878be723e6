package server

import "golang.org/x/sys/unix"

// capConnections lowers a bound on connections to what the process's limit of
// open files allows. A quarter of the limit, at least 64, stays free for everything
// else: without descriptors nothing can be accepted, not even to be refused, and
// connections to backends and files cannot be opened.
func capConnections(most int, openFiles uint64) int {
	const least = 64
	reserve := max(openFiles/4, least)
	if openFiles <= reserve {
		return min(most, 1)
	}
	if room := openFiles - reserve; uint64(most) > room {
		return int(room)
	}
	return most
}

// openFileLimit returns the soft limit of open files, which Go's runtime raises to
// the hard one at start.
func openFileLimit() (uint64, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return limit.Cur, err
}
