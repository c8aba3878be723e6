package router

// Agreement says whether the hashes in a source's events are those that the model's Hash makes of the tokens in them.
type Agreement string

const (
	// HashesUnchecked: no event had the first block of a prompt with its tokens yet, or the model has no Hash.
	HashesUnchecked Agreement = "unchecked"
	HashesAgree     Agreement = "agree"
	// HashesDiffer: the hashes of two different blocks were others. Tokens find nothing of this source.
	HashesDiffer Agreement = "differ"
)
