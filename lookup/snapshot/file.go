package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// temporarySuffix ends the names of snapshots that are being written: NAME.RANDOM.hitline-tmp, in the folder
// of the snapshot.
const temporarySuffix = ".hitline-tmp"

// CheckPath returns an error if no snapshot can be written to a path: its folder is missing or may not be
// written to, or something else than a regular file is there.
func CheckPath(path string) error {
	folder := filepath.Dir(path)
	info, err := os.Stat(folder)
	switch {
	case err != nil:
		return fmt.Errorf("snapshot: its folder must be there: %w", err)
	case !info.IsDir():
		return fmt.Errorf("snapshot: %s is no folder", folder)
	}
	if err := unix.Access(folder, unix.R_OK|unix.W_OK|unix.X_OK); err != nil { // it is read to sync it
		return fmt.Errorf("snapshot: cannot read and write the folder %s: %w", folder, err)
	}
	info, err = os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("snapshot: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("snapshot: %s is no regular file; it would be replaced", path)
	}
	return nil
}

// openFile opens a snapshot for reading. It follows no symbolic link and waits for no pipe.
func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// replaceFile writes a file by write under a temporary name, and renames it to path once it is on the disk.
// If it fails before the rename, what was at path stays. While it is written the file is locked, so that
// removeLeftovers of another process leaves it alone.
func replaceFile(path string, write func(f *os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"+temporarySuffix) // 0600
	if err != nil {
		return withoutName(err)
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = write(f)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return withoutName(err)
	}
	return syncFolder(filepath.Dir(path))
}

// withoutName returns an error without the temporary name: the next failure for the same reason has the same
// text, and is not logged again.
func withoutName(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return fmt.Errorf("%s: %w", path.Op, path.Err)
	case errors.As(err, &link):
		return fmt.Errorf("%s: %w", link.Op, link.Err)
	}
	return err
}

// syncFolder makes a rename in a folder outlive a loss of power.
func syncFolder(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// removeLeftovers removes what writers that were killed have left for a path. What it cannot remove does not
// keep it from the rest.
func removeLeftovers(path string) error {
	folder := filepath.Dir(path)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if !e.Type().IsRegular() || !strings.HasPrefix(name, filepath.Base(path)+".") || !strings.HasSuffix(name, temporarySuffix) {
			continue
		}
		if rest := removeUnlocked(filepath.Join(folder, name)); rest != nil && !errors.Is(rest, fs.ErrNotExist) {
			err = rest
		}
	}
	return err
}

// removeUnlocked removes a file unless a process writes it.
func removeUnlocked(path string) error {
	f, err := openFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil
		}
		return err
	}
	return os.Remove(path)
}
