package netproto_test

import (
	"fmt"

	"github.com/hitline/hitline/netproto"
)

// A group with blocks of 32 tokens, over hashes of 16 tokens each, has every second
// hash as a key.
func ExampleJoinHashes() {
	hashes, err := netproto.JoinHashes(nil, [][]byte{[]byte("aa"), []byte("bb"), []byte("cc")})
	if err != nil {
		fmt.Println(err)
		return
	}
	const stride = 2
	for chunk := range hashes.Len() / stride {
		fmt.Printf("chunk %d: %s\n", chunk, hashes.At(netproto.KeyIndex(chunk, stride)))
	}
	// Output:
	// chunk 0: bb
}
