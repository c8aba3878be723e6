package index

import "sync"

// mutex is a lock whose holds a test build records, see holds_on.go.
type mutex struct {
	sync.Mutex
	holds
}

func (m *mutex) Lock() {
	m.Mutex.Lock()
	m.begin()
}

func (m *mutex) TryLock() bool {
	ok := m.Mutex.TryLock()
	if ok {
		m.begin()
	}
	return ok
}

func (m *mutex) Unlock() {
	m.end()
	m.Mutex.Unlock()
}
