//go:build !linux

package index

// Elsewhere all memory comes from the Go heap.
func mapHuge(int) []byte { return nil }

func unmap([]byte) {}
