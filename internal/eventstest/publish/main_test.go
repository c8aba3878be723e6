package main

import (
	"bufio"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

// Each line is a batch, as a router's tests need it: blocks with their tokens, blocks by hash, and none.
func TestPublish(t *testing.T) {
	in, lines := io.Pipe()
	out, printed := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run([]string{"-block-size", "2"}, in, printed) }()
	first := bufio.NewScanner(out)
	require.True(t, first.Scan())
	events, replay, _ := strings.Cut(first.Text(), " ")

	service, err := router.New(router.Config{Models: []router.Model{{
		ModelKey: router.ModelKey{Name: "llama"}, Fleet: fleet.Config{BlockSize: 2}, Hash: &router.Hashing{},
	}}})
	require.NoError(t, err)
	t.Cleanup(service.Close)
	require.NoError(t, service.Add(router.Source{Model: "llama", Engine: "e", Endpoint: events, Replay: replay}))

	hash := strings.Repeat("ab", 32)
	for _, step := range []struct {
		line   string
		blocks int64
		hashes router.Agreement
	}{
		{"tokens 1 2 3 4 5", 2, router.HashesAgree},
		{hash, 3, router.HashesAgree},
		{"remove " + hash, 2, router.HashesAgree},
		{"clear", 0, router.HashesUnchecked},
	} {
		_, err := io.WriteString(lines, step.line+"\n")
		require.NoError(t, err)
		lookuptest.Eventually(t, step.line, func() bool {
			st := service.Status()[0]
			return st.Blocks == step.blocks && st.Hashes == step.hashes && !st.Stale
		})
	}
	require.NoError(t, lines.Close())
	require.NoError(t, <-done)
	for _, wrong := range []string{"remove x", "tokens a b", "shut down"} {
		require.ErrorContains(t, run(nil, strings.NewReader(wrong), io.Discard), "is no", wrong)
	}
	require.ErrorContains(t, run([]string{"16"}, strings.NewReader(""), io.Discard), `"16" is no flag`)
}
