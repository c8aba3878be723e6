package storetest

import (
	"os"
	"testing"
)

// SkipOrFail skips a test that lacks something on this machine. With CI=true it fails the
// test.
func SkipOrFail(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("CI must have all: "+format, args...)
	}
	t.Skipf(format, args...)
}
