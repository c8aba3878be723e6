package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup/server"
)

// Config configures a Saver.
type Config struct {
	// Path of the file. Who may write to its folder decides what lookups find.
	Path string
	// Interval is the time from the end of a snapshot to the beginning of the next. 0: only the last one is
	// written, and removed once it has been loaded.
	Interval time.Duration
	// MaxAge bounds the age of a snapshot that is loaded. 0: any.
	MaxAge time.Duration
	// Version is that of the program.
	Version string
	Logger  *slog.Logger // required
}

// Saver keeps the memory indexes of a server in a file. Its methods are called by one goroutine at a time:
// Load before the server's Start, then Start; at the end Stop, and SaveLast after the server's Shutdown. Status
// is safe for concurrent use.
type Saver struct {
	srv    Server
	cfg    Config
	unlock func()             // of the path
	cancel context.CancelFunc // ends the goroutine of Start
	done   chan struct{}      // closed when it has ended

	mu     sync.Mutex
	status Status
}

// New returns a Saver for a server whose pools are over memory. It fails if CheckPath does. It removes what
// writers that were killed have left; of a writer that lives it leaves the file alone. If another Saver has the same path,
// in this process or another one, the log says so.
func New(srv Server, cfg Config) (*Saver, error) {
	if err := CheckPath(cfg.Path); err != nil {
		return nil, err
	}
	cfg.Path = filepath.Clean(cfg.Path) // one name of the folder: a path such as no/../index works or fails as a whole
	if err := removeLeftovers(cfg.Path); err != nil {
		cfg.Logger.Warn("what a killed server has left beside the snapshot cannot be removed", "error", err.Error())
	}
	unlock, shared, err := lock(cfg.Path)
	switch {
	case err != nil:
		unlock = func() {}
		cfg.Logger.Warn("cannot tell whether another server writes this snapshot", "path", cfg.Path, "error", err.Error())
	case shared:
		cfg.Logger.Warn("another server writes this snapshot, and each replaces the other's; give each a path of its own, "+
			"or stop one before another takes over", "path", cfg.Path)
	}
	return &Saver{srv: srv, cfg: cfg, unlock: unlock, status: Status{Path: cfg.Path}}, nil
}

// Status returns the state of the snapshots. The caller owns it.
func (s *Saver) Status() *Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return new(s.status)
}

// update changes the status.
func (s *Saver) update(change func(st *Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
}

// Load loads the snapshot before the server is started. One that cannot be loaded is refused as a whole: the
// indexes are then empty, and the log has one line that says why. It returns an error only if ctx ended.
func (s *Saver) Load(ctx context.Context) error {
	l := &loader{srv: s.srv, maxAge: s.cfg.MaxAge, now: time.Now(), logger: s.cfg.Logger}
	bytes, err := l.load(ctx, s.cfg.Path)
	if ctx.Err() != nil {
		return fmt.Errorf("snapshot: the load was interrupted: %w", context.Cause(ctx))
	}
	s.reportLoad(l, bytes, err)
	return nil
}

// reportLoad logs what was loaded, or why nothing was, and sets the status.
func (s *Saver) reportLoad(l *loader, bytes int64, err error) {
	entries := l.entries()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.cfg.Logger.Info("there is no snapshot; starting empty", "path", s.cfg.Path)
	case err != nil:
		s.cfg.Logger.Warn("the snapshot is refused; starting empty", "error", err.Error())
		s.update(func(st *Status) { st.LoadError = err.Error() })
	default:
		leftOut := l.leftOut()
		s.update(func(st *Status) { st.LoadedEntries, st.LoadError = entries, leftOut })
		s.cfg.Logger.Info("snapshot loaded", "path", s.cfg.Path, "pools", len(l.loaded), "entries", entries, "bytes", bytes,
			"age", l.now.Sub(l.created).Round(time.Second).String(), "seconds", seconds(time.Since(l.now)))
	}
}

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

const (
	// checkEvery is how often the background looks for something to write: a crash within it brings back
	// what a reset has removed.
	checkEvery = time.Second
	// restFactor times what the last snapshot took is the least time to one for a reset, so that resets in a
	// row do not keep the disk busy. retryAfter is added if it has failed.
	restFactor = 10
	retryAfter = 10 * time.Second
)

// Start writes snapshots in the background until Stop: each Interval, and soon after a reset, which the file
// of before would undo after a crash. If Interval is 0 it removes the file that was loaded instead: what is
// evicted from now on will not be in it.
func (s *Saver) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.done = cancel, make(chan struct{})
	if s.cfg.Interval == 0 {
		s.removeLoaded()
		close(s.done)
		return
	}
	go func() {
		defer close(s.done)
		for ctx.Err() == nil {
			if err := requesterror.Run(func() { s.run(ctx) }); err != nil {
				s.failed(ctx, err, false)
			}
			select {
			case <-ctx.Done():
			case <-time.After(retryAfter): // after a fault
			}
		}
	}()
}

