package workload

const (
	// MinChains is the least number of chains, whatever their size.
	MinChains = 20
	// Multiple is what every number of chains is a multiple of, so that a tenth of them
	// is a whole number.
	Multiple = 10
)

// Chains returns the number of chains of so many hashes each: at least MinChains, with
// at least so many entries (hashes) together, and with more than so many bytes of
// hashes together.
func Chains(hashes, entries int, bytes int64) int {
	n := max(MinChains, (entries+hashes-1)/hashes, int(bytes/int64(HashLen*hashes))+1)
	return (n + Multiple - 1) / Multiple * Multiple
}
