package diagnosis

import "slices"

// matching is a bipartite matching of groups and descriptions. -1 is unmatched.
type matching struct {
	fits          func(g, description int) bool
	descriptionOf []int // by group
	groupOf       []int // by description
}

// matchDescriptions returns a fitting description for each of n groups, every description
// once. It returns nil if there is no such matching. A group keeps its own description
// if that fits, unless another group needs it.
func matchDescriptions(n int, fits func(g, description int) bool) []int {
	m := matching{fits, slices.Repeat([]int{-1}, n), slices.Repeat([]int{-1}, n)}
	for g := range n {
		if fits(g, g) {
			m.descriptionOf[g], m.groupOf[g] = g, g
		}
	}
	for g := range n {
		if m.descriptionOf[g] < 0 && !m.match(g) {
			return nil
		}
	}
	return m.descriptionOf
}

// match matches group g. Its search for an augmenting path is breadth first, so it
// rematches as few other groups as possible.
func (m *matching) match(g int) bool {
	from := map[int]int{} // by description: the group that would get it
	for queue := []int{g}; len(queue) > 0; queue = queue[1:] {
		for d := range m.groupOf {
			if _, seen := from[d]; seen || !m.fits(queue[0], d) {
				continue
			}
			from[d] = queue[0]
			if m.groupOf[d] < 0 {
				m.augment(from, d)
				return true
			}
			queue = append(queue, m.groupOf[d])
		}
	}
	return false
}

// augment rematches the groups on the path that ends at description d.
func (m *matching) augment(from map[int]int, d int) {
	for d >= 0 {
		g := from[d]
		next := m.descriptionOf[g]
		m.descriptionOf[g], m.groupOf[d] = d, g
		d = next
	}
}
