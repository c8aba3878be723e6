// Package floor measures the round trip of a lookup at hitline beside the least
// that any server on a socket needs for it: a blocking raw-socket server that
// reads the same bytes and answers 4. It runs on Linux only.
//
// # Who runs where
//
// The client is this process, pinned to one core; both servers are processes of
// their own, pinned to another, because placement alone moves the ratio by a
// factor of ten. [Run] starts them and they are gone when it returns; should
// this process be killed, the kernel kills them. While one server is asked, the
// other is blocked in the kernel.
//
// # What is asked
//
// The client stores chains of random hashes at hitline and rotates over all of
// them, in one shuffled order, at least [MinChains]. The bytes of a chain, once in
// the client's request and once in hitline's index, are counted against the
// last-level cache: together the chains exceed it, or [Options].MaxCache where the
// machine reports more, as virtual machines report their host's. One chain in
// ten is asked for with a hash that was not stored, at a random block. All
// requests have the same size and both servers get the same ones, at different
// times.
//
// # How it is measured
//
// Both servers are asked by the same code: one write, then reads of the answer,
// on a blocking socket. It makes raw system calls, without telling the Go
// scheduler, and allocates nothing, so that little of the client is in the
// figures: what the client takes would bring the ratio nearer to 1.
//
// A round is made of small batches that go to the servers in turn, and the one that
// begins changes from batch to batch. Percentiles are those of the round trips of all
// rounds. Within each round hitline's percentiles are divided by the floor server's,
// and of these ratios the median over the rounds counts, with the least and the
// largest. The first round is preceded by one that does not count. Every answer is
// checked. One seed makes the same requests in the same order.
//
// With [Options].Pipeline, further rounds keep so many requests under way and
// measure requests a second. As many requests as were answered by one read are
// written with one call. The floor server, too, answers all that one read brought
// with one write.
package floor
