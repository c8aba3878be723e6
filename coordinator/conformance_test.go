package coordinator

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/hitline/hitline/internal/conformance"
)

// A recorded case is a flat object: the pool's fields beside those of the call.
type expectation struct {
	Masks []conformance.Runs `json:"masks"`
	Error string             `json:"error"`
	Stage string             `json:"stage"`
}

type findCase struct {
	Pool
	ID          string                `json:"id"`
	NumHashes   int                   `json:"num_hashes"`
	Present     [][]conformance.Range `json:"present"`
	MaxLength   int64                 `json:"max_length"`
	ApplyEagle  bool                  `json:"apply_eagle"`
	PartialHits bool                  `json:"enable_partial_hash_hits"`
	Expect      struct {
		expectation
		HitLength int64 `json:"hit_length"`
	} `json:"expect"`
}

type maskCase struct {
	Pool
	ID              string      `json:"id"`
	Op              string      `json:"op"`
	AlignedTokenLen int64       `json:"aligned_token_len"`
	StartToken      int64       `json:"start_token"`
	NumPromptTokens *int64      `json:"num_prompt_tokens"`
	NumHashes       int         `json:"num_hashes"`
	TokenLen        int64       `json:"token_len"`
	PartialHits     bool        `json:"enable_partial_hash_hits"`
	Expect          expectation `json:"expect"`
}

// setPartialHits configures fine-grained mode as the reference's coordinator is given it.
func (p *Pool) setPartialHits(on bool) {
	if on {
		p.CacheHitAlignmentTokens = p.HashBlockSize
	}
}

// errorClass names the reference's exception for an error.
func errorClass(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrPrecondition):
		return "AssertionError"
	case errors.Is(err, ErrIndexOutOfRange):
		return "IndexError"
	case errors.Is(err, ErrAnswerCount), errors.Is(err, ErrNegativeLength):
		return "ValueError"
	}
	return "unknown"
}

func judgeError(err error, stage string, want *expectation) (v conformance.Verdict, settled bool) {
	class := errorClass(err)
	if class == "" {
		stage = ""
	}
	if class != want.Error || stage != want.Stage {
		return conformance.Differs("error %q at %q (%v), want %q at %q", class, stage, err, want.Error, want.Stage), true
	}
	return conformance.Verdict{}, err != nil
}

// bitsetOf sets position i of a group if raw hash i*stride+stride-1 is present.
func bitsetOf(ranges []conformance.Range, numHashes, stride int) []uint64 {
	positions := numHashes / stride
	set := make([]uint64, (positions+63)/64)
	for _, r := range ranges {
		for raw := r[0]; raw < min(r[1], numHashes); raw++ {
			if i := raw / stride; raw%stride == stride-1 {
				set[i/64] |= 1 << (i % 64)
			}
		}
	}
	return set
}

// runsOf returns a mask as it is recorded.
func runsOf(m Mask) conformance.Runs {
	if m.IsAll() {
		return nil
	}
	return entriesOf(m)
}

// entriesOf returns the entries of a mask, also of the sentinel.
func entriesOf(m Mask) conformance.Runs {
	runs, at := conformance.Runs{}, int64(0)
	for start, end := range m.Runs() {
		runs = runs.Append(false, int(start-at)).Append(true, int(end-start))
		at = end
	}
	return runs.Append(false, int(m.Len()-at))
}

func judgeMasks(masks []Mask, want []conformance.Runs) conformance.Verdict {
	if len(masks) != len(want) {
		return conformance.Differs("%d masks, want %d", len(masks), len(want))
	}
	for g, m := range masks {
		got := runsOf(m)
		if (got == nil) != (want[g] == nil) || !slices.Equal(got, want[g]) {
			return conformance.Differs("mask %d is %v, want %v", g, got, want[g])
		}
	}
	return conformance.Verdict{}
}

// newAt is New at the release of a folder of vectors, or at a commit by its date.
func newAt(pool Pool, release string) (*Coordinator, error) {
	dated := map[string]string{"2026-06-04": "", "2026-06-20": "", "2026-08-17": "0.28.0"}
	pool.VLLM = conformance.Newest((&Pool{VLLM: release}).FittingReleases())
	if vllm, ok := dated[release]; ok {
		pool.VLLM = vllm
	}
	c, err := New(pool)
	if err == nil && release == "2026-06-04" {
		c.rules.trailingAbsent = true
	}
	return c, err
}

// storeMasks is StoreMask, also for 2026-06-04: its store masks repeat a template, which is the mask
// of one scheduler block found, with eagle, over a store that holds every block. They have no
// sentinel. With eagle the template can be empty, and so the mask.
func storeMasks(c *Coordinator, alignedLen, startToken, promptTokens int64) ([]Mask, error) {
	if !c.rules.trailingAbsent || startToken != 0 || alignedLen%c.align != 0 {
		return c.StoreMask(alignedLen, startToken, promptTokens)
	}
	masks := make([]Mask, len(c.groups))
	if alignedLen <= 0 {
		return masks, nil
	}
	if !slices.ContainsFunc(c.attention, func(a attentionGroup) bool { return !a.Kind.IsFull() && a.block != c.align }) {
		for g := range masks { // every chunk, without a template
			masks[g] = tailMask(0, alignedLen/int64(c.groups[g].BlockSize))
		}
		return masks, nil
	}
	var s Scratch
	p := Presence{NumHashes: c.pool.SchedulerBlockSize / c.pool.HashBlockSize, Everything: true}
	if _, err := c.FindHit(&p, c.align, true, &s); err != nil {
		return nil, err
	}
	for g := range masks {
		template := s.Mask(g)
		masks[g] = Mask{n: template.n * (alignedLen / c.align), rule: periodic{period: template.n, tail: template.extra[0].hi - template.extra[0].lo}}
	}
	return masks, nil
}

