// Package holders compares package fleet with the in-memory index of llm-d (bench/rivals/llmd):
// which holders have the longest prefix of a prompt. Both are asked in their processes, on the same
// core, or on those of [Options], in turn, in the same run. No promise: it is internal to this
// module, and its API may change in any release.
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
// fleet is given hashes of 32 bytes, as an engine makes them, of which it reads 8; llm-d 64-bit
// numbers.
//
// # What is measured
//
//   - [Fleet]: fleet.Fleet.Lookup, which tells the prefix of each holder.
//   - [LLMD]: llm-d's Lookup and, over its answer, the scorer, which tells the same.
//   - [LLMDLookup]: llm-d's Lookup alone: who has each block. It is less than fleet does.
//
// Each answer of fleet and of llm-d must be what the stores say. llm-d forgets holders beyond
// ten a block by default; here a block may have all of them.
//
// A round asks all sides each kind of queries, in an order that is the reverse one every second
// time. A time is the clock's over many lookups, garbage collection included. Figures are
// medians of the rounds, with the least and the largest. Memory is the heap's growth after a
// garbage collection, and of fleet also what is mapped beside it.
package holders
