// Package logtest has what tests read logs with.
package logtest

import (
	"bytes"
	"strings"
	"sync"
)

// Buffer is a log in memory. The zero value is empty. It is safe for concurrent use: it may
// be read while it is written.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns the log since the last Take.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Take removes and returns the lines written since the last call.
func (b *Buffer) Take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := strings.TrimSuffix(b.buf.String(), "\n")
	b.buf.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}
