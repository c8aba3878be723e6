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
// spaces, behind which they are explained.
func wireExample(t *testing.T, section string) (all []spoken) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/protocol.md")
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

// The examples of docs/protocol.md are answered as it says.
func TestProtocolExamples(t *testing.T) {
	full := coordinator.Group{Kind: coordinator.FullAttention, BlockSize: 16}
	pool := coordinator.Pool{VLLM: "0.33.0", HashBlockSize: 16, TPSize: 2, NumKVHead: 2, Groups: []coordinator.Group{full, full}}
	prompts := pool
	prompts.Groups = []coordinator.Group{full, {Kind: coordinator.Mamba, BlockSize: 32}}
	blocks := coordinator.Pool{VLLM: "0.28.0", HashBlockSize: 16}
	engines := access.Credential{Name: "engines", Digest: access.DigestOf([]byte("0Wk3vQ9hZJ2mT7xYp")), Permissions: access.Lookup | access.Ping}
	for section, pool := range map[string]coordinator.Pool{
		"## A lookup, byte by byte": blocks, "## Storing a prompt": prompts, "## A store client": pool, "## Who may do what": pool,
	} {
		t.Run(section, func(t *testing.T) {
			service, err := memoryService(pool)
			require.NoError(t, err)
			server, err := New(service, Config{Loops: 2, Listeners: []Listener{{Address: "tcp://127.0.0.1:0", Settings: settingsOf(t, access.All, engines)}}})
			require.NoError(t, err)
			startTest(t, server)
			p := lookuptest.DialPeer(t, server.Addrs()[0])
			said := wireExample(t, section)
			require.NotEmpty(t, said)
			for _, m := range said {
				if m.client {
					p.Send(t, m.bytes)
				} else {
					p.Reads(t, m.bytes)
				}
			}
		})
	}
}
