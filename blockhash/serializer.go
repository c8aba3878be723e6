package blockhash

// serializer writes the tuple that a block is hashed as. Calls follow the order of the
// elements. The length of a tuple is passed before its elements and behind them.
type serializer interface {
	begin()
	beginTuple(n int)
	endTuple(n int)
	int(v int64)
	ints(v []int64)
	bytes(b []byte)
	// text writes a text of a request, constant one of the engine's code.
	text(s string)
	constant(s string)
	none()
	// finish returns what was written, valid until the next begin.
	finish() []byte
}
