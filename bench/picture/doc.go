// Package picture draws the reports of hitbench as SVG and PNG, for light and for
// dark pages.
//
// # Glossary
//
//   - kind: what is drawn, such as the latency by percentile.
//   - source: the one line of JSON that a command printed with --json, by a name.
//   - figure: a title, a legend and one or more panels above each other.
//   - panel: the curves that share two axes.
//   - theme: the colours of a figure; each is drawn in a light and a dark one.
//
// # One picture
//
//	sources → kind (decodes, checks) → figure → theme → SVG, PNG
//
// # Invariants
//
//   - Colour is never the only difference: curves differ in marker and dash too.
//   - Legend and titles have a strip of their own above the data.
//   - A report of a run that was cut short, or with wrong answers, is not drawn.
//   - Equal sources give equal bytes.
//
// Only this package knows the plotting library.
package picture
