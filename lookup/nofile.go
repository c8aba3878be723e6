package lookup

import "golang.org/x/sys/unix"

// capConnections lowers a bound on connections to what the process's limit of
// open files allows: an event loop that cannot accept for want of a descriptor
// stops the whole engine. A quarter of the limit, at least 64, stays free for
// everything else and for connections that were accepted and are about to be
// refused: a storm of them runs ahead of the refusals.
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
