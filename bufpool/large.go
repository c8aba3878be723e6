package bufpool

// Arrays above maxPooled are kept in a list of a fixed length: unlike a pool's they stay over
// garbage collections, and what they take is bounded, by 32 MiB. Lookups of long prompts
// over a store need one each. If each allocated 2 MiB, the garbage collector would run once a
// lookup, which shows in the slowest of them.
const (
	maxKept = 8 << 20 // bytes of one array: 262,144 hashes of 32 bytes
	numKept = 4
)

var keptArrays = make(chan []byte, numKept)

// GetFor returns an empty buffer that is to have up to n bytes. If n is above 1 MiB, and an
// array of at least n bytes has been kept, B has it. Otherwise it is as that of Get, so that no
// memory is allocated for bytes that have not come.
func GetFor(n int) *Buffer {
	if n <= maxPooled || n > maxKept || Debug {
		return Get()
	}
	for range numKept { // a shorter one goes to the end of the list
		select {
		case array := <-keptArrays:
			if cap(array) >= n {
				return &Buffer{B: array}
			}
			keep(array)
		default:
			return Get()
		}
	}
	return Get()
}

// keep keeps an array above maxPooled, unless it is too large or enough are kept.
func keep(array []byte) {
	if cap(array) > maxKept {
		return
	}
	select {
	case keptArrays <- array[:0]:
	default:
	}
}
