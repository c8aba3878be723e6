package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/lookup"
)

// A job that needs more bytes of hashes than it will ever be given is refused, and told how many it may need. Small ones may be
// served later.
func TestCheckNeeded(t *testing.T) {
	s := &shared{admission: admission.New(admissionBounds(lookup.NewMemoryAccount(1<<20), nil, 1))}
	require.NoError(t, s.checkNeeded(9<<14))
	var limit *limitError
	require.ErrorAs(t, s.checkNeeded(9<<14+1), &limit)
	require.EqualValues(t, 9<<14, limit.limit)
	require.Contains(t, limit.Error(), "limits.max_memory")
	s.admission = admission.New(admissionBounds(lookup.NewMemoryAccount(1000), nil, 1))
	require.NoError(t, s.checkNeeded(admission.SmallBytes))
}