// run writes snapshots until ctx ends.
func (s *Saver) run(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	var rest time.Time // no snapshot for a reset until then
	ended, resets := time.Now(), s.resets()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, count := time.Now(), s.resets()
		if now.Sub(ended) < s.cfg.Interval && (count == resets || now.Before(rest)) {
			continue
		}
		saved := s.save(ctx, false)
		ended = time.Now()
		if rest = ended.Add(restFactor * ended.Sub(now)); saved {
			resets = count
		} else {
			rest = rest.Add(retryAfter)
		}
	}
}

// removeLoaded removes the file if something of it was loaded.
func (s *Saver) removeLoaded() {
	if s.Status().LoadedEntries == 0 {
		return
	}
	if err := os.Remove(s.cfg.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.cfg.Logger.Error("the snapshot that was loaded cannot be removed; a crash would load it again", "path", s.cfg.Path, "error", err.Error())
	}
}

// resets returns how many resets the indexes have seen. It changes with the pools, too.
func (s *Saver) resets() (n int64) {
	for _, p := range s.srv.Pools() {
		n += p.Service.Index().Resets()
	}
	return n
}

// stopGrace bounds how long Stop waits. Only a file system that hangs takes so long.
const stopGrace = time.Second

// Stop ends what Start has begun, and abandons a snapshot that is being written. It may be called twice, but
// not before Start.
func (s *Saver) Stop() {
	s.cancel()
	select {
	case <-s.done:
	case <-time.After(stopGrace):
	}
}

// SaveLast writes the last snapshot, after Stop and once nothing changes any more, and leaves the path to others. It
// returns when that is written, has failed, or ctx has ended. If ctx has ended the snapshot before stays, unless the new
// one was being renamed. Its goroutine ends soon after, unless a file system hangs.
func (s *Saver) SaveLast(ctx context.Context) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		defer s.unlock()
		select {
		case <-s.done:
			s.save(ctx, true)
		case <-ctx.Done():
		}
	}()
	select {
	case <-written:
	case <-ctx.Done():
		s.cfg.Logger.Warn("the last snapshot was not written in time; the one before stays", "path", s.cfg.Path)
	}
}

// save writes a snapshot, logs it and sets the status. All but the last one leave half of a core to others.
func (s *Saver) save(ctx context.Context, last bool) (saved bool) {
	started := time.Now()
	w, err := s.write(ctx, started, !last)
	if err != nil {
		s.failed(ctx, err, last)
		return false
	}
	took := time.Since(started)
	s.update(func(st *Status) {
		st.Written, st.Seconds, st.Entries, st.Bytes, st.Error = started, took.Seconds(), w.entries, w.Len(), ""
	})
	s.cfg.Logger.Info("snapshot written", "path", s.cfg.Path, "pools", w.pools, "entries", w.entries, "bytes", w.Len(),
		"seconds", seconds(took))
	return true
}

// failed counts and logs a snapshot that was not written, unless ctx has ended. A failure for the same reason as
// the one before is not logged again, unless it is that of the last one: the log then ends with it.
func (s *Saver) failed(ctx context.Context, err error, last bool) {
	if ctx.Err() != nil {
		return
	}
	repeated := false
	s.update(func(st *Status) {
		repeated = st.Error == err.Error()
		st.Failed, st.Error = st.Failed+1, err.Error()
	})
	if last || !repeated {
		s.cfg.Logger.Error("the snapshot cannot be written; the one before stays", "path", s.cfg.Path, "error", err.Error())
	}
}

// write writes the file.
func (s *Saver) write(ctx context.Context, started time.Time, throttle bool) (w *writer, err error) {
	err = replaceFile(s.cfg.Path, func(f *os.File) (err error) {
		defer requesterror.Recover(&err)
		add := func(r *index.DumpRecord) error { return requesterror.Call(func() error { return w.add(r) }) }
		w = newWriter(f, fileInfo{Created: started.UTC(), Version: s.cfg.Version})
		for _, p := range s.srv.Pools() {
			w.beginPool(infoOf(p))
			if err := p.Service.Index().Dump(ctx, index.DumpOptions{Throttle: throttle}, add); err != nil {
				return err
			}
		}
		return w.End()
	})
	return w, err
}

// infoOf returns the description of a pool that the file has.
func infoOf(p server.ServedPool) poolInfo {
	return poolInfo{Name: p.Name, Described: p.Described, Digest: p.Digest, Pool: p.Service.Pool()}
}
