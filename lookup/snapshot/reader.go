package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/parts"
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
	parts  *parts.Reader // behind the header
	offset int64         // of the part that is read
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
			return r.next(), nil
		}
	}
}

// errCut says that the file ends before the snapshot does.
var errCut = errors.New("the file ends in the middle of the snapshot")

// next returns the offset of what follows the part that is read.
func (r *reader) next() int64 { return int64(headerLen) + r.parts.Offset() }

func (r *reader) readHeader() error {
	header := make([]byte, headerLen)
	n, err := io.ReadFull(r.in, header)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		if !strings.HasPrefix(magic, string(header[:min(n, len(magic))])) {
			return errNoSnapshot
		}
		return errCut
	case err != nil:
		return err
	}
	id, err := parseHeader(header)
	r.parts = parts.NewReader(r.in, parts.Checksum(id), maxPart)
	return err
}

// readPart reads the next part and checks it. The payload is valid until the next call.
func (r *reader) readPart() (partKind, []byte, error) {
	r.offset = r.next()
	number := r.parts.Number()
	n, payload, err := r.parts.Next()
	switch {
	case errors.Is(err, parts.ErrCut):
		return 0, nil, errCut
	case errors.Is(err, parts.ErrDamaged):
		return 0, nil, fmt.Errorf("part %d of the file is damaged", number)
	case errors.Is(err, parts.ErrChecksum):
		return 0, nil, fmt.Errorf("the checksum of part %d is wrong", number)
	case err != nil:
		return 0, nil, err
	}
	kind := partKind(n)
	if (number == 0) != (kind == partFile) || kind == partRecords && r.totals.Pools == 0 {
		return 0, nil, fmt.Errorf("part %d is of kind %d, which does not belong there", number, kind)
	}
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
		r.offset = r.next()
		return errors.New("something follows the end of the snapshot")
	case errors.Is(err, io.EOF):
		return nil
	default:
		return err
	}
}
