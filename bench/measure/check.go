package measure

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Checks of options. Each returns nil, or an error that wraps [ErrOptions] and says what
// was given and what may be given. cmp.Or of several is the first that fails.

// BadOptions returns an error of options that has no check of its own.
func BadOptions(format string, values ...any) error {
	return fmt.Errorf("%w: %s", ErrOptions, fmt.Sprintf(format, values...))
}

// CheckRange wants least <= n <= most; what is the plural of that which is counted.
func CheckRange[N ~int | ~int64 | ~float64](what string, n, least, most N) error {
	if n >= least && n <= most { // not a number is neither
		return nil
	}
	return BadOptions("%v %s; give %v to %v", n, what, least, most)
}

// CheckList wants at least one number, each of them within bounds and there once; what is the plural of
// that which is counted.
func CheckList(what string, numbers []int, least, most int) error {
	if len(numbers) == 0 {
		return BadOptions("no number of %s", what)
	}
	for i, n := range numbers {
		if err := CheckRange(what, n, least, most); err != nil {
			return err
		}
		if slices.Contains(numbers[:i], n) {
			return BadOptions("%s %v: one of them is there twice", what, numbers)
		}
	}
	return nil
}

// CheckShare wants a share between 0 and 1; what says of what it is, such as "of lookups that hit".
func CheckShare(what string, share float64) error {
	if share >= 0 && share <= 1 {
		return nil
	}
	return BadOptions("a share of %v %s; give 0 to 1", share, what)
}

// CheckPositive wants a time above 0; what goes with an article, such as "a timeout".
func CheckPositive(what string, d time.Duration) error {
	if d > 0 {
		return nil
	}
	return BadOptions("%s of %v; it must be positive", what, d)
}

// CheckOneOf wants one of the known names; what is such as "a miss at".
func CheckOneOf[S ~string](what string, name S, known ...S) error {
	if slices.Contains(known, name) {
		return nil
	}
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = string(k)
	}
	return BadOptions("%s %q; there are %s", what, name, strings.Join(names, ", "))
}
