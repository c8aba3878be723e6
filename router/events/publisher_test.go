package events

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/hitline/hitline/internal/eventstest"
)

// testPublisher publishes batches on loopback.
type testPublisher struct {
	*eventstest.Publisher
	t testing.TB
}

func startPublisher(t testing.TB) *testPublisher {
	t.Helper()
	return &testPublisher{eventstest.New(t), t}
}

// config returns a Config that follows p.
func (p *testPublisher) config() Config {
	return Config{Name: p.t.Name(), Endpoint: p.Endpoint, Replay: p.Replay, Timeout: time.Minute} // a busy machine is slow
}

// publish adds a batch to the replay buffer, and sends it unless lost is set.
func (p *testPublisher) publish(payload []byte, lost bool) { p.PublishPayload(lost, payload) }

func (p *testPublisher) restart() { p.Restart() }

// awaitSubscriber waits until there is one.
func (p *testPublisher) awaitSubscriber() {
	p.t.Helper()
	eventually(p.t, p.HasSubscriber)
}

// eventually waits until ok.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 30*time.Second, 2*time.Millisecond)
}

var batchClock struct {
	sync.Mutex
	now float64
}

// storedBatch is a batch that stores blocks in GPU, group 0.
func storedBatch(hashes ...uint64) []byte { return gpuEvent(false, hashes...) }

// gpuEvent is storedBatch with or without a parent.
func gpuEvent(root bool, hashes ...uint64) []byte {
	return batchOf("BlockStored", hashesField(hashes...), parentField(root), mediumField("GPU"), groupField(0))
}

func removedBatch(hashes ...uint64) []byte {
	return batchOf("BlockRemoved", hashesField(hashes...), mediumField("GPU"), groupField(0))
}

func batchOf(kind string, fields ...func([]byte) []byte) []byte {
	var events simEvents
	events.event(kind, fields...)
	return events.batch()
}

// batch returns a batch of the events, with a time of its own.
func (e *simEvents) batch() []byte {
	batchClock.Lock()
	defer batchClock.Unlock()
	batchClock.now++
	return e.batchAt(batchClock.now)
}

func (e *simEvents) batchAt(time float64) []byte {
	b := msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 3), time)
	b = append(msgp.AppendArrayHeader(b, uint32(e.n)), e.b...)
	return msgp.AppendInt(b, 0)
}
