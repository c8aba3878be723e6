package sockets

import "golang.org/x/sys/unix"

// Unacknowledged returns how many bytes of replies the kernel keeps for the peer of a socket.
func Unacknowledged(fd int) int64 {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return int64(n)
}
