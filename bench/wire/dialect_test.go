package wire

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTailHit(t *testing.T) {
	boundary := []byte{0, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0, 48}
	tokens, ok := TailHit([][]byte{boundary})
	assert.True(t, ok)
	assert.EqualValues(t, 40, tokens)
	for _, frames := range [][][]byte{{boundary[:4]}, {boundary[:11]}, {boundary, nil}, {{}}} {
		_, ok := TailHit(frames)
		assert.False(t, ok, "%x", frames)
	}
}
