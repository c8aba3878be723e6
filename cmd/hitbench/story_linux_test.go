package main

import (
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/story"
	"github.com/hitline/hitline/internal/logtest"
)

// told is what hitline status tells of a story.
type told struct {
	Rates map[string]struct{ Tokens map[string]int64 }
	Pools []struct {
		Stat struct {
			Askers []struct {
				Name   string
				Tokens map[string]int64
				Shared *float64 `json:"first_block_shared"`
			}
		}
	}
}

// loses reports whether a place has tokens that were lost, and no other has.
func (s *told) loses(place string) bool {
	tokens := s.Rates["5m"].Tokens
	for _, other := range []string{"evicted", "partial", "unsaved", "emptied", "no_answer"} {
		if (tokens[other] > 0) != (other == place) {
			return false
		}
	}
	return true
}

// askers returns what the pool gave by asker, and the shares of their first blocks.
func (s *told) askers() (hit map[string]int64, shared map[string]float64) {
	hit, shared = map[string]int64{}, map[string]float64{}
	for _, pool := range s.Pools {
		for _, a := range pool.Stat.Askers {
			hit[a.Name] = a.Tokens["pool"]
			if a.Shared != nil {
				shared[a.Name] = *a.Shared
			}
		}
	}
	return hit, shared
}

// Each story shows what it tells of, and ends when it is interrupted.
func TestStories(t *testing.T) {
	if testing.Short() {
		t.Skip("blocks count as being saved for half a minute")
	}
	hitline := filepath.Join(t.TempDir(), "hitline")
	text, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", hitline, "../hitline").CombinedOutput()
	require.NoError(t, err, "%s", text)
	signs := map[string]func(*told) bool{
		"small-pool": func(s *told) bool { return s.loses("evicted") },
		"failed-puts": func(s *told) bool {
			hit, _ := s.askers()
			return s.loses("partial") && hit["engine-2"] < hit["engine-1"]
		},
		"hash-seed": func(s *told) bool {
			_, shared := s.askers()
			return len(shared) == 3 && shared["engine-1"] > 0.5 && shared["engine-2"] > 0.5 && shared["engine-3"] < 0.05
		},
	}
	for _, name := range story.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout logtest.Buffer
			ctx, stop := context.WithCancel(t.Context())
			code := make(chan int, 1)
			a := app{stdout: &stdout, stderr: io.Discard}
			go func() { code <- a.run(ctx, []string{"story", name, "--hitline", hitline, "--timeout", "1m"}) }()
			deadline := time.Now().Add(3 * time.Minute)
			for shown := false; !shown; {
				require.True(t, time.Now().Before(deadline), "the page does not show it")
				select {
				case ended := <-code:
					require.Fail(t, "the story has ended", "%d", ended)
				case <-time.After(200 * time.Millisecond):
				}
				page := regexp.MustCompile(`http://(127\.0\.0\.1:\d+)/`).FindStringSubmatch(stdout.String())
				if page == nil {
					continue
				}
				text, err := exec.CommandContext(t.Context(), hitline, "status", "--json", page[1]).CombinedOutput()
				require.NoError(t, err, "%s", text)
				var s told
				require.NoError(t, json.Unmarshal(text, &s))
				shown = signs[name](&s)
			}
			stop()
			assert.Equal(t, exitDone, <-code)
		})
	}
}

// A story of another name is refused, with the names of those that there are.
func TestUnknownStory(t *testing.T) {
	for _, args := range [][]string{{"story"}, {"story", "x"}} {
		r := hitbench(t, args...)
		assert.Equal(t, exitUsage, r.code)
		assert.Contains(t, r.stderr, "small-pool, failed-puts, hash-seed")
	}
}
