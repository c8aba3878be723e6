package server

import (
	"encoding/hex"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/access"
	"github.com/stretchr/testify/require"
)

// spoken is what one side says in an example.
type spoken struct {
	client bool
	bytes  []byte
}

// wireExample reads the lines of a section's indented blocks that begin with C or
// S, and those that go on from them: numbers in hex, JSON and quoted text up to three
// spaces, after which they are explained.
func wireExample(t *testing.T, page, section string) (all []spoken) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/" + page)
	require.NoError(t, err)
	_, text, found := strings.Cut(string(doc), section+"\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "\n## ")
	line := regexp.MustCompile(`^    (C  |S  |   )(\S.*)$`)
	for l := range strings.SplitSeq(text, "\n") {
		m := line.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		if m[1] != "   " {
			all = append(all, spoken{client: m[1] == "C  "})
		}
		if len(all) == 0 {
			continue
		}
		said, _, _ := strings.Cut(m[2], "   ")
		for word := range strings.FieldsSeq(said) {
			b := []byte(strings.Trim(word, `"`))
			if word[0] != '"' && word[0] != '{' {
				b, err = hex.DecodeString(word)
				require.NoError(t, err, l)
			}
			all[len(all)-1].bytes = append(all[len(all)-1].bytes, b...)
		}
	}
	return all
}

// The examples of the pages are answered as they say.
func TestProtocolExamples(t *testing.T) {
	group := func(kind coordinator.Kind, blockSize int) coordinator.Group {
		return coordinator.Group{Kind: kind, BlockSize: blockSize}
	}
	blocks := coordinator.Pool{VLLM: "0.28.0", HashBlockSize: 16}
	unset, threeBlocks := coordinator.Pool{HashBlockSize: 16}, "a0a1a200a0a1a201a0a1a202" // as lookup-protocol.md says
	prompts := coordinator.Pool{VLLM: coordinator.NewestRelease(), HashBlockSize: 16, TPSize: 2, NumKVHead: 2}
	prompts.Groups = []coordinator.Group{group(coordinator.FullAttention, 16), group(coordinator.Mamba, 32)}
	masks := coordinator.Pool{VLLM: coordinator.NewestRelease(), HashBlockSize: 16, SchedulerBlockSize: 64}
	masks.Groups = []coordinator.Group{group(coordinator.FullAttention, 64), {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 17}}
	for _, example := range []struct {
		page, section string
		pool          coordinator.Pool
		stored        string // in hex: keys of group 0
	}{
		{"protocol.md", "# Protocol", blocks, ""},
		{"protocol.md", "## Authentication", blocks, ""},
		{"protocol.md", "## Masks", masks, ""},
		{"protocol.md", "## Storing a prompt", prompts, ""},
		{"lookup-protocol.md", "# Lookups, byte by byte", unset, threeBlocks},
		{"lookup-protocol.md", "## Begin where the engine's cache ends", unset, threeBlocks},
		{"lookup-protocol.md", "## Several at once", unset, threeBlocks},
	} {
		t.Run(example.page+" "+example.section, func(t *testing.T) {
			said := wireExample(t, example.page, example.section)
			require.NotEmpty(t, said)
			testExample(t, example.pool, example.stored, said)
		})
	}
}

// testExample plays an example on a server of the pool.
func testExample(t *testing.T, pool coordinator.Pool, stored string, said []spoken) {
	service, err := memoryService(pool)
	require.NoError(t, err)
	keys, err := hex.DecodeString(stored)
	require.NoError(t, err)
	if len(keys) > 0 {
		require.NoError(t, service.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 4)))
	}
	engines := access.Credential{Name: "engines", Digest: access.DigestOf([]byte("0Wk3vQ9hZJ2mT7xYp")), Permissions: access.Lookup | access.Ping}
	server, err := New(service, Config{Loops: 2, Listeners: []Listener{{Address: "tcp://127.0.0.1:0", Settings: settingsOf(t, access.All, engines)}}})
	require.NoError(t, err)
	startTest(t, server)
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	for _, m := range said {
		if m.client {
			p.Send(t, m.bytes)
		} else {
			p.Reads(t, m.bytes)
		}
	}
}
