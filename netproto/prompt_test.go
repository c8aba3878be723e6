package netproto

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// promptOf returns the numbers, ranks and states of a prompt as line describes them.
func promptOf(p *Prompt) string {
	return fmt.Sprintf("prompt=%d,%d,%d,%d,%d ranks=%x states=%x", p.NumTokens, p.NumHashes, p.StartToken, p.PromptTokens, p.FirstHash, p.Ranks, p.States)
}

func TestMaskRequestsRoundTrip(t *testing.T) {
	const most = 1<<32 - 1
	for tag, prompt := range map[Tag]Prompt{
		TagLoadMask:   {NumTokens: 4811, NumHashes: most},
		TagStoreMask:  {NumTokens: most, StartToken: 1 << 31, PromptTokens: PromptTokensUnknown},
		TagLookupMask: {NumTokens: 96},
	} {
		for _, envelope := range []string{"", "\x01\x03\x00id\x01\x00"} {
			b := AppendMaskRequest(nil, []byte(envelope), tag, &prompt)
			want := []string{fmt.Sprintf("%s env=%x %s hashes=", tag, envelope, promptOf(&prompt))}
			for size := range len(b) {
				got, r, err := feed(b, size, Limits{})
				require.NoError(t, err)
				require.Equal(t, want, got, "pieces of %d", size)
				require.False(t, r.InMessage())
			}
		}
	}
}

func TestPlanRequest(t *testing.T) {
	blob := hashes(3, 20)
	b := append(AppendLookupFrom(nil, []byte("\x01\x00"), TagPlan, 4811, 16, 20, len(blob)), blob...)
	require.Equal(t, message("", "plan", numbers(4811, 16), be(2, 20), blob), b)
	want := []string{"begin plan len=20 n=3", fmt.Sprintf("plan env=0100 tokens=4811 unaligned=true from=16 hashes=%x", blob)}
	for size := range len(b) {
		got, _, err := feed(b, size, Limits{})
		require.NoError(t, err)
		require.Equal(t, want, got, "pieces of %d", size)
	}
}

func TestStorePromptRoundTrip(t *testing.T) {
	blob := []byte(hashes(9, 20))
	for name, prompt := range map[string]Prompt{
		"numbers alone": {NumTokens: 144, StartToken: 16, PromptTokens: 150, FirstHash: 1},
		"no numbers":    {},
		"ranks":         {NumTokens: 1<<32 - 1, PromptTokens: PromptTokensUnknown, Ranks: []byte(be(2, 1) + be(2, 2) + be(2, 3) + be(6, 1<<48-1))},
		"states":        {States: []byte(be(4, 2) + be(4, 32) + be(8, 1<<63))},
		"both":          {Ranks: []byte(be(6, 0)), States: []byte(be(8, 16)), FirstHash: 1<<32 - 1},
	} {
		for _, envelope := range []string{"", "\x01\x03\x00id\x01\x00"} {
			b := append(AppendStorePrompt(nil, []byte(envelope), &prompt, 20, len(blob)), blob...)
			want := []string{
				"begin store_prompt len=20 n=9",
				fmt.Sprintf("store_prompt env=%x %s hashes=%x", envelope, promptOf(&prompt), blob),
			}
			for size := range 90 {
				got, r, err := feed(b, size, Limits{})
				require.NoError(t, err)
				require.Equal(t, want, got, "%s, pieces of %d", name, size)
				require.False(t, r.InMessage())
			}
		}
	}
}

func TestResetRankRoundTrip(t *testing.T) {
	for _, at := range []WireRank{{}, {1, 2, 3, 4}, {0xffff, 0xffff, 0xffff, 0xffff}, {Group: 7, TPRank: 0xffff}} {
		b := AppendResetRank(nil, nil, at)
		require.Equal(t, message("reset_rank", be(2, uint64(at.Group))+be(2, uint64(at.TPRank))+be(2, uint64(at.PPRank))+be(2, uint64(at.PCPRank))), b)
		for size := range len(b) {
			got, _, err := feed(b, size, Limits{})
			require.NoError(t, err)
			require.Equal(t, []string{fmt.Sprintf("reset_rank env= rank=%v hashes=", at)}, got)
		}
	}
	got, _, err := feed(message("reset_rank", be(2, 1)+be(2, 2)+be(2, 3)), 0, Limits{})
	require.NoError(t, err)
	require.Equal(t, []string{"reset_rank env= rank={1 2 3 0} hashes="}, got)
}

