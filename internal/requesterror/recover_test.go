package requesterror_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/requesterror"
)

func TestRecover(t *testing.T) {
	fails := func(index int) (err error) {
		defer requesterror.Recover(&err)
		_ = []int{1}[index]
		return nil
	}
	if err := fails(0); err != nil {
		t.Fatal(err)
	}
	err := fails(1)
	for _, want := range []string{"a fault of hitline, please report it: runtime error: index out of range [1] with length 1, at ", "requesterror_test.TestRecover", "(recover_test.go:16)"} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

// TestRecoverInTheIndex has package index panic under its lock: that ends the program, whoever recovers.
func TestRecoverInTheIndex(t *testing.T) {
	if os.Getenv("HITLINE_TEST_PANIC") != "" {
		x, err := index.New(index.Config{Places: 1, MaxBytes: index.MinMaxBytes})
		if err != nil {
			t.Fatal(err)
		}
		_ = requesterror.Call(func() error {
			return x.Store(nil, []int{0}, make([]byte, 32), 32)
		})
		os.Exit(0)
	}
	child := exec.Command(os.Args[0], "-test.run=TestRecoverInTheIndex") //nolint:gosec // this test
	child.Env = append(os.Environ(), "HITLINE_TEST_PANIC=1")
	out, err := child.CombinedOutput()
	if code := child.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(out), "a fault of hitline, please report it: ") ||
		!strings.Contains(string(out), "index.(*Index).Store") {
		t.Fatalf("%d, %v: %s", code, err, out)
	}
}
