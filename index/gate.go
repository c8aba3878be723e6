package index

// gate is the lock between readers and the moment in which a writer shows them
// what has changed. Both hold it for microseconds only, and putting a goroutine to
// sleep and waking it takes ten times as long, in which a RWMutex that a writer
// waits for admits no reader. So both try for a while first: a writer slips in
// between readers, and only waits in line when they leave no gap.
type gate struct{ rwMutex }

const (
	// gateTries is how often the lock is tried before waiting in line, some 20
	// microseconds in all.
	gateTries = 500
	// gatePause is how many steps of nothing lie between two tries, some 40
	// nanoseconds.
	gatePause = 100
)

// RLock locks for reading.
func (g *gate) RLock() {
	for range gateTries {
		if g.TryRLock() {
			return
		}
		pause()
	}
	g.rwMutex.RLock()
}

// Lock locks for writing.
func (g *gate) Lock() {
	for range gateTries {
		if g.TryLock() {
			return
		}
		pause()
	}
	g.rwMutex.Lock()
}

//go:noinline
func pause() {
	for range gatePause {
		continue
	}
}
