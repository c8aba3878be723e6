// Package holders compares package fleet with other indexes (programs of bench/rivals): which holders
// have the longest prefix of a prompt. Each is asked in its own process, on the same core, in turn,
// in the same run. No promise: it is internal to this module, and its API may change in any release.
//
// # The blocks
//
// Prompts of each length ([Options].Hashes) are three segments: a system prompt, an eighth of it;
// a prefix that goes on from there, such as a document or the tools of an agent, three eighths;
// and a tail of its own. There are four system prompts and a prefix for eight prompts. Prompts
// choose their prefix by Zipf's law, and a holder that has it already four times of five, as a
// router would have it. So all holders have the system prompts, many the popular prefixes, and
// one each tail. Prompts are drawn until there are as many different blocks as were asked for.
// As many prompts as there are holders are stored at a time, in pieces of 256 blocks, and the
// last 32 blocks of a tail, the engine's output, one by one.
//
// # The queries
//
//   - [Hit]: a stored prompt. All its blocks hit, at one holder; the others have a part.
//   - [Miss]: the same, but from some block on nobody has it.
//   - [Shared]: a prompt that all holders have whole. It is stored after memory is measured.
//
// # What is measured
//
//   - [Fleet]: fleet.Fleet.Lookup, which tells the prefix of each holder, given the 8 bytes of each hash
//     that are in events.
//   - [Fleet32]: the same, given hashes of 32 bytes, as an engine makes them.
//   - llm-d's Lookup and, over its answer, the scorer, which tells the same. It forgets holders beyond ten
//     a block by default; here a block may have all of them.
//   - Dynamo's find_matches over its compressed radix tree, which tells the same. Its events need the block
//     before the first one, which the others do not.
//
// Each answer must be what the stores say. A round asks all sides each query, one after the other, in an
// order that is the reverse one at every second query, and so on until its time is up. A time is the
// clock's over one lookup, which finds in no cache what the others have displaced. Figures are medians of
// the rounds, with the least and the largest. Memory is the growth of what is allocated, of Go after a
// garbage collection, and of fleet also what is mapped outside the Go heap.
package holders
