package diagnosis

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/coordinator"
)

// Keys of another engine's layout are told by the layout, whatever their model is.
func TestOtherLayout(t *testing.T) {
	for _, test := range []struct {
		pool coordinator.Pool
		keys []string
		want int // problems
	}{
		{coordinator.Pool{ModelName: "m"}, []string{"m@tp_rank:0@group:0@ab"}, 1},
		{coordinator.Pool{ModelName: "org/m"}, []string{"org/m@tp_rank:0@group:0@ab"}, 1},
		{coordinator.Pool{ModelName: "m", Layout: coordinator.LayoutLMDeploy}, []string{"m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@ab"}, 1},
		{coordinator.Pool{ModelName: "m", Layout: coordinator.LayoutLMDeploy}, []string{"m@tp_rank:0@group:0@ab", "v@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@ab"}, 0},
	} {
		var f Findings
		comparerOf(t, test.pool).compareSample(parseSample(Sample{Keys: test.keys, Complete: true}), &f)
		assert.Len(t, f.Problems, test.want, "%v", test.keys)
		for _, problem := range f.Problems {
			assert.Contains(t, problem, "set pool.layout to lmdeploy")
		}
	}
}
