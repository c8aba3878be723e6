// Package snapshot keeps the memory indexes of a server in a file, so that a restart does not begin
// with empty ones. No promise: it is internal to this module, and its API may change in any
// release.
//
// # Glossary
//
//   - snapshot: the file, and the act of writing it.
//   - dump: the records of one index (index.DumpRecord), in the order of its log.
//
// # Files
//
//	format.go  what the file holds, in the encoding of package parts, and the bytes of a record
//	writer.go  writes a snapshot; reader.go reads one
//	file.go    the file on disk: temporary names, rename, what is left behind; lock.go who else writes it
//	load.go    from a file into the indexes; inspect.go what a file holds
//	saver.go   writes a snapshot each interval, and the last one; status.go what it tells
//
// docs/operations.md#snapshots says when a snapshot is safe to load.
package snapshot
