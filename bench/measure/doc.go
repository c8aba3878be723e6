// Package measure makes the figures of a report out of what was measured, and shows them. No
// promise: it is internal to this module, and its API may change in any release. All reports use
// these definitions, which docs/performance.md has for readers:
//
//   - The p-th percentile of figures is the least of them that p percent do not exceed
//     (nearest rank). The median is the 50th percentile.
//   - A percentile of latency is that of all requests of a measurement, over all its
//     rounds. What a round has one of, such as a rate or a ratio, counts by its median
//     over the rounds.
//   - The spread is the least and the largest of the rounds.
//
// It also has what all measurements share: the memory of this process, the setup that a report
// states, checks of options, and the errors that decide the exit code.
package measure
