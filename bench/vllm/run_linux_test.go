package vllm

import (
	"bytes"
	"fmt"
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
	python := storetest.RequireMooncake(t, storetest.MooncakeRelease).Python()
	hitline := filepath.Join(t.TempDir(), "hitline")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", hitline, "../../cmd/hitline").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return Options{
		Release: release, Hashes: []int{1, 200}, TPs: []int{2}, HeldHashes: 100, StoreKeys: 500,
		Rounds: 2, Cell: 20 * time.Millisecond, Blocked: 100 * time.Millisecond, Timeout: time.Minute, Hitline: hitline,
		Python: python,
		OnNote: func(text string) { t.Error(text) }, OnStep: func(string, int, int) {},
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
	keys := map[string]int{} // of vLLM
	for _, r := range report.Rows {
		keys[fmt.Sprintf("%v, %s %s", r.Shape, r.Ask, r.Stored)] = r.VLLMKeys
		assert.Positive(t, r.P50Ratio.Min)
		assert.GreaterOrEqual(t, r.VLLM.Requests, 2)
		assert.True(t, r.Ask == Blocked || r.VLLM.Requests == r.Hitline.Requests, "they are asked in turn")
		assert.LessOrEqual(t, r.HitlineKeys, float64(r.VLLMKeys), "no lookup asks for more keys than vLLM's")
		assert.LessOrEqual(t, r.Hitline.Rounds.Min, measure.Round(r.Hitline.P50, 3))
		assert.LessOrEqual(t, measure.Round(r.Hitline.P50, 3), r.Hitline.Rounds.Max)
		once := r.Ask == First || r.Ask == Known || r.Ask == Gone || r.Ask == Turns
		assert.Equal(t, once, r.Bytes != nil)
		if r.Stored == Removed {
			assert.InDelta(t, min(r.Hashes, 64)*r.TP, r.HitlineKeys, 0, "few are asked for, as nothing is expected")
			assert.Equal(t, 2*numTurns, r.Hitline.Requests, "each prompt once")
		}
		switch r.Ask {
		case First:
			if r.Stored == All {
				assert.InDelta(t, r.VLLMKeys, r.HitlineKeys, 0, "nothing is remembered")
			}
		case Known:
			assert.Equal(t, 1.0, r.HitlineRounds, "what is likely to be stored is asked for at once")
		case Again:
			assert.Less(t, r.HitlineKeys, float64(r.VLLMKeys), "found blocks are remembered")
		case Turns:
			assert.InDelta(t, 3*r.TP, r.HitlineKeys, 0, "only the new turn is asked for")
			assert.Equal(t, 2*numTurns, r.Hitline.Requests, "each prompt once")
		}
	}
	assert.Len(t, keys, 2*(2+3+2+1+1)+1+1)
	assert.Equal(t, 400, keys["TP 2, 200 hashes, again all"])
	assert.Equal(t, 400, keys["TP 2, 200 hashes, blocked head all"])
	assert.Equal(t, 236, keys["TP 2, 100 hashes, turns all"])

	var text bytes.Buffer
	require.NoError(t, report.WriteTable(&text))
	assert.Contains(t, text.String(), "\nTP 2, 200 hashes\n")
}

func TestRunFails(t *testing.T) {
	o := options(t)
	o.Python = "/bin/false"
	_, err := Run(t.Context(), o)
	require.ErrorIs(t, err, measure.ErrOptions)
	require.ErrorContains(t, err, "pip install pyzmq mooncake-transfer-engine-non-cuda")
}
