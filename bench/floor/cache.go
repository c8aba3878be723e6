package floor

import (
	"io/fs"
	"strconv"
	"strings"
)

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
