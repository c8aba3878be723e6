package blockhash

import (
	"github.com/hitline/hitline/coordinator"
)

// rules are what differs between releases of vLLM.
type rules struct {
	fixedSeed bool // a seed for the cryptographic algorithms if PYTHONHASHSEED is not set
	tagged    bool // extra keys are tuples that begin with their kind
	lookahead bool // hashes may cover tokens behind the block
}

var (
	rules0240 = rules{}
	rules0290 = rules{fixedSeed: true}
	rules0310 = rules{fixedSeed: true, tagged: true}
	rules0330 = rules{fixedSeed: true, tagged: true, lookahead: true}
)

// releaseRules has the rules of each release that coordinator.Releases returns.
var releaseRules = map[string]rules{
	"0.24.0": rules0240,
	"0.25.0": rules0240,
	"0.25.1": rules0240,
	"0.26.0": rules0240,
	"0.27.0": rules0240,
	"0.27.1": rules0240,
	"0.28.0": rules0240,
	"0.29.0": rules0290,
	"0.30.0": rules0290,
	"0.31.0": rules0310,
	"0.32.0": rules0310,
	"0.33.0": rules0330,
}

// rulesOf returns the rules of a release, of the newest one for an empty name.
func rulesOf(release string) (rules, error) {
	if release == "" {
		release = coordinator.NewestRelease()
	}
	if err := coordinator.CheckRelease(release); err != nil {
		return rules{}, badField("release", "%w", err)
	}
	r, ok := releaseRules[release]
	if !ok {
		return rules{}, badField("release", "the block hashes of vLLM %s are not known", release)
	}
	return r, nil
}
