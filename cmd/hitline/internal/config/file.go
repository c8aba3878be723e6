package config

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxFile bounds the bytes of a file that is read: more than all authorities of a system take in PEM.
const maxFile = 4 << 20

// ReadRegular returns the bytes of a regular file of at most maxFile bytes. It follows links. It refuses anything else,
// as a pipe could make the reader wait for ever, and a device never end.
func ReadRegular(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // so that a pipe is not waited for
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s has %d bytes, more than %d", path, info.Size(), maxFile)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxFile: // it has grown meanwhile
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return text, nil
}
