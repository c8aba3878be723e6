// Package redis is a backend over Redis or Valkey: one server or a cluster. It uses the driver
// go-redis. No promise: it is internal to this module, and its API may change in any release.
//
// # Keys
//
//	PREFIX@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@HASH
//
// Each block is a string key: the reference's key, as backend.Backend
// passes it. A key counts as present whoever wrote it. One server answers EXISTS of many
// keys with a count, which decides if all keys exist or none; mixed ranges are asked again
// in smaller ones. A cluster refuses a command with keys of several slots, so there each key
// is an EXISTS of its own, pipelined to all nodes in parallel. Blocks may have a time to
// live.
//
// In a cluster, braces in a name are a hash tag: the text between them alone chooses the
// node. With braces in the model name, the whole pool lies on one node.
//
// # Glossary
//
//   - block: one hash of one group on one rank.
//   - pool: the blocks whose keys begin with [Config.KeyPrefix].
//   - driver: go-redis, which has the connection pools and the cluster's slot table.
//
// # Permissions
//
// Exists needs EXISTS, and CLUSTER SLOTS in a cluster. Store and Evict use SET, PEXPIRE and
// UNLINK. Reset uses SCAN and UNLINK. Info uses PING and INFO. Sample uses SCAN. New connections use PING, and INFO to
// tell a process from the one before. While keys are asked for, INFO and DBSIZE tell a flush. Both do without them.
//
// # Errors
//
// Errors wrap the sentinels of package backend. They are one line and have no password. A
// change that fails for want of a permission, at a replica, or because the server is full or
// cannot save (OOM, MISCONF, NOREPLICAS), is backend.ErrReadOnly.
//
// # Connections
//
// New does not connect. Each connection is checked: a server that speaks TLS, HTTP or
// another protocol is reported as such. The driver allocates what a server announces. So all
// replies pass a replyLimit first, and a connection ends with the first one that exceeds a
// bound (reply_limit.go).
//
// A read returns when its context ends. The driver may still be in the call then: it keeps
// copies of the keys, and Close waits for it. A change returns when the driver does.
//
// Idle connections are looked at four times a second. When one has ended, the servers are asked for a sign of life: so
// the end of a server is noticed when nobody asks (watch.go).
package redis
