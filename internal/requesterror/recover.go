package requesterror

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// ErrFault is wrapped by the errors of Recover.
var ErrFault = errors.New("a fault of hitline, please report it")

// Recover is deferred by what must not end the program: a panic becomes the error, which says where it was.
func Recover(err *error) {
	if why := recover(); why != nil {
		*err = fmt.Errorf("%w: %v%s", ErrFault, why, callers())
	}
}

// maxCallers bounds the functions that an error of Recover names.
const maxCallers = 6

// callers returns the functions that a panic has ended, on one line.
func callers() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	var text strings.Builder
	for named := 0; named < maxCallers; {
		frame, more := frames.Next()
		if !strings.HasPrefix(frame.Function, "runtime.") {
			fmt.Fprintf(&text, ", at %s (%s:%d)", filepath.Base(frame.Function), filepath.Base(frame.File), frame.Line)
			named++
		}
		if !more {
			break
		}
	}
	return text.String()
}
