package blockhash

import (
	"slices"

	"github.com/hitline/hitline/coordinator"
)

// rules are what differs between releases of vLLM.
type rules struct {
	fixedSeed bool // a seed for the cryptographic algorithms if PYTHONHASHSEED is not set
	tagged    bool // extra keys are tuples that begin with their kind
	lookahead bool // hashes may cover tokens behind the block
}

// changes has the releases whose hashes differ from those of the release before, oldest first.
var changes = []struct {
	since string
	rules rules
}{
	{"0.24.0", rules{}},
	{"0.29.0", rules{fixedSeed: true}},
	{"0.31.0", rules{fixedSeed: true, tagged: true}},
	{"0.33.0", rules{fixedSeed: true, tagged: true, lookahead: true}},
}

// rulesOf returns the rules of a release, of the newest one for an empty name.
func rulesOf(release string) (rules, error) {
	if release == "" {
		release = coordinator.NewestRelease()
	}
	if err := coordinator.CheckRelease(release); err != nil {
		return rules{}, badField("release", "%w", err)
	}
	known := coordinator.Releases()
	at, found := slices.Index(known, release), rules{}
	for _, change := range changes {
		if slices.Index(known, change.since) <= at {
			found = change.rules
		}
	}
	return found, nil
}
