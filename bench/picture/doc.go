// Package picture draws the reports of hitbench as SVG, for light and for dark pages. No promise:
// it is internal to this module, and its API may change in any release.
//
// # Glossary
//
//   - kind: what is drawn, such as the latency by percentile.
//   - source: the one line of JSON that a command printed with --json, by a name.
//   - figure: a title, a description and one or more panels above each other.
//   - panel: the curves that share two axes.
//   - label: the name of a curve, right of the panel at the height of the curve's end.
//   - theme: the colours of a figure; each is drawn in a light and a dark one.
//
// # One picture
//
//	sources → kind (decodes, checks) → figure → layout → theme → SVG
//
// # Invariants
//
//   - Colour is never the only difference: curves differ in marker too, which their labels repeat.
//   - Labels do not overlap. A panel is as high as its labels need.
//   - A report of a run that failed or was cut short, or with wrong answers, is not drawn.
//   - Equal sources give equal bytes.
package picture
