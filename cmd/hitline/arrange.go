package main

import "slices"

// matching assigns descriptions to groups, each at most once. -1 is none.
type matching struct {
	fits      func(g, described int) bool
	described []int // by group
	group     []int // by description
}

// arrange returns a description for each of n groups that it fits, or nil if there is no
// such assignment. A group keeps its own, if that fits, unless another needs it.
func arrange(n int, fits func(g, described int) bool) []int {
	m := matching{fits, slices.Repeat([]int{-1}, n), slices.Repeat([]int{-1}, n)}
	for g := range n {
		if fits(g, g) {
			m.described[g], m.group[g] = g, g
		}
	}
	for g := range n {
		if m.described[g] < 0 && !m.assign(g) {
			return nil
		}
	}
	return m.described
}

// assign finds a description for group g. It moves as few others as it can: the search
// for an augmenting path is breadth first.
func (m *matching) assign(g int) bool {
	from := map[int]int{} // description: the group that would get it
	for queue := []int{g}; len(queue) > 0; queue = queue[1:] {
		for d := range m.group {
			if _, seen := from[d]; seen || !m.fits(queue[0], d) {
				continue
			}
			from[d] = queue[0]
			if m.group[d] < 0 {
				m.augment(from, d)
				return true
			}
			queue = append(queue, m.group[d])
		}
	}
	return false
}

// augment moves the groups on a path that ends at description d.
func (m *matching) augment(from map[int]int, d int) {
	for d >= 0 {
		g := from[d]
		next := m.described[g]
		m.described[g], m.group[d] = d, g
		d = next
	}
}
