package server

import "golang.org/x/sys/unix"

// unacknowledged returns how many bytes of replies the kernel keeps for the peer of a socket.
func unacknowledged(fd int) int64 {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return int64(n)
}
