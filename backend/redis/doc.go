// Package redis is a backend over a Redis or a Valkey: one server, or a cluster.
//
// # Layouts
//
// With LayoutKeys a block is a string key of its own, the reference's key as
// backend.Backend hands it over. Whatever has such a key counts as present,
// whoever wrote it. One server is asked by EXISTS of many keys a command, whose
// count settles all of them where all are there or none is; what is mixed is asked
// in smaller and smaller pieces. A cluster serves no command over several slots, so
// there each key is an EXISTS of its own, pipelined to each node in parallel. Blocks
// may have a time to live.
//
// With LayoutSet a block is a member of a set for each group and rank: the set's
// name is the key up to its last "@", and the member is the hash's bytes, not its
// hex text. That asks less of the server's memory and time. But a set lives on one
// node of a cluster, so a pool spreads over no more nodes than it has groups and
// ranks; no member has a time to live, and the server does not evict members either.
// It needs Redis 6.2, or any Valkey.
//
// In a cluster a name with braces in it, as a model's name may have, is placed by
// what is between them (a hash tag): then all of the pool is on one node.
//
// # What it may do
//
// A reader's ACL needs EXISTS or SMISMEMBER, and CLUSTER SLOTS in a cluster. Store
// and Evict use SET, PEXPIRE, UNLINK, SADD and SREM, Reset SCAN and UNLINK, and Info
// PING, INFO, DBSIZE, SCAN and SCARD. A store refused for want of a permission, by a
// replica, or by a server that is full or cannot save (OOM, MISCONF, NOREPLICAS), is
// backend.ErrReadOnly.
package redis
