// Package regularfile reads small files that an operator names: configurations, tokens, certificates and keys.
package regularfile

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxSize bounds the bytes of a file that is read: more than all authorities of a system take in PEM.
const maxSize = 4 << 20

// Read returns the bytes of a regular file of at most maxSize bytes. It follows links. It refuses anything else,
// as a pipe could make the reader wait for ever, and a device never end.
func Read(path string) ([]byte, error) {
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
	case info.Size() > maxSize:
		return nil, fmt.Errorf("%s has %d bytes, more than %d", path, info.Size(), maxSize)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxSize: // it has grown meanwhile
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxSize)
	}
	return text, nil
}
