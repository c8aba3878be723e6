// Package blocking is a client's socket on which a bench loses as little time of
// its own as it can: raw system calls that block the thread. It works on Linux
// only.
package wire
