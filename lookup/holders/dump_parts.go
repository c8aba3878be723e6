package holders

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A dump is a header and parts; integers are little-endian.
//
//	header  magic [8] | format u32
//	part    kind u32 | length u32 | number u32 | checksum u32 | payload [length]
//
// The checksum is CRC-32C of the part without it. Parts are numbered from 0. These are in a dump:
//
//	partDump                dumpInfo
//	partModel, partData...  modelInfo, and the fleet.Snapshot of the model in as many parts as it needs
//	partSource, partData... sourceInfo, and the events.Checkpoint of the source
//	partEnd                 nothing; the last part
const (
	dumpMagic      = "HITLDUMP"
	dumpFormat     = 1
	dumpHeaderLen  = len(dumpMagic) + 4
	partHeaderLen  = 16
	maxPartPayload = 256 << 10 // bytes: what a reader allocates before it knows that the checksum is right
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

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// partWriter writes the parts of a dump. Write adds to the data of the last model or source.
type partWriter struct {
	out    io.Writer
	number uint32
	buf    []byte // data that is not written yet, behind the place for a header
}

// newPartWriter writes the header.
func newPartWriter(out io.Writer) (*partWriter, error) {
	header := binary.LittleEndian.AppendUint32([]byte(dumpMagic), dumpFormat)
	_, err := out.Write(header)
	return &partWriter{out: out, buf: make([]byte, partHeaderLen, partHeaderLen+maxPartPayload)}, err
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
	if len(w.buf) == partHeaderLen {
		return nil
	}
	err := w.writePart(partData, w.buf)
	w.buf = w.buf[:partHeaderLen]
	return err
}

// writeJSON ends the data and writes a part with a description, nil for none.
func (w *partWriter) writeJSON(kind partKind, v any) error {
	if err := w.flush(); err != nil {
		return err
	}
	part := make([]byte, partHeaderLen)
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
	payload := part[partHeaderLen:]
	if len(payload) > maxPartPayload {
		return fmt.Errorf("holders: a part of a dump with %d bytes", len(payload))
	}
	binary.LittleEndian.PutUint32(part, uint32(kind))
	binary.LittleEndian.PutUint32(part[4:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(part[8:], w.number)
	binary.LittleEndian.PutUint32(part[12:], partSum(part[:12], payload))
	w.number++
	_, err := w.out.Write(part)
	return err
}

func partSum(header, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(header, castagnoli), castagnoli, payload)
}

// partReader reads the parts of a dump. Read reads the data that follows a model or source, and then returns
// io.EOF. It never reads beyond a part.
type partReader struct {
	in      io.Reader
	number  uint32
	kind    partKind // of the part that was read last
	payload []byte   // of it; what is left of it, if it is data
	buf     []byte
	begun   bool  // a part was read that next has not returned
	err     error // what ended reading
}

// newPartReader reads the header.
func newPartReader(in io.Reader) (*partReader, error) {
	header := make([]byte, dumpHeaderLen)
	if _, err := io.ReadFull(in, header); err != nil {
		return nil, cutOff(err)
	}
	if string(header[:len(dumpMagic)]) != dumpMagic {
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrDump, dumpMagic)
	}
	if format := binary.LittleEndian.Uint32(header[len(dumpMagic):]); format != dumpFormat {
		return nil, fmt.Errorf("%w: it has format %d, and this program reads format %d", ErrDump, format, dumpFormat)
	}
	return &partReader{in: in}, nil
}

// cutOff returns the error of a read that must have succeeded.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errDamaged
	}
	return err
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

// readPart reads the next part and checks it.
func (r *partReader) readPart() {
	if r.err != nil {
		return
	}
	var header [partHeaderLen]byte
	if _, err := io.ReadFull(r.in, header[:]); err != nil {
		r.err = cutOff(err)
		return
	}
	length := binary.LittleEndian.Uint32(header[4:])
	if length > maxPartPayload || binary.LittleEndian.Uint32(header[8:]) != r.number {
		r.err = errDamaged
		return
	}
	if r.buf == nil {
		r.buf = make([]byte, maxPartPayload)
	}
	r.payload = r.buf[:length]
	if _, err := io.ReadFull(r.in, r.payload); err != nil {
		r.err = cutOff(err)
		return
	}
	if partSum(header[:12], r.payload) != binary.LittleEndian.Uint32(header[12:]) {
		r.err = errDamaged
		return
	}
	r.kind, r.begun = partKind(binary.LittleEndian.Uint32(header[:])), true
	r.number++
}
