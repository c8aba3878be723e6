package snapshot

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockSuffix ends the name of the lock of a snapshot, beside which it is. The file is empty, and stays: the lock ends with
// its process.
const lockSuffix = ".hitline-lock"

// lock locks the path of a snapshot until unlock, or the end of the process. shared tells that others have locked it,
// who keep their locks.
func lock(path string) (unlock func(), shared bool, err error) {
	f, err := os.OpenFile(path+lockSuffix, os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, false, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if shared = errors.Is(err, unix.EWOULDBLOCK); shared || err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) // EWOULDBLOCK if another one is just here
	}
	if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		_ = f.Close()
		return nil, false, err
	}
	return func() { _ = f.Close() }, shared, nil
}
