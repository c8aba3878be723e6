package eventstest

import (
	"fmt"
	"testing"
)

// Example stands for the test that New needs, in an example. It panics where a test fails.
type Example struct{ testing.TB }

func (Example) Helper()                      {}
func (Example) Cleanup(func())               {}
func (Example) Errorf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (Example) FailNow()                     { panic("the publisher failed") }
