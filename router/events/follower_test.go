package events

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/internal/logtest"
)

// noLeak requires at the end of the test that none of its goroutines is left.
func noLeak(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		for end := time.Now().Add(20 * time.Second); goleak.Find(ignore) != nil && time.Now().Before(end); { // it waits itself
		}
		goleak.VerifyNone(t, ignore)
	})
}

// follow starts a Follower of a testSet.
func follow(t *testing.T, cfg Config) (*Follower, *testSet) {
	t.Helper()
	set := newTestSet()
	return startFollower(t, cfg, set), set
}

func startFollower(t *testing.T, cfg Config, holder Holder) *Follower {
	t.Helper()
	f, err := Follow(cfg, holder)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f
}

// numbers returns what a testSet holds, nil if it is stale.
func numbers(s *testSet) (list []uint64) {
	if s.Stale() {
		return nil
	}
	for b := range s.Each {
		for _, hash := range b.Hashes.All() {
			list = append(list, binary.BigEndian.Uint64(hash))
		}
	}
	return list
}

// awaitStatus waits until f's status is as wanted: it follows what the set holds a moment later.
func awaitStatus(t *testing.T, f *Follower, wanted func(Status) bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for s := f.Status(); !wanted(s); s = f.Status() {
		require.True(t, time.Now().Before(deadline), "the status stays %+v", s)
		time.Sleep(time.Millisecond)
	}
}

// awaitHeld waits until a testSet holds exactly these.
func awaitHeld(t *testing.T, s *testSet, want ...uint64) {
	t.Helper()
	eventually(t, func() bool { return !s.Stale() && slices.Equal(numbers(s), want) })
}

func TestFollowerReplaysThenFollows(t *testing.T) {
	noLeak(t)
	p := startPublisher(t)
	p.publish(storedBatch(1, 2), true)
	p.publish(storedBatch(3), true)
	p.publish(removedBatch(1), true)
	log := new(logtest.Buffer)
	cfg := p.config()
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	f, set := follow(t, cfg)
	awaitHeld(t, set, 2, 3)
	last := f.Status().LastEvent
	awaitStatus(t, f, func(s Status) bool { return s.Checks > 0 && s.State == StateLive })
	require.Equal(t, last, f.Status().LastEvent, "a check of a quiet publisher is no event")
	require.EqualValues(t, 1, f.Status().Replays, "nor a replay")
	p.publish(storedBatch(4), false)
	awaitHeld(t, set, 2, 3, 4)
	eventually(t, func() bool { return f.Status().Batches == 4 })
	s := f.Status()
	require.Equal(t, StateLive, s.State)
	require.False(t, s.Stale)
	require.True(t, s.Complete)
	require.EqualValues(t, 3, s.Blocks)
	require.EqualValues(t, 4, s.NextSeq)
	require.Equal(t, [3]int64{4, 1, 1}, [3]int64{s.Stored, s.Removed, s.Connects})
	require.Zero(t, s.Errors)
	require.True(t, s.LastEvent.After(last))
	f.Close()
	require.True(t, set.Stale())
	require.True(t, f.Status().Stale)
	require.Contains(t, log.String(), "the source is followed")
}

// askingSet counts how often Status does not tell yet why a testSet lacks blocks.
type askingSet struct {
	*testSet
	follower       atomic.Pointer[Follower]
	asked, unaware atomic.Int64
}

func (s *askingSet) ask(tells func(*Status) bool) {
	if f := s.follower.Load(); f != nil {
		s.asked.Add(1)
		if st := f.Status(); !tells(&st) {
			s.unaware.Add(1)
		}
	}
}

func (s *askingSet) SetStale(stale bool) {
	s.testSet.SetStale(stale)
	s.ask(func(st *Status) bool { return st.Stale || !stale })
}

func (s *askingSet) Clear() {
	s.testSet.Clear()
	s.ask(func(st *Status) bool { return !st.Complete })
}

// Who finds blocks gone finds in the status why, at once.
func TestStatusBeforeLoss(t *testing.T) {
	noLeak(t)
	p := startPublisher(t)
	set := &askingSet{testSet: newTestSet()}
	f := startFollower(t, p.config(), set)
	p.awaitSubscriber()
	p.publish(storedBatch(1), false)
	awaitStatus(t, f, func(s Status) bool { return s.Batches == 1 && !s.Stale && s.Complete })
	set.follower.Store(f)
	p.publish([]byte("no batch"), false)
	awaitStatus(t, f, func(s Status) bool { return s.Lost > 0 && s.Stale })
	require.GreaterOrEqual(t, set.asked.Load(), int64(2))
	require.Zero(t, set.unaware.Load())
}

