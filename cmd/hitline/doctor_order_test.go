package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// doctor notes an order that it cannot check, or that blocks may contradict.
func TestDoctorNotesOrder(t *testing.T) {
	server := storetest.StartRedis(t)
	client := server.Client(t)
	put := func(name string, group int, hashes []string) {
		for _, hash := range hashes {
			require.NoError(t, client.Set(t.Context(), fmt.Sprintf("%s@tp_rank:0@pcp0@dcp0@pp_rank:0@group:%d@%s", name, group, hash), "", 0).Err())
		}
	}
	chain := hexHashes("h", promptLen, 32)
	for group := range 3 {
		put("alike", group, chain)
	}
	put("few", 0, chain[36:]) // of a prompt
	put("few", 1, chain)
	put("many", 0, hexHashes("h", 200, 32)) // of many
	put("many", 1, hexHashes("h", 60, 32))
	put("short", 0, chain[:6])
	put("short", 1, chain[4:6])
	const window16 = "{kind: sliding_window, block_size: 16, sliding_window: 16}"
	const window48Groups = "groups: [{kind: sliding_window, block_size: 16, sliding_window: 48}, " + full64 + "]"
	for i, hash := range chain {
		if i%4 >= 1 {
			put("ordered", 0, []string{hash})
		}
		if i%4 == 3 {
			put("ordered", 1, []string{hash})
			put("sizes", 0, []string{hash})
			put("sizes", 1, []string{hash})
		}
	}
	file := configFile(t, strings.Join(chain, "\n"))
	const (
		cannot = "groups %s are stored alike, so their order cannot be checked here: "
		give   = "nothing seen here shows the order of groups %s: give a prompt that an engine has stored, by --tokens and --hashes-file, or "
		how    = "compare pool.groups with the engine's kv_cache_config.kv_cache_groups: vLLM's log has no specs, a general plugin or a debugger prints them"
	)
	for name, test := range map[string]struct {
		pool   string
		prompt bool
		want   []string
	}{
		"stored alike":             {"model_name: alike, groups: [" + window32 + ", " + window32 + ", " + full16 + "]", true, []string{fmt.Sprintf(cannot, "0, 1 and 2") + how}},
		"stored alike, keys":       {"model_name: alike, groups: [" + window32 + ", " + window32 + ", " + full16 + "]", false, []string{fmt.Sprintf(cannot, "0, 1 and 2") + how}},
		"alike, of unequal sizes":  {"model_name: sizes, groups: [" + full64 + ", " + window16 + "]", true, []string{fmt.Sprintf(cannot, "0 and 1") + how}},
		"alike, the other way":     {"model_name: sizes, groups: [" + window16 + ", " + full64 + "]", true, []string{fmt.Sprintf(cannot, "0 and 1") + how}},
		"nothing to take for else": {"model_name: alike, groups: [" + full16 + ", " + full16 + ", " + full16 + "]", false, nil},
		"without a prompt":         {"model_name: ordered, " + window48Groups, false, []string{fmt.Sprintf(give, "0 and 1") + how}},
		"by a prompt":              {"model_name: ordered, " + window48Groups, true, nil},
		"too short":                {"model_name: short, " + swappedThin, true, []string{fmt.Sprintf(cannot, "0 and 1") + how}},
		"by many keys":             {"model_name: many, " + swappedThin, false, nil},
		"perhaps evicted": {"model_name: few, " + swappedThin, true, []string{
			"group 1, described as sliding_window, has 40 of the prompt's blocks and group 0, described as full_attention, 4: unless those were evicted, give pool.groups the order of the engine's kv_cache_groups",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"--tokens", "640", "--hashes-file", file}
			if !test.prompt {
				args = nil
			}
			d := runDoctor(t, "pool: {"+test.pool+"}\nbackend: {redis: {url: 'redis://"+server.Addr+"', timeout: 5s}}\n", args...)
			assert.Empty(t, d.Problems)
			var got []string
			for _, note := range d.Notes {
				if strings.Contains(note, " order ") {
					got = append(got, note)
				}
			}
			assert.Equal(t, test.want, got)
		})
	}
}
