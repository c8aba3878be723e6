package vllm

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/internal/storetest"
)

// release is one whose modules the other tests fetch as well.
const release = "0.33.0"

func options(t *testing.T) Options {
	hitline := filepath.Join(t.TempDir(), "hitline")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", hitline, "../../cmd/hitline").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return Options{
		Release: release, Hashes: []int{40}, TPs: []int{1, 2}, Engines: []int{1, 2}, HybridHashes: 640,
		Rounds: 2, Cell: 20 * time.Millisecond, Timeout: time.Minute, Hitline: hitline,
		Python: storetest.RequireMooncake(t, storetest.MooncakeRelease).Python(),
		OnNote: func(text string) { t.Log(text) }, OnStep: func(string, int, int) {},
	}
}

// skipWithoutNetwork skips a test if the modules of the release cannot be had.
func skipWithoutNetwork(t *testing.T, err error) {
	if err != nil && strings.Contains(err.Error(), "over_master: https://") {
		storetest.SkipOrFail(t, "no modules of vLLM %s: %v", release, err)
	}
}

func TestRun(t *testing.T) {
	report, err := Run(t.Context(), options(t))
	skipWithoutNetwork(t, err)
	require.NoError(t, err)
	require.Zero(t, report.Wrong())
	require.False(t, report.Partial)
	type asked struct {
		shape    Shape
		presence Presence
		keys     int
	}
	var got []asked
	for _, r := range report.Rows {
		got = append(got, asked{r.Shape, r.Stored, r.VLLMKeys})
		assert.Positive(t, r.P50Ratio.Min)
		assert.GreaterOrEqual(t, r.VLLM.Requests, 2)
		assert.GreaterOrEqual(t, r.Hitline.Requests, 2)
		assert.LessOrEqual(t, r.HitlineKeys, float64(r.VLLMKeys), "no lookup asks for more keys than vLLM's")
		assert.LessOrEqual(t, r.Hitline.Rounds.Min, measure.Round(r.Hitline.P50, 3))
		assert.LessOrEqual(t, measure.Round(r.Hitline.P50, 3), r.Hitline.Rounds.Max)
	}
	// Of 640 hashes of 4 tokens, in each of ten segments of 256 tokens: the block of MLA, two of
	// each window of 64, two of 4, and sixteen of 8.
	assert.Equal(t, []asked{
		{Shape{Llama, 1, 40, 1}, All, 40}, {Shape{Llama, 1, 40, 1}, Half, 40}, {Shape{Llama, 1, 40, 1}, FirstMissing, 40},
		{Shape{Llama, 2, 40, 1}, All, 80}, {Shape{Llama, 2, 40, 1}, Half, 80}, {Shape{Llama, 2, 40, 1}, FirstMissing, 80},
		{Shape{Llama, 1, 40, 2}, All, 40}, {Shape{Llama, 1, 40, 2}, Half, 40}, {Shape{Llama, 1, 40, 2}, FirstMissing, 40},
		{Shape{Hybrid, 2, 640, 1}, All, 230}, {Shape{Hybrid, 2, 640, 1}, Half, 230}, {Shape{Hybrid, 2, 640, 1}, FirstMissing, 230},
	}, got)

	var text bytes.Buffer
	require.NoError(t, report.WriteTable(&text))
	assert.Contains(t, text.String(), "\nllama, TP 1, 40 hashes, 2 engines\n")
	text.Reset()
	require.NoError(t, measure.WriteJSON(&text, report))
	var back Report
	require.NoError(t, json.Unmarshal(text.Bytes(), &back))
	assert.Equal(t, report, back)
}

func TestRunFails(t *testing.T) {
	o := options(t)
	o.Python = "/bin/false"
	_, err := Run(t.Context(), o)
	require.ErrorIs(t, err, measure.ErrOptions)
	require.ErrorContains(t, err, "pip install pyzmq mooncake-transfer-engine-non-cuda")

	o = options(t)
	o.Master = "/bin/false"
	_, err = Run(t.Context(), o)
	require.ErrorIs(t, err, measure.ErrLost)
}