func TestPromptRequestsRefused(t *testing.T) {
	h3 := hashes(3, 16)
	good := []string{"store_prompt", numbers(0, 0, 0, 3), be(6, 1), be(8, 16), be(2, 16), h3}
	with := func(frame int, body string) []string {
		frames := append([]string(nil), good...)
		frames[frame] = body
		return frames
	}
	for name, c := range map[string]struct {
		frames []string
		want   string
	}{
		"plan without a blob":           {[]string{"plan", numbers(16, 0), be(2, 16)}, bad(3, "the blob is missing")},
		"plan, hash length 65":          {[]string{"plan", numbers(16, 0), be(2, 65), h3}, bad(2, "hash_len is over 64")},
		"load_mask alone":               {[]string{"load_mask"}, bad(1, "the frame of numbers is missing")},
		"load_mask without numbers":     {[]string{"load_mask", ""}, bad(1, "the frame of numbers is 0 bytes, want 8")},
		"load_mask, one number":         {[]string{"load_mask", be(4, 1)}, bad(1, "the frame of numbers is 4 bytes, want 8")},
		"load_mask, a byte too many":    {[]string{"load_mask", be(8, 1) + "x"}, bad(1, "the frame of numbers is 9 bytes, want 8")},
		"load_mask, three numbers":      {[]string{"load_mask", be(8, 1) + be(4, 1)}, bad(1, "the frame of numbers is 12 bytes, want 8")},
		"load_mask, a frame too many":   {[]string{"load_mask", be(8, 1), ""}, bad(2, "frame 2 is one too many for load_mask")},
		"store_mask, two numbers":       {[]string{"store_mask", be(8, 1)}, bad(1, "the frame of numbers is 8 bytes, want 12")},
		"store_mask, four numbers":      {[]string{"store_mask", be(8, 1) + be(8, 1)}, bad(1, "the frame of numbers is 16 bytes, want 12")},
		"store_mask, a frame too many":  {[]string{"store_mask", be(8, 1) + be(4, 1), ""}, bad(2, "frame 2 is one too many for store_mask")},
		"lookup_mask, two numbers":      {[]string{"lookup_mask", be(8, 1)}, bad(1, "the frame of numbers is 8 bytes, want 4")},
		"lookup_mask, a cut number":     {[]string{"lookup_mask", be(3, 1)}, bad(1, "the frame of numbers is 3 bytes, want 4")},
		"lookup_mask, very long":        {[]string{"lookup_mask", strings.Repeat("x", 5000)}, bad(1, "the frame of numbers is 5000 bytes, want 4")},
		"no numbers":                    {with(1, ""), bad(1, "the frame of numbers is 0 bytes, want 16")},
		"three numbers":                 {with(1, be(8, 0)+be(4, 0)), bad(1, "the frame of numbers is 12 bytes, want 16")},
		"a byte too many":               {with(1, be(8, 0)+be(8, 0)+"x"), bad(1, "the frame of numbers is 17 bytes, want 16")},
		"a cut rank":                    {with(2, "12345"), bad(2, "the frame of ranks is 5 bytes, want a multiple of 6")},
		"a group rank":                  {with(2, "12345678"), bad(2, "the frame of ranks is 8 bytes, want a multiple of 6")},
		"too many ranks":                {with(2, strings.Repeat("rank  ", MaxRanks+1)), large(2, 4096, "the frame of ranks exceeds 4096 ranks")},
		"a cut state":                   {with(3, "1234567"), bad(3, "the frame of states is 7 bytes, want a multiple of 8")},
		"too many states":               {with(3, strings.Repeat("states  ", MaxStates+1)), large(3, 4096, "the frame of states exceeds 4096 states")},
		"no hash length":                {with(4, ""), bad(4, "hash_len is 0 bytes, want 2")},
		"hash length 0":                 {with(4, be(2, 0)), bad(4, "hash_len is 0, want 1 to 64")},
		"hash length 65":                {with(4, be(2, 65)), bad(4, "hash_len is over 64")},
		"hash length of one byte":       {with(4, be(1, 16)), bad(4, "hash_len is 1 byte, want 2")},
		"no hashes":                     {with(5, ""), bad(5, "the blob is empty")},
		"a cut hash":                    {with(5, h3+"x"), bad(5, "the blob is 49 bytes, want a multiple of hash_len, 16")},
		"a frame too many":              {append(append([]string(nil), good...), ""), bad(6, "frame 6 is one too many for store_prompt")},
		"no blob":                       {good[:5], bad(5, "the blob is missing")},
		"no states":                     {good[:3], bad(3, "the frame of states is missing")},
		"reset_rank alone":              {[]string{"reset_rank"}, bad(1, "rank is missing")},
		"reset_rank of a chunk":         {[]string{"reset_rank", be(8, 1) + be(4, 1)}, bad(1, "rank is 12 bytes, want 6 or 8")},
		"reset_rank of 7 bytes":         {[]string{"reset_rank", be(7, 1)}, bad(1, "rank is 7 bytes, want 6 or 8")},
		"reset_rank, empty":             {[]string{"reset_rank", ""}, bad(1, "rank is 0 bytes, want 6 or 8")},
		"reset_rank, a frame too many":  {[]string{"reset_rank", be(8, 1), ""}, bad(2, "frame 2 is one too many for reset_rank")},
		"reset_rank, a much longer one": {[]string{"reset_rank", strings.Repeat("x", 300)}, bad(1, "rank is 300 bytes, want 6 or 8")},
	} {
		t.Run(name, func(t *testing.T) {
			b := append(message(c.frames...), message("stat")...)
			for _, size := range []int{0, 1, 3, 1000} {
				got, _, err := feed(b, size, Limits{})
				require.NoError(t, err, "the connection goes on")
				require.Equal(t, []string{c.frames[0] + " env= problem=" + c.want, "stat env= hashes="}, got, "pieces of %d", size)
			}
		})
	}
}

