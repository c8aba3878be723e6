package measure

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Report is what a command has measured. Its JSON is that of its fields.
type Report interface {
	// WriteTable writes the report for people.
	WriteTable(w io.Writer) error
}

// Table is a report for people: lines of a name and a value, and columns under heads. The
// zero value is empty and ready.
type Table struct {
	text strings.Builder
	rows [][]string // of the columns under way, the heads first
}

// Line adds a line of a name and a value.
func (t *Table) Line(name, format string, values ...any) {
	t.end()
	fmt.Fprintf(&t.text, "%-12s %s\n", name, fmt.Sprintf(format, values...))
}

// Text adds a line.
func (t *Table) Text(format string, values ...any) {
	t.end()
	fmt.Fprintf(&t.text, format+"\n", values...)
}

// Heads begins columns with these heads. Cells are to the right, but names in the first column to
// the left.
func (t *Table) Heads(heads ...string) {
	t.end()
	t.rows = append(t.rows, heads)
}

// Row adds a row of cells below the last heads: strings as they are, counts with a comma
// before every three digits, all else by %v.
func (t *Table) Row(cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		switch v := cell.(type) {
		case int:
			texts[i] = Grouped(int64(v))
		case int64:
			texts[i] = Grouped(v)
		default:
			texts[i] = fmt.Sprint(v)
		}
	}
	t.rows = append(t.rows, texts)
}

// end ends the columns under way.
func (t *Table) end() {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	if len(widths) > 0 && !startsWithDigit(t.rows[len(t.rows)-1][0]) {
		widths[0] = -widths[0] // pads behind
	}
	for _, row := range t.rows {
		for i, cell := range row {
			fmt.Fprintf(&t.text, "%s%*s", strings.Repeat("  ", min(i, 1)), widths[i], cell)
		}
		t.text.WriteByte('\n')
	}
	t.rows = nil
}

func startsWithDigit(cell string) bool { return cell != "" && cell[0] >= '0' && cell[0] <= '9' }

// Write writes the table.
func (t *Table) Write(w io.Writer) error {
	t.end()
	_, err := io.WriteString(w, t.text.String())
	return err
}

// Grouped formats n, which is not negative, with a comma before every three digits.
func Grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
