package description

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/internal/printable"
)

func TestAskerOf(t *testing.T) {
	long := strings.Repeat("x", maxClientText)
	for object, want := range map[string]string{
		``:     "",
		`null`: "",
		`[1]`:  "",
		`"me"`: "",
		`{}`:   "",
		`{"process":"0a","instance_id":"e-1","role":"kv_both","rank":3,"vllm":"0.33.0","hitline":"0.1.0"}`: "e-1/0a",
		`{"process":1,"instance_id":null,"role":["kv_both"],"rank":"3"}`:                                   "",
		`{"process":1,"instance_id":"e-1"}`:                                                                "",
		`{"process":"0a","rank":null}`:                                                                     "0a",
		`{"process":"` + long + `","instance_id":"` + long + `x"}`:                                         printable.Cut(long, 64),
		`{"process":"` + long + `x","instance_id":"e-1"}`:                                                  "",
	} {
		assert.Equal(t, want, askerOf(json.RawMessage(object)), object)
	}
}