// TestStorePromptKeepsLittle sends as many ranks and states as there may be.
func TestStorePromptKeepsLittle(t *testing.T) {
	ranks, states := strings.Repeat("rank  ", MaxRanks), strings.Repeat("states  ", MaxStates)
	b := message("store_prompt", numbers(0, 0, 0, 0), ranks, states, be(2, 16), hashes(1, 16))
	got, _, err := feed(b, 999, Limits{})
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Contains(t, got[1], fmt.Sprintf("ranks=%x states=%x", ranks, states))

	r := NewReader(Limits{}, 16)
	require.NoError(t, feedAll(r, b[:len(b)-20], &discard{}))
	require.GreaterOrEqual(t, r.Held(), len(ranks)+len(states), "they count while the request lasts")
	require.NoError(t, feedAll(r, b[len(b)-20:], &discard{}))
	require.LessOrEqual(t, r.Held(), 4*maxIdle)

	b = AppendFrameHeader(message("store_prompt", numbers(0, 0, 0, 0), ""), 50<<20, true)
	b[len(b)-9-2] |= FlagMore // of the frame with ranks, which so has states behind it
	require.NoError(t, feedAll(r, b, &discard{}))
	for range 100 {
		require.NoError(t, feedAll(r, make([]byte, 1000), &discard{}))
	}
	require.LessOrEqual(t, r.Held(), 2*8*MaxStates, "a length that is claimed takes no memory")
}

func TestPromptRequestsDoNotAllocate(t *testing.T) {
	var p Prompt
	p.AddRank(WireRank{TPRank: 1})
	p.AddState(1, 32)
	blob := []byte(hashes(100, 32))
	requireNoAllocs(t, func(b []byte) []byte {
		b = append(AppendStorePrompt(b, nil, &p, 32, len(blob)), blob...)
		b = AppendMaskRequest(b, nil, TagStoreMask, &p)
		b = append(AppendLookupFrom(b, nil, TagPlan, 1600, 0, 32, len(blob)), blob...)
		return AppendResetRank(b, nil, WireRank{})
	})
}

func TestPromptLists(t *testing.T) {
	var p Prompt
	require.Zero(t, p.NumRanks())
	require.Zero(t, p.NumStates())
	p.AddRank(WireRank{Group: 9, TPRank: 1, PPRank: 2, PCPRank: 1<<16 - 1})
	p.AddRank(WireRank{})
	p.AddState(3, 1<<32-1)
	p.AddState(1<<31, 16)
	require.Equal(t, 2, p.NumRanks())
	require.Equal(t, WireRank{TPRank: 1, PPRank: 2, PCPRank: 1<<16 - 1}, p.Rank(0))
	require.Equal(t, WireRank{}, p.Rank(1))
	require.Equal(t, 2, p.NumStates())
	group, tokens := p.State(0)
	require.Equal(t, [2]uint32{3, 1<<32 - 1}, [2]uint32{group, tokens})
	group, tokens = p.State(1)
	require.Equal(t, [2]uint32{1 << 31, 16}, [2]uint32{group, tokens})
}
