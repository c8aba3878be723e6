package storetest

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// PyzmqRelease is the release of pyzmq, and of the libzmq in it, that is tested
// with.
const PyzmqRelease = "27.3.0"

// PyzmqPython returns a Python that has PyzmqRelease. It is installed from PyPI,
// once: under HITLINE_TEST_VENV, or the user's cache.
func PyzmqPython(t testing.TB) string {
	t.Helper()
	dir, err := cached("HITLINE_TEST_VENV", "hitline-test-venv", "pyzmq-"+PyzmqRelease)
	if err != nil {
		Missing(t, "no Python with pyzmq: %v", err)
	}
	v := venv{dir: dir, pip: "pyzmq==" + PyzmqRelease}
	v.good = func() error {
		out, err := exec.Command(v.python(), "-c", "import zmq; print(zmq.__version__)").CombinedOutput()
		if err == nil && strings.TrimSpace(string(out)) != PyzmqRelease {
			err = fmt.Errorf("%s: pyzmq is not %s: %s", v.python(), PyzmqRelease, lastLine(out))
		}
		return err
	}
	if err := v.installed(); err != nil {
		Missing(t, "no Python with pyzmq %s: %v", PyzmqRelease, err)
	}
	return v.python()
}
