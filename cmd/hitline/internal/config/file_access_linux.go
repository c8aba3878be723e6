package config

import "golang.org/x/sys/unix"

// isReadOnlyMemory reports whether a file is in a file system in memory that this process may not write to, as
// Kubernetes mounts Secrets.
func isReadOnlyMemory(path string) bool {
	var s unix.Statfs_t
	err := unix.Statfs(path, &s)
	return err == nil && isSecretMount(int64(s.Type), int64(s.Flags)) //nolint:unconvert // 32 bits on some machines
}

func isSecretMount(kind, flags int64) bool {
	return (kind == unix.TMPFS_MAGIC || kind == unix.RAMFS_MAGIC) && flags&unix.ST_RDONLY != 0
}
