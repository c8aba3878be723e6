package compare

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// bytesPerHash is about what a hash takes in the server of a rival, and in the requests
// that this process holds for it, in both ways.
var bytesPerHash = map[string]int64{
	Hitline: 100, HitlineZMTP: 150, GoNetMap: 120, GoZMQMap: 270, PythonBare: 300, Python: 500,
	RedisSMIsMember: 250, RedisExists: 350, ValkeySMIs: 250, ValkeyExists: 350, MooncakeExists: 350,
}

// exceeding returns which of the rivals to leave out, the largest first, so that the
// others fit in so many bytes with so many hashes. It never leaves hitline out.
func exceeding(rivals []string, hashes, available int64) []string {
	sorted := slices.SortedStableFunc(slices.Values(rivals), func(a, b string) int { return cmp.Compare(bytesPerHash[b], bytesPerHash[a]) })
	need := int64(0)
	for _, name := range rivals {
		need += bytesPerHash[name] * hashes
	}
	var out []string
	for _, name := range sorted {
		if need <= available {
			break
		}
		if name != Hitline && bytesPerHash[name] > 0 {
			out = append(out, name)
			need -= bytesPerHash[name] * hashes
		}
	}
	return out
}

// whyExceeding is what the report says of such a rival.
func whyExceeding(name string, chain int, hashes, available int64) string {
	return fmt.Sprintf("at %d hashes it needs about %d MiB of memory, of %d MiB for all; measure fewer rivals (--only), or rotate over less (--rotate)",
		chain, bytesPerHash[name]*hashes>>20, available>>20)
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
