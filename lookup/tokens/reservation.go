package tokens

// reservation is memory for things of a kind, reserveStep of them at a time. It keeps what it has.
type reservation struct {
	reserve func(bytes int) bool
	each    int // bytes
	max     int // things
	has     int // of them
}

const reserveStep = 64

// reserveFor reports whether there may be n things.
func (r *reservation) reserveFor(n int) bool {
	if n > r.has && r.has < r.max && r.reserve(reserveStep*r.each) {
		r.has += reserveStep
	}
	return n <= r.has
}

// bytes returns how many bytes are reserved.
func (r *reservation) bytes() int { return r.has * r.each }
