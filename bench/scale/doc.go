// Package scale measures what hitline answers in a second over rising numbers of
// connections and of event loops. It runs on Linux only.
//
// # Glossary
//
//   - point: one closed-loop run of package load, at one number of connections, against
//     a server of one number of loops.
//   - peak: the best point of a number of loops.
//   - speed-up: a peak over that of the fewest loops; efficiency: that over how many
//     times as many loops.
//   - slope: the speed-up that a further loop adds, fitted over all peaks.
//
// # Cores
//
// The server has half of the cores and the client the other half, split so that
// the threads of a core are on one side. With fewer than four cores they share all,
// and what more loops add then says nothing: there is no slope.
package scale
