package storetest

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// pyzmqRelease is the release of pyzmq that tests use. It includes libzmq.
const pyzmqRelease = "27.3.0"

// PyzmqPython returns the path of a Python with pyzmqRelease. It installs it from PyPI once,
// below the directory HITLINE_TEST_VENV or in the user's cache.
func PyzmqPython(t testing.TB) string {
	t.Helper()
	dir, err := cacheDir("HITLINE_TEST_VENV", "hitline-test-venv", "pyzmq-"+pyzmqRelease)
	if err != nil {
		SkipOrFail(t, "no Python with pyzmq: %v", err)
	}
	v := venv{dir: dir, packages: []string{"pyzmq==" + pyzmqRelease}}
	v.verify = func() error {
		out, err := exec.Command(v.python(), "-c", "import zmq; print(zmq.__version__)").CombinedOutput()
		if err == nil && strings.TrimSpace(string(out)) != pyzmqRelease {
			err = fmt.Errorf("%s: pyzmq is not %s: %s", v.python(), pyzmqRelease, lastLine(out))
		}
		return err
	}
	if err := v.install(); err != nil {
		SkipOrFail(t, "no Python with pyzmq %s: %v", pyzmqRelease, err)
	}
	return v.python()
}
