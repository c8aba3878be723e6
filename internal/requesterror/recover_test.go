package requesterror

import (
	"strings"
	"testing"
)

func TestRecover(t *testing.T) {
	fails := func(index int) (err error) {
		defer Recover(&err)
		_ = []int{1}[index]
		return nil
	}
	if err := fails(0); err != nil {
		t.Fatal(err)
	}
	err := fails(1)
	for _, want := range []string{"a fault of hitline, please report it: runtime error: index out of range [1] with length 1, at ", "requesterror.TestRecover", "(recover_test.go:11)"} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}