func conformFind(t *testing.T, file, release string) {
	conformance.Run(t, file, func(cs *findCase) conformance.Verdict { return judgeFind(cs, release) })
}

func judgeFind(cs *findCase, release string) conformance.Verdict {
	cs.setPartialHits(cs.PartialHits)
	c, err := newAt(cs.Pool, release)
	if v, settled := judgeError(err, "construct", &cs.Expect.expectation); err != nil && settled {
		return v
	}
	p := Presence{NumHashes: cs.NumHashes, Everything: cs.Present == nil}
	for g := range c.NumGroups() {
		if !p.Everything {
			p.Bits = append(p.Bits, bitsetOf(cs.Present[c.groups[g].poolGroup], cs.NumHashes, c.KeyStride(g)))
		}
	}
	var s Scratch
	hit, err := c.FindHit(&p, cs.MaxLength, cs.ApplyEagle, &s)
	if v, settled := judgeError(err, "find", &cs.Expect.expectation); settled {
		return v
	}
	if hit != cs.Expect.HitLength {
		return conformance.Differs("hit %d, want %d", hit, cs.Expect.HitLength)
	}
	masks := make([]Mask, len(cs.Groups)) // a dropped group has none
	for g := range c.NumGroups() {
		masks[c.groups[g].poolGroup] = s.Mask(g)
	}
	return judgeMasks(masks, cs.Expect.Masks)
}

func conformMasks(t *testing.T, file, release string) {
	conformance.Run(t, file, func(cs *maskCase) conformance.Verdict { return judgeMaskOp(cs, release) })
}

func judgeMaskOp(cs *maskCase, release string) conformance.Verdict {
	cs.setPartialHits(cs.PartialHits)
	c, err := newAt(cs.Pool, release)
	if v, settled := judgeError(err, "construct", &cs.Expect); err != nil && settled {
		return v
	}
	prompt := int64(NoPrompt)
	if cs.NumPromptTokens != nil {
		prompt = *cs.NumPromptTokens
	}
	var masks []Mask
	switch cs.Op {
	case "store_mask":
		masks, err = storeMasks(c, cs.AlignedTokenLen, cs.StartToken, prompt)
	case "lookup_mask":
		masks, err = c.LookupMask(cs.AlignedTokenLen)
	case "load_mask":
		masks, err = c.LoadMask(cs.TokenLen, cs.NumHashes)
	default:
		return conformance.Skipped("unknown operation " + cs.Op)
	}
	if v, settled := judgeError(err, cs.Op, &cs.Expect); settled {
		return v
	}
	for g, m := range masks {
		if want := max(0, cs.AlignedTokenLen/int64(c.pool.Groups[g].BlockSize)); m.IsAll() && cs.StartToken <= 0 && m.Len() != want {
			return conformance.Differs("mask %d, all true, has %d entries, want %d", g, m.Len(), want)
		}
	}
	return judgeMasks(masks, cs.Expect.Masks)
}

// TestConformanceNegative holds lengths and starts below zero against the reference.
func TestConformanceNegative(t *testing.T) {
	for _, date := range []string{"2026-06-04", "2026-06-20", "2026-08-17"} {
		conformance.Run(t, "extra/negative-"+date+".json", func(raw *json.RawMessage) conformance.Verdict {
			var find findCase
			var mask maskCase
			if err := errors.Join(json.Unmarshal(*raw, &mask), json.Unmarshal(*raw, &find)); err != nil {
				return conformance.Differs("unreadable: %v", err)
			}
			if mask.Op == "find" {
				return judgeFind(&find, date)
			}
			return judgeMaskOp(&mask, date)
		})
	}
}

func TestConformanceFindHit(t *testing.T) { conformFind(t, "find_hit.json", "2026-06-20") }

func TestConformanceMasks(t *testing.T) { conformMasks(t, "masks.json", "2026-06-20") }

func TestConformanceFindHit20260817(t *testing.T) {
	conformFind(t, "later/find_hit.json", "2026-08-17")
}

func TestConformanceMasks20260817(t *testing.T) {
	conformMasks(t, "later/masks.json", "2026-08-17")
}

func TestConformanceFindHit20260604(t *testing.T) {
	conformFind(t, "docpage/find_hit.json", "2026-06-04")
}

func TestConformanceMasks20260604(t *testing.T) {
	conformMasks(t, "docpage/masks.json", "2026-06-04")
}

func TestConformanceReleasesFindHit(t *testing.T) {
	skipUnderRace(t)
	for _, release := range conformance.Releases {
		conformFind(t, "releases/"+release+"/find_hit.json", release)
	}
}

func TestConformanceReleasesMasks(t *testing.T) {
	skipUnderRace(t)
	for _, release := range conformance.Releases {
		conformMasks(t, "releases/"+release+"/masks.json", release)
	}
}
