package snapshot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// Server has the pools that are kept: a server.Server, or what a test puts in its place.
type Server interface {
	Pools() []server.ServedPool
	DescribePool(name string, described coordinator.Pool) (server.ServedPool, error)
}

// maxFuture is how far in the future a snapshot may have been written: clocks differ.
const maxFuture = time.Minute

// loader loads the records of a snapshot into the indexes of a server. It is a visitor.
type loader struct {
	srv    Server
	maxAge time.Duration // 0: any
	now    time.Time
	logger *slog.Logger

	created time.Time
	loaded  []*index.Index
	index   *index.Index // of the pool that is read, nil if it is skipped
	skipped []string     // pools and why
}

// file refuses a snapshot that is too old or from the future.
func (l *loader) file(info fileInfo) error {
	l.created = info.Created
	age := l.now.Sub(info.Created).Round(time.Second)
	switch {
	case age < -maxFuture:
		return fmt.Errorf("it was written %v in the future: a clock is wrong", info.Created.Sub(l.now).Round(time.Second))
	case l.maxAge > 0 && age > l.maxAge:
		return fmt.Errorf("it is %v old, and max_age is %v", age, l.maxAge)
	}
	return nil
}

// pool finds the index of a pool, or skips the pool.
func (l *loader) pool(info poolInfo) error {
	l.index = nil
	x, err := l.find(info)
	if err != nil {
		l.skip(info.Name, err.Error())
		return nil
	}
	if slices.Contains(l.loaded, x) {
		return fmt.Errorf("pool %q is in it twice", info.Name)
	}
	l.loaded, l.index = append(l.loaded, x), x
	return nil
}

// skip tells that a pool is left out.
func (l *loader) skip(name, why string) {
	l.logger.Warn("a pool of the snapshot is left out", "pool", name, "error", why)
	l.skipped = append(l.skipped, fmt.Sprintf("pool %q: %s", name, why))
}

// leftOut tells which pools are left out, "" if none is.
func (l *loader) leftOut() string {
	if len(l.skipped) == 0 {
		return ""
	}
	return "left out: " + strings.Join(l.skipped, "; ")
}

// find returns the index of a pool.
func (l *loader) find(info poolInfo) (*index.Index, error) {
	served, err := l.served(info)
	if err != nil {
		return nil, err
	}
	if served.Digest != info.Digest {
		return nil, otherwise(served.Service, info.Pool)
	}
	return served.Service.Index(), nil
}

// maxDifferences bounds how many fields an error names: a pool may have thousands of groups.
const maxDifferences = 4

// otherwise returns an error that names the fields in which a pool differs from that of the snapshot.
func otherwise(service *lookup.Service, written coordinator.Pool) error {
	const text = "it is described otherwise now"
	c, err := coordinator.New(written)
	if err != nil {
		return errors.New(text)
	}
	var fields []string
	differences := service.Compare(c)
	for _, d := range differences[:min(len(differences), maxDifferences)] {
		fields = append(fields, fmt.Sprintf("%s is %s, in the snapshot %s", d.Field, d.Configured, d.Described))
	}
	switch more := len(differences) - len(fields); {
	case len(fields) == 0: // in what no lookup depends on
		return errors.New(text)
	case more > 0:
		fields = append(fields, fmt.Sprintf("and %d more", more))
	}
	return errors.New(text + ": " + strings.Join(fields, "; "))
}

// served returns the pool that the server has under the name of a pool of the snapshot. A described pool that
// the server lacks is described again.
func (l *loader) served(info poolInfo) (server.ServedPool, error) {
	for _, p := range l.srv.Pools() {
		if p.Name == info.Name {
			return p, nil
		}
	}
	if !info.Described || info.Name == "" { // a described one has a name
		return server.ServedPool{}, errors.New("it is no longer configured")
	}
	return l.srv.DescribePool(info.Name, info.Pool)
}

func (l *loader) record(r *index.DumpRecord) error {
	if l.index == nil {
		return nil
	}
	return l.index.Load(r)
}

// load reads a snapshot into the indexes, which are empty and used by nobody else. If it fails, they are
// empty again.
func (l *loader) load(ctx context.Context, path string) (bytes int64, err error) {
	f, err := openFile(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	err = requesterror.Call(func() (err error) {
		bytes, err = readAll(ctx, f, l)
		return err
	})
	if err != nil {
		for _, x := range l.loaded {
			x.Reset()
		}
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return bytes, nil
}

// entries returns how many entries the indexes hold that were loaded.
func (l *loader) entries() int64 {
	n := int64(0)
	for _, x := range l.loaded {
		n += x.Stats().Entries
	}
	return n
}
