package measure

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChecks(t *testing.T) {
	for _, err := range []error{
		CheckRange("rounds", 1, 1, 5), CheckRange("rounds", 5, 1, 5), CheckRange("requests a second", 0.5, 0, 1),
		CheckList("hashes", []int{64}, 1, 64), CheckList("hashes", []int{64, 1}, 1, 64),
		CheckShare("that hits", 0), CheckShare("that hits", 1), CheckPositive("a timeout", 1), CheckOneOf("a way", "b", "a", "b"),
	} {
		require.NoError(t, err)
	}
	for want, err := range map[string]error{
		"bad options: 0 rounds; give 1 to 5":                                CheckRange("rounds", 0, 1, 5),
		"bad options: 6 rounds; give 1 to 5":                                CheckRange("rounds", 6, 1, 5),
		"bad options: NaN requests a second; give 0 to 1":                   CheckRange("requests a second", math.NaN(), 0, 1),
		"bad options: no number of hashes":                                  CheckList("hashes", nil, 1, 9),
		"bad options: 10 hashes; give 1 to 9":                               CheckList("hashes", []int{5, 10}, 1, 9),
		"bad options: hashes [5 6 5]: one of them is there twice":           CheckList("hashes", []int{5, 6, 5}, 1, 9),
		"bad options: a share of NaN that hits; give 0 to 1":                CheckShare("that hits", math.NaN()),
		"bad options: a share of 1.5 that hits; give 0 to 1":                CheckShare("that hits", 1.5),
		"bad options: a timeout of 0s; it must be positive":                 CheckPositive("a timeout", 0),
		"bad options: a timeout of -1s; it must be positive":                CheckPositive("a timeout", -time.Second),
		`bad options: a way "c"; there are a, b`:                            CheckOneOf("a way", "c", "a", "b"),
		"bad options: client on core 1, servers on core 1; give two others": BadOptions("client on core %d, servers on core %d; give two others", 1, 1),
	} {
		require.ErrorIs(t, err, ErrOptions)
		assert.EqualError(t, err, want)
	}
}
