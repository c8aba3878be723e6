package snapshot

import (
	"context"
	"io"

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

// readAll reads a whole snapshot and calls v. It returns its length in bytes. Whatever the bytes are, it allocates at most
// two parts. An error may come after calls of v, as may the end of ctx.
func readAll(ctx context.Context, from io.Reader, v visitor) (bytes int64, err error) {
	in := parts.NewReader(from, magic, format)
	var info fileInfo
	if in.JSON(&info); in.Err() == nil {
		err = v.file(info)
	}
	for err == nil && in.NextSection() {
		err = readPool(ctx, in, v)
	}
	if err != nil {
		return 0, err
	}
	err = in.End()
	return in.Offset(), err
}

// readPool reads a section. It looks at ctx before each record: one of a few bytes may cost milliseconds, if it resets group
// ranks or evicts at many.
func readPool(ctx context.Context, in *parts.Reader, v visitor) error {
	var info poolInfo
	if in.JSON(&info); in.Err() != nil {
		return in.Err()
	}
	if err := v.pool(info); err != nil {
		return err
	}
	var record index.DumpRecord
	for in.More() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if readRecord(in, &record); in.Err() != nil {
			return in.Err()
		}
		if err := v.record(&record); err != nil {
			in.Fail("%v", err)
		}
	}
	return in.Err()
}
