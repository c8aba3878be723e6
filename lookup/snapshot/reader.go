package snapshot

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/hitline/hitline/index"
)

// visitor is called with what is in a snapshot, in order. An error of it ends the reading.
type visitor interface {
	file(info fileInfo) error
	pool(info poolInfo) error
	// record is only borrowed.
	record(r *index.DumpRecord) error
}

// reader reads a snapshot once from its beginning.
type reader struct {
	in     io.Reader
	offset int64 // of the part that is read
	next   int64 // of what follows it
	seed   uint32
	number uint32 // of the next part
	buf    []byte
	totals totals
}

// readAll reads a whole snapshot and calls v. It returns its length in bytes. Whatever the bytes are, it
// allocates at most two parts. An error names the byte at which the wrong part begins. It may come after
// calls of v, as may the end of ctx.
func readAll(ctx context.Context, in io.Reader, v visitor) (bytes int64, err error) {
	r := &reader{in: in}
	if err := r.readHeader(); err != nil {
		return 0, fmt.Errorf("at byte 0: %w", err)
	}
	for {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		kind, payload, err := r.readPart()
		if err == nil {
			err = r.visit(ctx, kind, payload, v)
		}
		if err == nil && kind == partEnd {
			err = r.readEnd()
		}
		if err != nil {
			return 0, fmt.Errorf("at byte %d: %w", r.offset, err)
		}
		if kind == partEnd {
			return r.next, nil
		}
	}
}

// errCut says that the file ends before the snapshot does.
var errCut = errors.New("the file ends in the middle of the snapshot")

// read fills b.
func (r *reader) read(b []byte) error {
	n, err := io.ReadFull(r.in, b)
	r.next += int64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errCut
	}
	return err
}

func (r *reader) readHeader() error {
	header := make([]byte, headerLen)
	if err := r.read(header); err != nil {
		if !strings.HasPrefix(magic, string(header[:min(r.next, int64(len(magic)))])) {
			return errNoSnapshot
		}
		return err
	}
	id, err := parseHeader(header)
	r.seed = crc32.Checksum(id, castagnoli)
	return err
}

// readPart reads the next part and checks it. The payload is valid until the next call.
func (r *reader) readPart() (kind partKind, payload []byte, err error) {
	r.offset = r.next
	var header [partHeader]byte
	if err := r.read(header[:]); err != nil {
		return 0, nil, err
	}
	kind, length := partKind(binary.LittleEndian.Uint32(header[:])), binary.LittleEndian.Uint32(header[4:])
	number := binary.LittleEndian.Uint32(header[8:])
	if length > maxPart || number != r.number {
		return 0, nil, fmt.Errorf("part %d of the file is damaged", r.number)
	}
	if cap(r.buf) < int(length) {
		r.buf = make([]byte, max(int(length), fullPart))
	}
	payload = r.buf[:length]
	if err := r.read(payload); err != nil {
		return 0, nil, err
	}
	if partSum(r.seed, header[:12], payload) != binary.LittleEndian.Uint32(header[12:]) {
		return 0, nil, fmt.Errorf("the checksum of part %d is wrong", number)
	}
	if (number == 0) != (kind == partFile) || kind == partRecords && r.totals.Pools == 0 {
		return 0, nil, fmt.Errorf("part %d is of kind %d, which does not belong there", number, kind)
	}
	r.number++
	return kind, payload, nil
}

// mostText bounds, in bytes, what an error tells of a text in the file.
const mostText = 200

// shorten cuts a text of the file.
func shorten(text string) string {
	if len(text) <= mostText {
		return text
	}
	return strings.ToValidUTF8(text[:mostText], "") + "…"
}

// readJSON reads the payload of a part. what is what it describes.
func readJSON(payload []byte, v any, what string) error {
	if err := json.Unmarshal(payload, v); err != nil {
		return fmt.Errorf("%s cannot be read: %s", what, shorten(err.Error()))
	}
	return nil
}

// visit calls v for a part.
func (r *reader) visit(ctx context.Context, kind partKind, payload []byte, v visitor) error {
	switch kind {
	case partFile:
		var info fileInfo
		if err := readJSON(payload, &info, "its description"); err != nil {
			return err
		}
		return v.file(info)
	case partPool:
		var info poolInfo
		if err := readJSON(payload, &info, "the description of a pool"); err != nil {
			return err
		}
		r.totals.Pools++
		return v.pool(info)
	case partRecords:
		return r.visitRecords(ctx, payload, v)
	case partEnd:
		var want totals
		if err := readJSON(payload, &want, "the totals"); err != nil {
			return err
		}
		if want != r.totals {
			return fmt.Errorf("it has %+v, and should have %+v", r.totals, want)
		}
		return nil
	}
	return fmt.Errorf("a part of kind %d, which is not known", kind)
}

// visitRecords calls v for the records of a part. It looks at ctx before each: a record of a few bytes may
// cost milliseconds, if it resets places or evicts at many.
func (r *reader) visitRecords(ctx context.Context, b []byte, v visitor) error {
	var record index.DumpRecord
	c := cursor{b: b}
	for first := true; len(c.b) > 0; first = false {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := c.record(&record, first); err != nil {
			return err
		}
		r.totals.count(&record)
		if err := v.record(&record); err != nil {
			return err
		}
	}
	return nil
}

// readEnd checks that nothing follows.
func (r *reader) readEnd() error {
	switch n, err := io.ReadFull(r.in, make([]byte, 1)); {
	case n > 0:
		r.offset = r.next
		return errors.New("something follows the end of the snapshot")
	case errors.Is(err, io.EOF):
		return nil
	default:
		return err
	}
}
