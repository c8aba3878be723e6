package index

// mutex is a lock whose holds are recorded in builds with the tag hitline_holds, see holds_on.go.
type mutex struct {
	syncMutex
	holds
}

func (m *mutex) Lock() {
	m.syncMutex.Lock()
	m.begin()
}

func (m *mutex) TryLock() bool {
	ok := m.syncMutex.TryLock()
	if ok {
		m.begin()
	}
	return ok
}

func (m *mutex) Unlock() {
	m.end()
	m.syncMutex.Unlock()
}
