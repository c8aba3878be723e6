// Package hicache asks the Mooncake store of SGLang engines how much of a prompt it can load.
//
// SGLang (0.5.23 on) tells routers the keys of its store: GET /get_hicache_l3_cache_layout. A key is the prefix and
// "_", if there is a prefix, the hash of a page in hex, and a suffix. A page has objects in several pools. Of a pool
// with the policy all_pages every page must be there, of one with trailing_pages the last pages before the hit's end.
//
// No promise: it is internal to this module, and its API may change in any release.
package hicache