// The log has a line for each change of the state, and a bounded number of lines.
func TestFollowerLogs(t *testing.T) {
	noLeak(t)
	p := startPublisher(t)
	log := new(logtest.Buffer)
	cfg := p.config()
	cfg.Name, cfg.Logger = "engine-0", slog.New(slog.NewTextHandler(log, nil))
	f, set := follow(t, cfg)
	p.awaitSubscriber()
	p.publish(storedBatch(1), false)
	awaitHeld(t, set, 1)
	p.publish(nil, true)
	p.publish(storedBatch(2), false)
	awaitHeld(t, set, 2)
	p.publish(batchOf("AllBlocksCleared"), false)
	eventually(t, func() bool { return f.Status().Complete })
	for dropped := range int64(2) { // is told once
		set.drop(5 + dropped)
		p.publish(storedBatch(3), false)
		awaitStatus(t, f, func(s Status) bool { return s.Dropped == 5+dropped && !s.Complete })
	}
	p.publish([]byte("garbage"), false)
	eventually(t, func() bool { return f.Status().Errors == 1 && !f.Status().Stale })
	f.Close()
	require.Contains(t, log.String(), "not a batch of KV events: batch: ") // the sentence whole
	var short []string
	for _, line := range log.Take() {
		require.Contains(t, line, "source=engine-0")
		_, line, _ = strings.Cut(line, " level=")
		line, args, _ := strings.Cut(line, " source=")
		if strings.Contains(args, " retry_in=") {
			line += " retry_in"
		}
		short = append(short, line)
	}
	require.Equal(t, []string{
		`INFO msg="events: the source is followed"`,
		`WARN msg="events: the source is stale"`, // a gap
		`INFO msg="events: the source is followed"`,
		`INFO msg="events: the source is complete again"`,
		`WARN msg="events: the source is incomplete"`,     // blocks were dropped
		`WARN msg="events: the source is stale" retry_in`, // garbage
		`INFO msg="events: the source is followed"`,
	}, short)

	require.Empty(t, log.Take()) // closing is no trouble
}

// However much is logged, the last line tells whether the source is followed.
func TestFollowerLogsAreBounded(t *testing.T) {
	log := new(logtest.Buffer)
	l := newSourceLog(&Config{Name: "engine-0", Endpoint: "tcp://127.0.0.1:5557", Logger: slog.New(slog.NewTextHandler(log, nil))})
	live, stale := &Status{Complete: true}, &Status{Stale: true}
	l.failure = "refused"
	for range 1000 { // an engine that is away for long
		l.changed(stale, "refused")
	}
	require.Len(t, log.Take(), 1)
	l.at = l.at.Add(-logRepeat)
	l.changed(stale, "refused")
	require.Len(t, log.Take(), 1)

	for i := range 1000 { // one whose errors differ
		l.failure = fmt.Sprint(i)
		l.changed(stale, "")
	}
	require.Len(t, log.Take(), logBurst-2)
	l.changed(live, "")
	require.Contains(t, log.String(), "the source is followed")
	require.Len(t, log.Take(), 1)

	// One that comes and goes. The end of what was left out is left out too.
	for range 1000 {
		l.changed(stale, "gap")
		l.changed(live, "")
	}
	require.Empty(t, log.Take())
	l.filled = l.filled.Add(-logEvery)
	l.changed(stale, "gap")
	l.changed(live, "")
	require.Len(t, log.Take(), 2)
}

// The replay socket has the batches of a gap. A number that was used up is not there: any block may have gone in its batch.
// A subscription takes effect unnoticed: a batch that is lost at the end is found by the check.
func TestFollowerGaps(t *testing.T) {
	noLeak(t)
	p := startPublisher(t)
	f, set := follow(t, p.config())
	p.awaitSubscriber()
	p.publish(storedBatch(1), false)
	awaitHeld(t, set, 1)
	p.publish(storedBatch(2), true)
	p.publish(removedBatch(1), true)
	p.publish(storedBatch(3), false)
	awaitHeld(t, set, 2, 3)
	awaitStatus(t, f, func(s Status) bool { return s.Complete && s.Gaps == 1 && s.Lost == 0 })
	p.publish(nil, true)
	p.publish(storedBatch(4), false)
	awaitHeld(t, set, 4)
	awaitStatus(t, f, func(s Status) bool { return !s.Complete && s.Gaps == 2 && s.Lost == 1 })
	require.Equal(t, "batch 5 came, not 4, and the replay socket does not have what lies between", f.Status().LastError)
	require.WithinDuration(t, time.Now(), f.Status().LastErrorTime, time.Minute)
	p.publish(batchOf("AllBlocksCleared"), true)
	p.publish(storedBatch(5), true)
	awaitHeld(t, set, 5)
	awaitStatus(t, f, func(s Status) bool { return s.Complete && s.Gaps == 2 })
}

