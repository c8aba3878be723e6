package server

import "golang.org/x/sys/unix"

// capConnections lowers a bound on connections to what the limit of open files allows, if each
// has a number of descriptors. It reserves a quarter of the limit for backends and files, for connections that are
// accepted only to be closed, and for those that others of the program accept: at least theirs and 64.
func capConnections(maxConns int, openFiles, descriptors, others uint64) int {
	const minReserve = 64
	reserve := max(openFiles/4, minReserve+others)
	if openFiles <= reserve {
		return min(maxConns, 1)
	}
	if allowed := (openFiles - reserve) / descriptors; uint64(maxConns) > allowed {
		return int(max(allowed, 1))
	}
	return maxConns
}

// OpenFileLimit returns the soft limit of open files, a high one if it cannot be told. Go's runtime raises it
// to the hard limit at start.
func OpenFileLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1 << 20
	}
	return limit.Cur
}

// descriptorsOf returns how many descriptors a connection has at maxConns: one, or one and a pair of
// sockets if a listener is one of TLS.
func descriptorsOf(listeners []Listener) uint64 {
	for i := range listeners {
		if listeners[i].TLS != nil {
			return 3
		}
	}
	return 1
}
