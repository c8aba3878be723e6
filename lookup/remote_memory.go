package lookup

import "sync/atomic"

// A small request needs at most a 4,096th of MaxBytes of hashes, as it is configured: by default
// 64 KiB, which is 2,048 hashes of 32 bytes. The quarter of MaxBytes that larger requests leave
// then takes 1,024 of the largest small ones, as many as Queue.
const smallRequestPart = 4096

// hashMemory is the memory of the hashes of all requests, in bytes.
type hashMemory struct {
	all   atomic.Int64
	large atomic.Int64 // the part of requests that are not small
}

// IsSmall reports whether a request that needs this many bytes of hashes is a small one. Small
// requests have a part of MaxBytes, of the workers and of the processors that larger ones do
// not use.
func (b *SharedBackend) IsSmall(neededBytes int) bool {
	return int64(neededBytes) <= b.cfg.smallBytes
}

// Reserve adds n bytes of hashes to those held. They belong to a request that needs
// neededBytes in all. It returns false and adds nothing if MaxBytes is exceeded, if large
// requests would hold more than three quarters of it, or if RemoteConfig.Memory refuses. The
// caller returns the bytes by Free.
func (b *SharedBackend) Reserve(n, neededBytes int) bool {
	size, small := int64(n), b.IsSmall(neededBytes)
	if !small && !addWithin(&b.hashes.large, size, b.cfg.MaxBytes-b.cfg.MaxBytes/4) {
		return false
	}
	if addWithin(&b.hashes.all, size, b.cfg.MaxBytes) {
		if b.cfg.Memory.Reserve(size) {
			return true
		}
		b.hashes.all.Add(-size)
	}
	if !small {
		b.hashes.large.Add(-size)
	}
	return false
}

// Free subtracts n bytes that were reserved for a request that needs neededBytes.
func (b *SharedBackend) Free(n, neededBytes int) {
	b.hashes.all.Add(int64(-n))
	if !b.IsSmall(neededBytes) {
		b.hashes.large.Add(int64(-n))
	}
	b.cfg.Memory.Free(int64(n))
}

// addWithin adds n to sum. It returns false and adds nothing if most would be exceeded.
func addWithin(sum *atomic.Int64, n, most int64) bool {
	if sum.Add(n) <= most {
		return true
	}
	sum.Add(-n)
	return false
}
