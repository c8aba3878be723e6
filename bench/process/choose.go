package process

import (
	"fmt"

	"github.com/hitline/hitline/bench/measure"
)

// ChooseCores returns the cores of the client and of the servers, given as numbers
// among the allowed ones, from 0; nil if there is only one to choose from. An
// error wraps [measure.ErrOptions].
func ChooseCores(allowed []int, client, servers int) ([]int, error) {
	if len(allowed) < 2 {
		return nil, nil
	}
	if most := max(client, servers); most >= len(allowed) {
		return nil, fmt.Errorf("%w: core %d of %d; they count from 0", measure.ErrOptions, most, len(allowed))
	}
	return []int{allowed[client], allowed[servers]}, nil
}
