package tokens

// room reserves memory for things of a kind, roomStep of them at a time. It keeps what it has.
type room struct {
	reserve func(bytes int) bool
	each    int // bytes
	max     int // things
	has     int // of them
}

const roomStep = 64

// fits reports whether there may be n things.
func (r *room) fits(n int) bool {
	if n > r.has && r.has < r.max && r.reserve(roomStep*r.each) {
		r.has += roomStep
	}
	return n <= r.has
}

// bytes returns how many bytes are reserved.
func (r *room) bytes() int { return r.has * r.each }
