package workload

// Model knows which prefixes have been stored over one connection: a trie whose
// nodes are numbered in the order of their creation, with the root as 0. The
// zero value is empty and ready. Not safe for concurrent use.
type Model struct {
	nodes map[edge]uint32 // written by add only
}

// edge leads from a node to the child that id names. The number is 32 bits wide
// to keep an entry at 24 bytes; 2^32 nodes would need over 100 GB first.
type edge struct {
	id     uint64
	parent uint32
}

// Known returns how many leading ids are stored, in ids.
func (m *Model) Known(ids []uint64) int {
	node := uint32(0)
	for i, id := range ids {
		child, ok := m.nodes[edge{id, node}]
		if !ok {
			return i
		}
		node = child
	}
	return len(ids)
}

// Add stores all of ids.
func (m *Model) Add(ids []uint64) {
	node := uint32(0)
	for _, id := range ids {
		node = m.child(node, id)
	}
}

// child returns the node that id leads to, and makes it if there is none.
func (m *Model) child(node uint32, id uint64) uint32 {
	if m.nodes == nil {
		m.nodes = make(map[edge]uint32)
	}
	at := edge{id, node}
	child, ok := m.nodes[at]
	if !ok {
		child = uint32(len(m.nodes)) + 1
		m.nodes[at] = child
	}
	return child
}
