package requesterror

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
)

// ErrFault is wrapped by the errors of Recover, Fault, Call and Run.
var ErrFault = errors.New("a fault of hitline, please report it")

// Recover is deferred by what must not end the program: a panic becomes the error, which says where it was.
// A panic in package index ends the program all the same, see Fault.
func Recover(err *error) {
	if why := recover(); why != nil {
		*err = fault(why)
	}
}

// Call calls f. A panic in it is the error, as with Recover.
func Call(f func() error) (err error) {
	defer Recover(&err)
	return f()
}

// Run is Call for what has no error.
func Run(f func()) (err error) {
	defer Recover(&err)
	f()
	return nil
}

// Fault returns the error of a panic to the deferred function that has recovered it. It does not return if the
// panic was in package index: a lock may be held, or a change made in part, so that the program would hang or
// answer wrongly. The goroutine then waits for the end, with all its locks.
func Fault(why any) error { return fault(why) }

// fault is called by what the deferred function has called.
func fault(why any) error {
	where, inIndex := callers()
	err := fmt.Errorf("%w: %v%s", ErrFault, why, where)
	if inIndex {
		fmt.Fprintf(os.Stderr, "hitline: %v\n\n%s", err, debug.Stack())
		os.Exit(exitFault)
	}
	return err
}

// exitFault is the exit code of a panic that nobody recovers.
const exitFault = 2

const (
	// maxCallers bounds the functions that an error of Recover names.
	maxCallers = 6
	// maxStack bounds those that are looked at. A deeper stack counts as in package index.
	maxStack = 512
)

const indexPackage = "github.com/hitline/hitline/index."

// callers returns the functions on the stack of the panic, on one line, and whether one of package index is among
// them.
func callers() (where string, inIndex bool) {
	pcs := make([]uintptr, maxStack)
	n := runtime.Callers(4, pcs)
	frames := runtime.CallersFrames(pcs[:n])
	inIndex = n == maxStack
	var text strings.Builder
	for named := 0; ; {
		frame, more := frames.Next()
		if named < maxCallers && frame.Function != "" && !strings.HasPrefix(frame.Function, "runtime.") {
			fmt.Fprintf(&text, ", at %s (%s:%d)", filepath.Base(frame.Function), filepath.Base(frame.File), frame.Line)
			named++
		}
		if strings.HasPrefix(frame.Function, indexPackage) {
			inIndex = true
		}
		if !more {
			return text.String(), inIndex
		}
	}
}