// A publisher restarts, with its connections or without, as behind a proxy.
func TestFollowerNoticesRestart(t *testing.T) {
	noLeak(t)
	for name, isCut := range map[string]bool{"cut": true, "behind a proxy": false} {
		t.Run(name, func(t *testing.T) {
			p := startPublisher(t)
			cfg, log := p.config(), new(logtest.Buffer)
			cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
			f, set := follow(t, cfg)
			p.awaitSubscriber()
			p.publish(storedBatch(1), false)
			p.publish(storedBatch(2), false)
			awaitHeld(t, set, 1, 2)
			p.restart()
			if isCut {
				p.Cut()
				p.awaitSubscriber()
			}
			for hash := range uint64(3) {
				p.publish(storedBatch(100+hash), false)
			}
			awaitHeld(t, set, 100, 101, 102)
			awaitStatus(t, f, func(s Status) bool { return s.Complete && s.Restarts > 0 })
			for _, line := range log.Take() {
				if strings.Contains(line, errOtherPublisher.Error()) {
					require.Contains(t, line, "retry_in=0s", "the engine is there, so all is read at once")
				}
			}
		})
	}
}

// Batches of other topics are left out, even if the publisher sends them.
func TestFollowerTopic(t *testing.T) {
	noLeak(t)
	p := startPublisher(t)
	cfg := p.config()
	cfg.Replay, cfg.Topic = "", "kv@"
	f, set := follow(t, cfg)
	p.awaitSubscriber()
	for seq, topic := range []string{"kv", "other", "", "kv@engine-0", "kv@"} {
		p.SetTopic(topic)
		p.SendAs(uint64(seq), storedBatch(uint64(seq)))
	}
	awaitHeld(t, set, 3, 4)
	awaitStatus(t, f, func(s Status) bool { return s.Batches == 2 })
	require.Zero(t, p.NumReplays())
}

// While the replay socket does not answer, nothing counts as held.
func TestFollowerIsStaleWithoutItsReplay(t *testing.T) {
	noLeak(t)
	p := startPublisher(t)
	p.Mute(true)
	p.publish(storedBatch(1), true)
	cfg := p.config()
	cfg.Timeout = 200 * time.Millisecond
	f, set := follow(t, cfg)
	awaitStatus(t, f, func(s Status) bool { return s.Errors >= 3 && strings.Contains(s.LastError, "replay") })
	require.True(t, set.Stale())
	p.Mute(false)
	awaitHeld(t, set, 1)
}

// A source that binds takes one publisher at a time.
func TestFollowerBinds(t *testing.T) {
	noLeak(t)
	p := startPublisher(t)
	log := new(logtest.Buffer)
	f, set := follow(t, Config{Endpoint: "tcp://127.0.0.1:*", Bind: true, Replay: p.Replay, Logger: slog.New(slog.NewTextHandler(log, nil))})
	address := f.binding.listener.Addr().String()
	connect := func() (conns []net.Conn) {
		eventually(t, func() bool { // what comes in a pause is refused, and so is what follows one that is late
			conn, err := p.Connect(address)
			require.NoError(t, err)
			conns = append(conns, conn)
			time.Sleep(10 * time.Millisecond)
			return p.HasSubscriber()
		})
		return conns
	}
	first := connect()
	p.publish(storedBatch(1), false)
	awaitHeld(t, set, 1)

	second, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer second.Close()
	_ = second.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err = second.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it is not closed")
	status := f.Status()
	require.Contains(t, status.LastError, "refused another publisher, from "+second.LocalAddr().String())
	require.WithinDuration(t, time.Now(), status.LastErrorTime, time.Minute)
	require.Positive(t, status.Errors)
	require.Contains(t, strings.Join(log.Take(), ""), "refused another publisher")

	p.publish(storedBatch(2), false)
	awaitHeld(t, set, 1, 2)
	for _, conn := range first {
		_ = conn.Close()
	}
	eventually(t, set.Stale)
	p.publish(storedBatch(3), true)
	connect()
	awaitHeld(t, set, 1, 2, 3)
}

// failingHolder fails while fail is set.
type failingHolder struct {
	*testSet
	fail, panics atomic.Bool
}

func (h *failingHolder) Store(b *Blocks, held []bool) error {
	if h.panics.Load() {
		panic("odd block")
	}
	if h.fail.Load() {
		return errors.New("out of order")
	}
	return h.testSet.Store(b, held)
}

