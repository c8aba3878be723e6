package compare

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// exceeding returns which of the rivals to leave out, the largest first, so that the
// others fit in so many bytes with so many hashes. It never leaves hitline out.
func exceeding(rivals []string, hashes, available int64) []string {
	need := int64(0)
	for _, name := range rivals {
		need += rivalKinds[name].bytes * hashes
	}
	var out []string
	for _, name := range slices.SortedStableFunc(slices.Values(rivals), func(a, b string) int {
		return cmp.Compare(rivalKinds[b].bytes, rivalKinds[a].bytes)
	}) {
		if need > available && name != Hitline && rivalKinds[name].bytes > 0 {
			out = append(out, name)
			need -= rivalKinds[name].bytes * hashes
		}
	}
	return out
}

// whyExceeding is what the report says of such a rival.
func whyExceeding(name string, chain int, hashes, available int64) string {
	return fmt.Sprintf("at %d hashes it needs about %d MiB of memory, of %d MiB for all; measure fewer rivals (--only), or rotate over less (--rotate)",
		chain, rivalKinds[name].bytes*hashes>>20, available>>20)
}

// memoryShare is the part of the available memory that the rivals may take, in percent.
const memoryShare = 80

// availableMemory returns the bytes of memory that are available, from the text of
// Linux's meminfo; 0 if it does not say.
func availableMemory(meminfo []byte) int64 {
	_, rest, _ := bytes.Cut(meminfo, []byte("MemAvailable:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}

// lastLevelCache returns the size in bytes of the largest cache described below
// dir, the directory of a core's caches in sysfs; 0 if there is none.
func lastLevelCache(dir fs.FS) int64 {
	largest := int64(0)
	sizes, _ := fs.Glob(dir, "index*/size") // the pattern is good
	for _, name := range sizes {
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			continue
		}
		digits := strings.TrimRight(string(text), "KMG\n")
		shift := map[string]int{"": 0, "K": 10, "M": 20, "G": 30}[strings.TrimSpace(string(text[len(digits):]))]
		if n, err := strconv.ParseInt(digits, 10, 32); err == nil {
			largest = max(largest, n<<shift)
		}
	}
	return largest
}
