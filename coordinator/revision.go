package coordinator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Revision selects the reference whose answers are reproduced. The zero value is the
// default, 2026-06-20. Revisions of dates are commits of vLLM; those of releases stand for
// all releases with equal answers, see ParseRelease.
type Revision uint8

const (
	// Revision20260620 is vLLM ab7fcbdd5, the default.
	Revision20260620 Revision = iota
	// Revision20260817 is vLLM 455edc022 and the releases 0.27.0 to 0.28.0: fine-grained
	// hits for mamba, any number of tokens, ranks by group.
	Revision20260817
	// Revision20260604 is vLLM 0c6631f02. Only FindHit, StoreMask and LoadMask support
	// it: its engines have another wire and other keys.
	Revision20260604
	Revision0240 // 0.24.0: store masks of mamba
	Revision0251 // 0.25.0 and 0.25.1: ranks by PCP and DCP, blocks counted one by one
	Revision0260 // 0.26.0: full attention limits the hit to its own
	Revision0290 // 0.29.0: tail boundaries in the reply
	Revision0300 // 0.30.0 and 0.31.0: scratch groups, store namespaces
	Revision0320 // 0.32.0: fine-grained mode is configured
	Revision0330 // 0.33.0: windows with extra retained tokens
	numRevisions
)

var revisionNames = [numRevisions]string{
	Revision20260620: "2026-06-20",
	Revision20260817: "2026-08-17",
	Revision20260604: "2026-06-04",
	Revision0240:     "0.24.0",
	Revision0251:     "0.25.1",
	Revision0260:     "0.26.0",
	Revision0290:     "0.29.0",
	Revision0300:     "0.30.0",
	Revision0320:     "0.32.0",
	Revision0330:     "0.33.0",
}

// releases are the known releases of vLLM, oldest first.
var releases = []struct {
	name     string
	revision Revision
}{
	{"0.24.0", Revision0240},
	{"0.25.0", Revision0251},
	{"0.25.1", Revision0251},
	{"0.26.0", Revision0260},
	{"0.27.0", Revision20260817},
	{"0.27.1", Revision20260817},
	{"0.28.0", Revision20260817},
	{"0.29.0", Revision0290},
	{"0.30.0", Revision0300},
	{"0.31.0", Revision0300},
	{"0.32.0", Revision0320},
	{"0.33.0", Revision0330},
}

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

// releasesOf returns the known releases of vLLM with the answers of a revision, oldest first.
func releasesOf(revision Revision) (names []string) {
	for _, release := range releases {
		if release.revision == revision {
			names = append(names, release.name)
		}
	}
	return names
}

// FittingReleases names the releases of vLLM that the pool fits, separated by commas. The
// lookups of 2026-06-20 are those of 0.24.0.
func (p *Pool) FittingReleases() string {
	switch {
	case p.VLLM != "":
		return p.VLLM
	case p.Revision == Revision20260620:
		return Revision0240.String()
	}
	return strings.Join(releasesOf(p.Revision), ", ")
}

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

// ParseRelease returns the revision with the answers of a release of vLLM.
func ParseRelease(name string) (Revision, error) {
	revision, err := parseRelease(name)
	if err != nil {
		return 0, fmt.Errorf("coordinator: %w", err)
	}
	return revision, nil
}

// parseRelease is ParseRelease with the error for the user of a configuration.
func parseRelease(name string) (Revision, error) {
	for _, release := range releases {
		if release.name == name {
			return release.revision, nil
		}
	}
	known := strings.Join(Releases(), ", ")
	if meant := suggestRelease(name); meant != "" {
		return 0, fmt.Errorf("%q is not the name of a vLLM release, write %q", name, meant)
	}
	numbers := versionNumbers(name)
	switch {
	case len(numbers) == 0:
		return 0, fmt.Errorf("%q is not the name of a vLLM release, known are %s", name, known)
	case slices.Compare(numbers, versionNumbers(releases[0].name)) < 0:
		return 0, fmt.Errorf("vLLM %s is older than %s, the oldest known release", name, releases[0].name)
	}
	return 0, fmt.Errorf("unknown vLLM release %q, known are %s", name, known)
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

// String returns the date, for example "2026-06-20", or the release that the class is named by.
func (r Revision) String() string {
	if r < numRevisions {
		return revisionNames[r]
	}
	return fmt.Sprintf("revision(%d)", uint8(r))
}

// MarshalText implements encoding.TextMarshaler.
func (r Revision) MarshalText() ([]byte, error) {
	if r >= numRevisions {
		return nil, fmt.Errorf("coordinator: unknown revision number %d", uint8(r))
	}
	return []byte(revisionNames[r]), nil
}

// UnmarshalText implements encoding.TextUnmarshaler. It takes the dates only.
func (r *Revision) UnmarshalText(text []byte) error {
	if i := slices.Index(revisionNames[:Revision0240], string(text)); i >= 0 {
		*r = Revision(i)
		return nil
	}
	if _, err := parseRelease(string(text)); err == nil {
		return fmt.Errorf("revision %q is a release of vLLM: write the release in pool.vllm, and leave revision out", text)
	}
	return fmt.Errorf("unknown revision %q, want 2026-06-20 or 2026-08-17, or the engine's release in pool.vllm", text)
}
