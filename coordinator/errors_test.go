package coordinator

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What clients read of an error names what they have sent, and no package.
func TestTextsForClients(t *testing.T) {
	old := must(t, Pool{VLLM: "0.24.0", Groups: []Group{full(16), window(16, 33)}})
	windows := must(t, Pool{VLLM: "0.26.0", Groups: []Group{window(16, 33)}})
	chunks := must(t, Pool{VLLM: NewestRelease(), Groups: []Group{local(16, 64)}})
	none := &Presence{NumHashes: 3, Bits: make([][]uint64, 2)}
	for text, fail := range map[string]func() error{
		"num_tokens 63 is no multiple of 16, which vLLM up to 0.26.0 sends: set pool.vllm to the engine's release": func() error {
			_, err := old.Answer(none, 63, new(Scratch))
			return err
		},
		"num_tokens 63 is no multiple of 16": func() error {
			_, err := old.LookupMask(63)
			return err
		},
		"start_token is 16, want 0: vLLM before 0.25.0 has no other": func() error {
			_, err := old.StoreMask(64, 16, NoPrompt)
			return err
		},
		"hashes 3 to 4 are missing: group 0 (sliding_window) reads block 4; send the hashes of all whole blocks of num_tokens": func() error {
			_, err := windows.Answer(none, 80, new(Scratch))
			return err
		},
		"hashes 3 to 3 are missing: the hit of 64 tokens ends there; send the hashes of all whole blocks of num_tokens": func() error {
			_, err := chunks.Answer(none, 70, new(Scratch))
			return err
		},
		"num_tokens is -16, want 0 or more": func() error {
			_, err := old.LoadMask(-16, 3)
			return err
		},
	} {
		require.EqualError(t, fail(), text)
	}
}
