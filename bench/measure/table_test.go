package measure

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	var table Table
	table.Line("rounds", "%d", 3)
	table.Heads("rival", "µs", "entries")
	table.Row("hitline", 9.5, 1_234_567)
	table.Row("redis", "10", int64(999))
	table.Text("")
	table.Heads("rate", "p50 us")
	table.Row("300", "47.2")
	table.Row("12000", "1")
	var text strings.Builder
	require.NoError(t, table.Write(&text))
	assert.Equal(t, `rounds       3
rival     µs    entries
hitline  9.5  1,234,567
redis     10        999

 rate  p50 us
  300    47.2
12000       1
`, text.String(), "names to the left, numbers to the right")
}