// A Holder may fail.
func TestFollowerSurvivesItsHolder(t *testing.T) {
	noLeak(t)
	p := startPublisher(t)
	h := &failingHolder{testSet: newTestSet()}
	f := startFollower(t, p.config(), h)
	p.awaitSubscriber()
	p.publish(storedBatch(1), false)
	awaitHeld(t, h.testSet, 1)
	h.fail.Store(true)
	p.publish(storedBatch(2), false)
	awaitStatus(t, f, func(s Status) bool { return s.Lost == 1 && strings.Contains(s.LastError, "out of order") })
	require.Zero(t, h.Len())
	h.fail.Store(false)
	p.publish(storedBatch(3), true)
	awaitHeld(t, h.testSet, 3)
	awaitStatus(t, f, func(s Status) bool { return !s.Complete })

	h.panics.Store(true)
	p.publish(storedBatch(4), true)
	awaitStatus(t, f, func(s Status) bool {
		return s.Lost > 1 && strings.Contains(s.LastError, "a fault of hitline, please report it: odd block")
	})
	require.Zero(t, h.Len())
	h.panics.Store(false)
	p.publish(storedBatch(5), true)
	awaitHeld(t, h.testSet, 5)
}

// A publisher that closes each connection at once is no busy loop, and what fails at one moment connects at many.
func TestPacer(t *testing.T) {
	for name, test := range map[string]struct {
		atOnce bool
		lasts  time.Duration // what follows each pause
		want   []int         // ms in the middle
	}{
		"closed at once":      {false, 0, []int{100, 200, 400, 800, 1600, 3200, 5000, 5000}},
		"closed after long":   {false, 2 * maxBackOff, []int{100, 100, 100}},
		"gaps all the time":   {true, 0, []int{0, 100, 200, 400}},
		"a gap now and again": {true, 2 * maxBackOff, []int{0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPacer(test.atOnce)
			for _, ms := range test.want {
				middle, pause := time.Duration(ms)*time.Millisecond, p.next()
				require.InDelta(t, middle, pause, float64(middle/2+1))
				p.last = p.last.Add(-pause - test.lasts) // time passes
			}
		})
	}
	first := map[time.Duration]bool{}
	for range 100 {
		first[newPacer(false).next()] = true
	}
	require.Greater(t, len(first), 50)
}

func TestFollowerCloses(t *testing.T) {
	noLeak(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	p := startPublisher(t)
	p.Mute(true)
	for name, cfg := range map[string]Config{
		"in a handshake":         {Endpoint: "tcp://" + silent.Addr().String()},
		"waiting to be accepted": {Endpoint: "tcp://127.0.0.1:*", Bind: true},
		"in a replay":            p.config(),
		"nobody there":           {Endpoint: "tcp://127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := follow(t, cfg)
			if name == "in a replay" {
				eventually(t, func() bool { return p.NumReplays() > 0 })
			}
			start := time.Now()
			f.Close()
			f.Close()
			require.Less(t, time.Since(start), DefaultTimeout)
		})
	}
}

// What people cannot read or tell apart is no name, nor is what fills their lines.
func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "é/b c": true, strings.Repeat("a", 256): true,
		"": false, "a\nb": false, "a\u200bb": false, "a\u202eb": false, "\xff": false, strings.Repeat("a", 257): false,
	} {
		require.Equal(t, want, IsName(name), "%q", name)
	}
}

func TestFollowRefuses(t *testing.T) {
	for _, cfg := range []Config{
		{},
		{Endpoint: "tcp://*:1"},
		{Endpoint: "udp://*:1", Bind: true},
		{Endpoint: "tcp://a:1", Replay: "a:1"},
		{Endpoint: "tcp://a:1", Name: "a\nb"},
		{Endpoint: "tcp://a:1", MaxPayload: -1},
		{Endpoint: "tcp://a:1", Timeout: -1},
	} {
		_, err := Follow(cfg, newTestSet())
		require.ErrorIs(t, err, fielderror.ErrConfig, "%+v", cfg)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = Follow(Config{Endpoint: "tcp://" + l.Addr().String(), Bind: true}, newTestSet())
	require.ErrorIs(t, err, syscall.EADDRINUSE)
}

// The file of a socket that a killed process has left does not keep a source from binding; one
// that is in use does, and so does another file.
func TestFollowerBindsDeadSocket(t *testing.T) {
	noLeak(t)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	cfg := Config{Endpoint: "ipc://" + path, Bind: true}
	_, err = Follow(cfg, newTestSet())
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	require.FileExists(t, path)
	startFollower(t, cfg, newTestSet()).Close()

	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = Follow(cfg, newTestSet())
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.FileExists(t, path)
}
