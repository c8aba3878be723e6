package router

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/hitline/hitline/internal/parts"
)

// A dump is a header and parts, see package parts; integers are little-endian.
//
//	header  magic [8] | format u32
//
// These parts are in a dump:
//
//	partDump                dumpInfo
//	partModel, partData...  modelInfo, and the fleet.Snapshot of the model in as many parts as it needs
//	partSource, partData... sourceInfo, and the events.Checkpoint of the source
//	partEnd                 nothing; the last part
const (
	dumpMagic      = "HITLDUMP"
	dumpFormat     = 1
	dumpHeaderLen  = len(dumpMagic) + 4
	maxPartPayload = 256 << 10 // bytes
)

type partKind uint32

const (
	partDump partKind = iota + 1
	partModel
	partSource
	partData
	partEnd
)

// errDamaged marks the errors of what is no part of a dump.
var errDamaged = fmt.Errorf("%w: it is cut off or damaged", ErrDump)

// partWriter writes the parts of a dump. Write adds to the data of the last model or source.
type partWriter struct {
	parts *parts.Writer
	buf   []byte // data that is not written yet, behind the place for a header
}

// newPartWriter writes the header.
func newPartWriter(out io.Writer) (*partWriter, error) {
	header := binary.LittleEndian.AppendUint32([]byte(dumpMagic), dumpFormat)
	_, err := out.Write(header)
	buf := make([]byte, parts.HeaderLen, parts.HeaderLen+maxPartPayload)
	return &partWriter{parts: parts.NewWriter(out, 0, maxPartPayload), buf: buf}, err
}

// Write implements io.Writer.
func (w *partWriter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		free := min(len(b), cap(w.buf)-len(w.buf))
		w.buf, b = append(w.buf, b[:free]...), b[free:]
		if len(w.buf) == cap(w.buf) {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// flush writes the data that is not written yet.
func (w *partWriter) flush() error {
	if len(w.buf) == parts.HeaderLen {
		return nil
	}
	err := w.writePart(partData, w.buf)
	w.buf = w.buf[:parts.HeaderLen]
	return err
}

// writeJSON ends the data and writes a part with a description, nil for none.
func (w *partWriter) writeJSON(kind partKind, v any) error {
	if err := w.flush(); err != nil {
		return err
	}
	part := make([]byte, parts.HeaderLen)
	if v != nil {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		part = append(part, text...)
	}
	return w.writePart(kind, part)
}

// writePart writes a part whose payload follows the place for its header.
func (w *partWriter) writePart(kind partKind, part []byte) error {
	if err := w.parts.Write(uint32(kind), part); err != nil {
		return fmt.Errorf("router: writing a dump: %w", err)
	}
	return nil
}

// partReader reads the parts of a dump. Read reads the data that follows a model or source, and then returns
// io.EOF. It never reads beyond a part.
type partReader struct {
	parts   *parts.Reader
	kind    partKind // of the part that was read last
	payload []byte   // of it; what is left of it, if it is data
	begun   bool     // a part was read that next has not returned
	err     error    // what ended reading
}

// newPartReader reads the header.
func newPartReader(in io.Reader) (*partReader, error) {
	header := make([]byte, dumpHeaderLen)
	if _, err := io.ReadFull(in, header); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errDamaged
		}
		return nil, err
	}
	if string(header[:len(dumpMagic)]) != dumpMagic {
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrDump, dumpMagic)
	}
	if format := binary.LittleEndian.Uint32(header[len(dumpMagic):]); format != dumpFormat {
		return nil, fmt.Errorf("%w: it has format %d, and this program reads format %d", ErrDump, format, dumpFormat)
	}
	return &partReader{parts: parts.NewReader(in, 0, maxPartPayload)}, nil
}

// next returns the next part that is not data, and skips data in front of it. payload is valid until the next call.
func (r *partReader) next() (kind partKind, payload []byte, err error) {
	for {
		if !r.begun {
			r.readPart()
		}
		if r.err != nil {
			return 0, nil, r.err
		}
		r.begun = false
		if r.kind != partData {
			return r.kind, r.payload, nil
		}
	}
}

// Read implements io.Reader for the data behind the part that next has returned.
func (r *partReader) Read(b []byte) (int, error) {
	for {
		if !r.begun {
			r.readPart()
		}
		switch {
		case r.err != nil:
			return 0, r.err
		case r.kind != partData:
			return 0, io.EOF
		case len(r.payload) > 0:
			n := copy(b, r.payload)
			r.payload = r.payload[n:]
			return n, nil
		}
		r.begun = false
	}
}

// readPart reads the next part.
func (r *partReader) readPart() {
	if r.err != nil {
		return
	}
	kind, payload, err := r.parts.Next()
	switch {
	case errors.Is(err, parts.ErrCut), errors.Is(err, parts.ErrDamaged), errors.Is(err, parts.ErrChecksum):
		r.err = errDamaged
	case err != nil:
		r.err = err
	default:
		r.kind, r.payload, r.begun = partKind(kind), payload, true
	}
}
