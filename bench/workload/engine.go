package workload

import (
	"slices"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/coordinator"
)

const (
	// EngineBlockTokens is what a hash and a block of an engine cover.
	EngineBlockTokens = 16
	// MaxTP is the number of KV heads of the engines' model: as many ranks have keys of their own.
	MaxTP = 8
)

// EnginePool returns the pool of engines of a tensor-parallel size: full attention with eight KV heads, so that
// there is one key for each block and rank. No model is run.
func EnginePool(tp int) coordinator.Pool {
	return coordinator.Pool{
		ModelName: "Llama-3.1-8B-Instruct", HashBlockSize: EngineBlockTokens, SchedulerBlockSize: EngineBlockTokens,
		TPSize: tp, NumKVHead: MaxTP,
		Groups: []coordinator.Group{{Kind: coordinator.FullAttention, BlockSize: EngineBlockTokens}},
	}
}

// CheckTPs wants tensor-parallel sizes of [EnginePool], each once.
func CheckTPs(sizes []int) error {
	err := measure.CheckList("tensor-parallel sizes", sizes, 1, MaxTP)
	if i := slices.IndexFunc(sizes, func(tp int) bool { return err == nil && MaxTP%tp != 0 }); i >= 0 {
		err = measure.BadOptions("a tensor-parallel size of %d; give 1, 2, 4 or 8", sizes[i])
	}
	return err
}
