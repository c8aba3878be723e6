// Package blockhash computes the block hashes of prompts as engines do, from token ids. A router
// that has the tokens of a prompt can so look its blocks up in an index that is filled by engines'
// KV events, without asking an engine. Programs are promised all of it. Hashes of a release that is
// known stay as they are: they are the engine's.
//
// A [VLLM] or [SGLang] is made once for its configuration. Its methods append to the caller's
// buffer, keep nothing of their arguments, and allocate nothing once that buffer and their own
// are large enough. They are not safe for concurrent use: use a Clone in each goroutine.
//
// # Glossary
//
//   - Block: BlockSize consecutive tokens of a prompt. Only whole blocks have hashes. SGLang
//     says page.
//   - Parent: the hash of the block before. It makes a hash name all tokens up to the block's
//     end.
//   - First parent: what stands for the parent of the first block. vLLM's NONE_HASH.
//   - Extra keys: what a block depends on besides its tokens, for example a LoRA adapter.
//   - Short hash: the 64 bits of a hash that events have by default.
//
// # vLLM
//
// A block is hashed as the Python tuple
//
//	(parent bytes, (token, token, …), extra keys or None)
//
// which is written by pickle (sha256, xxhash) or by cbor2 in canonical form (sha256_cbor,
// xxhash_cbor), and then hashed by SHA-256 (32 bytes) or 128-bit XXH3 (16 bytes, big-endian).
// The first parent is the hash of a text alone, the seed, by the same function.
//
//	releases        seed if PYTHONHASHSEED is not set     extra keys
//	0.24.0-0.28.0   none: 32 random bytes                 untagged
//	0.29.0-0.30.0   "vllm-none-hash"; random for xxhash   untagged
//	0.31.0-0.32.0   as above                              tagged
//	since 0.33.0    as above                              tagged, lookahead tokens
//
// PYTHONHASHSEED wins where it is set. With a random seed NewVLLM fails: the hashes cannot be
// known. Extra keys are a tuple, in this order:
//
//	LoRA            untagged: name                 tagged: ("lora", name, path)
//	each item       (identifier, offset)           ("mm", identifier, offset)
//	cache salt      salt, first block only         ("cache_salt", salt)
//	prompt embeds   SHA-256 of the block's rows    ("prompt_embeds", SHA-256)
//
// The items are the multi-modal ones with a token in the block. The offset is relative to the
// block's first token, and negative for an item that began before it. Where items overlap they
// are found as by vLLM's search: blocks after the last item have none, though a longer one
// before it may not be over. With n lookahead tokens a block also depends on the n tokens
// after it. It is hashed once they exist, its items and rows are those up to their end, and
// the extra keys become (extra keys or None, token, …).
//
// The rules are those of vllm/v1/core/kv_cache_utils.py (init_none_hash,
// generate_block_hash_extra_keys, get_request_block_hasher) and vllm/utils/hashing.py.
//
// Pickle writes an object that it has seen before as a reference, and it compares objects, not
// values. A request reaches the engine's core as a message, so that equal texts in it are
// different objects, except empty ones and those of one Latin-1 character, which CPython has
// once. The tags are constants, one object each. This is what is reproduced. It differs from
// an engine whose core runs in the process of its caller, if the caller gives the same text
// object for two items of one block.
//
// An engine up to 0.30 that completes a block with generated tokens looks only at the last
// item of the prompt. Such a block has another hash there if an earlier item ends in it. A
// prompt with the same tokens does not hit that block in the engine either.
//
// # Groups with larger blocks
//
// An engine hashes in blocks of hash_block_size tokens, which is BlockSize here. It is the
// greatest common divisor of the groups' block sizes, unless configured; with decode-context
// parallelism these are multiplied by its size. A group with larger blocks keys each by its
// last hash, because that names all tokens before it. With blocks of 16 for the hashes and of
// 64 in a group, hashes 3, 7, 11, … are those of the group: see coordinator.KeyIndex.
//
// # SGLang
//
// A page is hashed by SHA-256 over
//
//	[digest of the page before] [0xff, only for wide pages] token token …
//
// Tokens are 4 bytes little-endian, or 8 bytes in a wide page, which has a token of over 32
// bits. With bigrams, for EAGLE, each token is written together with the next one. The
// short hash is the first 8 bytes of the digest, big-endian; events have it as a signed
// number. A digest stands before the first page if the request has a namespace:
//
//	events    SHA-256 of "sglang-cache-salt-v1\0" and the salt; the extra key does not count
//	storage   SHA-256 of "sglang-cache-namespace-v1", extra key, salt, both with their lengths
//
// In events the short hash of a request with a namespace may be hashed once more: with the
// format "dynamo" always, otherwise if its extra key belongs to a LoRA adapter with a name.
// See Namespace.
//
// The rules are those of sglang/srt/mem_cache/utils.py, events.py and
// cpp_utils/hash_binding.cpp, and of sglang/srt/disaggregation/kv_events.py in 0.5.23. Tokens
// of up to 32 bits without namespace have the same hashes from 0.5.10 on.
package blockhash
