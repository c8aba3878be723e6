package snapshot

import (
	"context"
	"fmt"
	"time"

	"github.com/hitline/hitline/index"
)

// Info tells what is in a snapshot.
type Info struct {
	Created time.Time  `json:"created"` // when it was begun
	Version string     `json:"version"` // of the program that wrote it
	Bytes   int64      `json:"bytes"`
	Entries int64      `json:"entries"`
	Pools   []PoolInfo `json:"pools"`
}

// PoolInfo tells of a pool of a snapshot.
type PoolInfo struct {
	Name      string `json:"name"`   // "" for the server's own
	Digest    string `json:"digest"` // of its description
	Model     string `json:"model,omitempty"`
	Described bool   `json:"described"` // by a client
	Records   int64  `json:"records"`
	// Entries are keys of runs. One that was stored again while the snapshot was written may count twice.
	Entries int64 `json:"entries"`
}

// Inspect reads the whole snapshot at a path and checks it. Unlike a load it checks neither the age nor what
// an index refuses. An error names the path, and where and how the file is damaged. Info then has what was read
// before that.
func Inspect(ctx context.Context, path string) (*Info, error) {
	v := &inspector{}
	f, err := openFile(path)
	if err != nil {
		return &v.info, err
	}
	defer f.Close()
	if v.info.Bytes, err = readAll(ctx, f, v); err != nil {
		return &v.info, fmt.Errorf("%s: %w", path, err)
	}
	return &v.info, nil
}

// inspector is a visitor that counts.
type inspector struct{ info Info }

func (v *inspector) file(info fileInfo) error {
	v.info.Created, v.info.Version = info.Created, info.Version
	return nil
}

func (v *inspector) pool(info poolInfo) error {
	v.info.Pools = append(v.info.Pools, PoolInfo{Name: info.Name, Digest: info.Digest, Model: info.Pool.ModelName, Described: info.Described})
	return nil
}

func (v *inspector) record(r *index.DumpRecord) error {
	p := &v.info.Pools[len(v.info.Pools)-1]
	p.Records++
	if r.Kind == index.DumpRun {
		p.Entries += int64(numKeys(r))
		v.info.Entries += int64(numKeys(r))
	}
	return nil
}
