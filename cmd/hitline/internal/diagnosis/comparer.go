package diagnosis

import (
	"fmt"
	"strings"

	"github.com/hitline/hitline/coordinator"
)

// comparer compares the configured pool with what is in a store. Its methods named
// compare… add a problem for each difference. It is read-only and safe for concurrent use.
type comparer struct {
	rules *coordinator.Coordinator
	pool  coordinator.Pool // of rules; its Groups are the store groups
}

func newComparer(rules *coordinator.Coordinator) *comparer {
	pool := rules.Pool()
	pool.Groups = make([]coordinator.Group, rules.NumGroups())
	for g := range pool.Groups {
		pool.Groups[g] = rules.Group(g)
	}
	return &comparer{rules, pool}
}

// poolName returns what the keys of a pool begin with, before their ranks.
func poolName(rules *coordinator.Coordinator) string {
	prefix := rules.KeyPrefix(0, coordinator.Rank{})
	return prefix[:strings.LastIndex(prefix, "@tp_rank:")]
}

// joinNumbers writes numbers as an English list: 0, 1 and 2.
func joinNumbers(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = fmt.Sprint(n)
	}
	if last := len(texts) - 1; last > 0 {
		return strings.Join(texts[:last], ", ") + " and " + texts[last]
	}
	return strings.Join(texts, "")
}

// plural returns word, with an s unless n is 1.
func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
