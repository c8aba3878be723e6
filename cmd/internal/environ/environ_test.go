package environ

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCheck(t *testing.T) {
	for entry, want := range map[string]string{
		"HITLINE_ADDRESS=x":                    "",
		"HITLINE_KERNEL=generic":               "",
		"HITLINE_TEST_ANYTHING=1":              "",
		"HITLINE_PORT=tcp://10.0.0.1:7557":     "",
		"HITLINE_POOL_SERVICE_HOST=10.0.0.1":   "",
		"HITLINE_LISTEN=tcp://127.0.0.1:1":     "",
		"HITLINE_BACKEND_REDIS_URL=redis://x":  "",
		"HITLIN=x":                             "",
		"HITLINE_ADDRESSES=x":                  "HITLINE_ADDRESSES: no such variable; did you mean HITLINE_ADDRESS?",
		"HITLINE_LISTENER=x":                   "HITLINE_LISTENER: no such variable; unset it",
		"HITLINE_ZZZZZZZZZZZZZZZZZZZZ=":        "HITLINE_ZZZZZZZZZZZZZZZZZZZZ: no such variable; unset it",
		"HITLINE_TOKENFILE=/etc/engines.token": "HITLINE_TOKENFILE: no such variable; did you mean HITLINE_TOKEN_FILE?",
	} {
		err := Check([]string{"HOME=/", entry})
		if want == "" {
			assert.NoError(t, err, entry)
		} else {
			assert.EqualError(t, err, want)
		}
	}
}
