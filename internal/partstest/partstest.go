// Package partstest writes and reads streams of package parts in tests.
package partstest

import (
	"bytes"
	"encoding/binary"

	"github.com/hitline/hitline/internal/parts"
)

const (
	magic  = "HITLTEST"
	format = 1
)

// Write returns a stream of one section that write has written.
func Write(write func(*parts.Writer)) []byte {
	var out bytes.Buffer
	w := parts.NewWriter(&out, magic, format)
	write(w)
	if err := w.End(); err != nil {
		panic(err) // a buffer does not fail
	}
	return out.Bytes()
}

// Content returns what write writes, without what is around it.
func Content(write func(*parts.Writer)) []byte {
	return Write(write)[len(Write(func(*parts.Writer) {})):]
}

// Reader returns a reader of what Write returned.
func Reader(stream []byte) *parts.Reader {
	return parts.NewReader(bytes.NewReader(stream), magic, format)
}

// Raw writes content that a test has made or a fuzzer has found, so that what reads it gets behind the checksums. Of the
// last len(content)%8 bytes the highest bit is cleared.
func Raw(w *parts.Writer, content []byte) {
	for ; len(content) >= 8; content = content[8:] {
		w.Fixed64(binary.LittleEndian.Uint64(content))
	}
	for _, b := range content {
		w.Uvarint(uint64(b & 0x7f))
	}
}
