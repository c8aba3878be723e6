package bufpool

// A few arrays above maxPooled are kept in a list. Unlike those of a pool they survive garbage
// collections. Together they take at most 32 MiB, until the process ends. A lookup of a long
// prompt over a store needs such an array. If each lookup allocated 2 MiB, the garbage collector
// would run about once a lookup, and the slowest lookups would be slower.
const (
	maxKept = 8 << 20 // bytes of one array: 262,144 hashes of 32 bytes
	numKept = 4       // arrays
)

// keptArrays is the list. Its arrays belong to nobody.
var keptArrays = make(chan []byte, numKept)

// GetFor returns an empty buffer for up to n bytes, which belongs to the caller until Release.
// For n of 1 to 8 MiB it uses a kept array of at least n bytes, if there is one. Otherwise it is
// Get, but not with an array of more than four times n bytes: nothing is allocated for bytes that have not arrived.
func GetFor(n int) *Buffer {
	if n <= maxPooled || n > maxKept || Debug {
		b := Get()
		if cap(b.B) <= 4*n {
			return b
		}
		b.Release()
		return new(Buffer)
	}
	for range numKept { // an array that is too short goes to the end of the list
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

// keep adds an array to the list, unless it is above maxKept. If the list is full, the larger of
// the array and the list's first one stays. The caller must not use the array afterwards.
func keep(array []byte) {
	if cap(array) > maxKept {
		return
	}
	select {
	case keptArrays <- array[:0]:
		return
	default:
	}
	select {
	case first := <-keptArrays:
		if cap(first) > cap(array) {
			array = first
		}
	default:
	}
	select {
	case keptArrays <- array[:0]:
	default: // others were faster
	}
}
