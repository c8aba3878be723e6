package blockhash_test

import (
	"encoding/hex"
	"fmt"

	"github.com/hitline/hitline/blockhash"
)

// The hashes of a prompt of 40 tokens: two whole blocks, and 8 tokens without a hash.
func ExampleVLLM() {
	h, err := blockhash.NewVLLM(blockhash.VLLMConfig{Release: "0.33.0", BlockSize: 16})
	if err != nil {
		panic(err)
	}
	tokens := make([]int64, 40)
	hashes, err := h.AppendHashes(nil, tokens, nil)
	if err != nil {
		panic(err)
	}
	for i := range h.NumHashes(len(tokens)) {
		hash := hashes[i*h.HashLen() : (i+1)*h.HashLen()]
		fmt.Printf("%s… in events %d\n", hex.EncodeToString(hash[:8]), blockhash.ShortHash(hash))
	}
	// Output:
	// cc1b94e8dbbe8e03… in events 16795455982913991808
	// 6bf44d4ef736e38f… in events 18204727929666663937
}
