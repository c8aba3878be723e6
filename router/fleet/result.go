package fleet

// ID names a holder: an engine, which is what a router sends requests to, and one of its
// data-parallel ranks.
type ID struct {
	Engine string `json:"instance_id"`
	Rank   int    `json:"dp_rank"`
}

// MaxRank bounds data-parallel ranks: engines have some hundreds.
const MaxRank = 1<<16 - 1

// Predicted is the medium of predicted blocks in a Result.
const Predicted = "predicted"

// Result is the answer to a query. It is reused by the next one: nothing is allocated in the steady state.
// A Result belongs to one goroutine at a time.
type Result struct {
	// Holders are those that hold a prefix, the longest first, then by Engine and Rank. Stale ones hold
	// nothing but what is predicted. They are valid until the next query with this Result.
	Holders []Prefix

	media []MediumPrefix // of all Holders
	query Query          // of Lookup
}

// Prefix is what one holder has of a prompt.
type Prefix struct {
	ID
	Tokens int64 // longest prefix in all its media together
	// Media has the longest prefix that one medium alone has, in the order of their names. Those that have
	// none are left out.
	Media []MediumPrefix
}

// MediumPrefix is the longest prefix in one medium: GPU, CPU and so on, as engines name them, or Predicted.
type MediumPrefix struct {
	Medium string
	Tokens int64
}
