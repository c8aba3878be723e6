package main

import "golang.org/x/sys/unix"

// httpConns returns how many connections an HTTP listener may have with a limit of open files: no more than an eighth
// of it, so that they do not keep out the clients of listen.
func httpConns(most int, openFiles uint64) int {
	return int(max(1, min(uint64(most), openFiles/8)))
}

// openFileLimit returns the limit of open files, a high one if it cannot be told.
func openFileLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1 << 20
	}
	return limit.Cur
}
