//go:build !linux

package config

// isReadOnlyMemory reports whether a file is in a file system as Kubernetes mounts Secrets.
func isReadOnlyMemory(string) bool { return false }
