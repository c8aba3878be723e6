package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/hitline/hitline/internal/printable"
)

// Table lines up cells. The zero value is empty and ready.
type Table struct{ lines strings.Builder }

// Row adds a row of cells: what fmt.Sprint has of each, as printable.Text writes it.
func (t *Table) Row(cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			t.lines.WriteByte('\t')
		}
		t.lines.WriteString(printable.Text(fmt.Sprint(cell)))
	}
	t.lines.WriteByte('\n')
}

// String returns the rows, without a newline after the last.
func (t *Table) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = w.Write([]byte(t.lines.String())) // a Builder never fails
	_ = w.Flush()
	return strings.TrimSuffix(b.String(), "\n")
}
