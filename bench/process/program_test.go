package process

import (
	"os"
	"regexp"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBuiltWith(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	assert.Regexp(t, "^"+regexp.QuoteMeta(runtime.Version())+`, testify v1\.`, BuiltWith(self, "github.com/stretchr/testify", "testify"))
	assert.Equal(t, runtime.Version(), BuiltWith(self, "example.com/none", "none"))
	assert.Equal(t, "unknown", BuiltWith("program_test.go", "example.com/none", "none"))
}
