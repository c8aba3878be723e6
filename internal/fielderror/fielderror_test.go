package fielderror

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBelow(t *testing.T) {
	inner := New([]string{"block_size", "kind"}, "%d is odd: %w", 3, io.EOF)
	require.EqualError(t, inner, "block_size: 3 is odd: EOF")
	err := fmt.Errorf("pool: %w", Below("groups[1]", inner))
	require.EqualError(t, err, "pool: groups[1].block_size: 3 is odd: EOF")
	require.ErrorIs(t, err, io.EOF)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, []string{"groups[1].block_size", "groups[1].kind"}, e.Fields)
	require.EqualError(t, Below("groups[1]", errors.New("none")), "groups[1]: none")
}
