// Package scale measures what hitline answers in a second over rising numbers of
// connections and of event loops. It runs on Linux only.
//
// # Glossary
//
//   - point: closed-loop runs of package load at one number of connections, one a
//     round, against servers of one number of loops.
//   - peak: the best point of a number of loops.
//   - speed-up: a peak over that of the fewest loops; efficiency: that over how many
//     times as many loops.
//   - slope: the speed-up that a further loop adds, fitted over all peaks whose loops
//     have cores of their own.
//
// # Cores
//
// The server has half of the cores and the client the other half, split so that
// the threads of a core are on one side. The client serves its connections with as
// many threads as it has cores. A slope takes two cores for the server, and so three
// in all. Over a single core, which both share, no figure says much.
//
// # Rounds
//
// A round starts a server for each number of loops, side by side, and measures all
// points in an order that is drawn anew: what changes over time, such as the
// processor's clock, then does not look like an effect of loops or connections. The
// servers that are not asked meanwhile wait in the kernel. Each run begins with an
// empty index and stores its chains, so that its place in the order does not matter.
// One seed draws the same orders and makes the same requests.
//
// A rate counts by its median over the rounds, as do speed-up and slope, each of
// which is taken within a round; percentiles of latency are those of the lookups of
// all rounds, as package load counts them in a closed loop. The spread is the least and
// the largest of the rounds.
package scale
