package config

import (
	"fmt"
	"io"
	"os"
)

// maxFile bounds the bytes of a tokens file or a PEM file: 10,000 tokens take less.
const maxFile = 4 << 20

// ReadRegular returns the bytes of a regular file of at most maxFile bytes. It follows links. It
// refuses anything else, as a pipe could make the reader wait for ever.
func ReadRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read it: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s has %d bytes, more than %d", path, info.Size(), maxFile)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read it: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read it: %w", err)
	case len(text) > maxFile: // it has grown meanwhile
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return text, nil
}
