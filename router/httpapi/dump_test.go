package httpapi

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/router"
)

// HEAD of a dump is refused: it would copy what all engines hold, for nothing.
func TestHeadOfDump(t *testing.T) {
	h := New(Config{Service: newService(t, router.Config{})})
	status, _ := do(t, h, http.MethodHead, "/dump", "")
	require.Equal(t, http.StatusMethodNotAllowed, status)
	for _, path := range []string{"/services", "/ready", "/openapi.yaml"} {
		status, _ = do(t, h, http.MethodHead, path, "")
		require.Equal(t, http.StatusOK, status, path)
	}
	status, _ = do(t, h, http.MethodGet, "/dump", "")
	require.Equal(t, http.StatusOK, status)
}
