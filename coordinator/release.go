package coordinator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// release is a release of vLLM with the rules of its lookups. Releases with equal rules have
// equal answers.
type release struct {
	name  string
	rules rules
}

// defaultRelease is that of a pool without VLLM. It is vLLM ab7fcbdd5 of 2026-06-20, whose
// lookups are those of 0.24.0.
var defaultRelease = release{name: releaseChanges[0].name, rules: rulesOf20260620()}

// releases are the known releases of vLLM, oldest first.
var releases = func() []release {
	all, r := make([]release, len(releaseChanges)), defaultRelease.rules
	for i, row := range releaseChanges {
		if row.change != nil {
			row.change(&r)
		}
		all[i] = release{row.name, r}
	}
	return all
}()

// Releases returns the names of the known releases of vLLM, oldest first.
func Releases() []string {
	names := make([]string, len(releases))
	for i := range releases {
		names[i] = releases[i].name
	}
	return names
}

// NewestRelease returns the newest known release of vLLM.
func NewestRelease() string { return releases[len(releases)-1].name }

// FittingReleases names the releases of vLLM whose answers are those of the pool, separated by
// commas.
func (p *Pool) FittingReleases() string {
	own := p.release()
	if own == &defaultRelease {
		return own.name
	}
	var names []string
	for i := range releases {
		if releases[i].rules == own.rules {
			names = append(names, releases[i].name)
		}
	}
	return strings.Join(names, ", ")
}

// release returns the pool's release. VLLM must be valid.
func (p *Pool) release() *release {
	if r, err := findRelease(p.VLLM); err == nil {
		return r
	}
	return &defaultRelease
}

// sameLookups reports whether the lookups of two releases are the same. 0.24.0 and the default,
// which has its name, only store other states of mamba groups.
func sameLookups(a, b *release) bool { return a.name == b.name || a.rules == b.rules }

// isNewer reports whether release a comes after b. Both are numbers separated by dots; text
// behind them does not count.
func isNewer(a, b string) bool {
	return slices.Compare(versionNumbers(a), versionNumbers(b)) > 0
}

// versionNumbers returns the leading numbers of a release, none if it does not begin with one.
func versionNumbers(release string) (numbers []int) {
	for part := range strings.SplitSeq(release, ".") {
		digits := part[:len(part)-len(strings.TrimLeft(part, "0123456789"))]
		n, err := strconv.Atoi(digits)
		if err != nil {
			return numbers
		}
		if numbers = append(numbers, n); digits != part {
			return numbers
		}
	}
	return numbers
}

// CheckRelease fails unless name is a known release of vLLM.
func CheckRelease(name string) error {
	_, err := findRelease(name)
	return err
}

// findRelease returns a known release. Its error is for the user of a configuration.
func findRelease(name string) (*release, error) {
	for i := range releases {
		if releases[i].name == name {
			return &releases[i], nil
		}
	}
	known := strings.Join(Releases(), ", ")
	if meant := suggestRelease(name); meant != "" {
		return nil, fmt.Errorf("%q is not the name of a vLLM release, write %q", name, meant)
	}
	numbers := versionNumbers(name)
	switch {
	case len(numbers) == 0:
		return nil, fmt.Errorf("%q is not the name of a vLLM release, known are %s", name, known)
	case slices.Compare(numbers, versionNumbers(releases[0].name)) < 0:
		return nil, fmt.Errorf("vLLM %s is older than %s, the oldest known release", name, releases[0].name)
	}
	return nil, fmt.Errorf("unknown vLLM release %q, known are %s; write the one of which the engine's vLLM is a build, or upgrade hitline", name, known)
}

// suggestRelease returns the known release that a name writes in another form (v0.33.0, 0.33,
// 0.33.0+cu129), and "" if there is none.
func suggestRelease(name string) string {
	name, _, _ = strings.Cut(strings.TrimLeft(strings.TrimSpace(name), "vV"), "+")
	for _, release := range releases {
		if name == release.name || name+".0" == release.name {
			return release.name
		}
	}
	return ""
}
