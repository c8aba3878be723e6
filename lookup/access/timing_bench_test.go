package access

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/hitline/hitline/internal/lookuptest"
)

// BenchmarkWrongTokens measures whether the time of FindToken tells how much of a wrong token is
// right: see lookuptest.CompareTimes.
func BenchmarkWrongTokens(b *testing.B) {
	right := []byte("0Wk3vQ9hZJ2mT7xYp4sLrB8nC1dF6gHa")
	credentials := []Credential{{Name: "right", Digest: DigestOf(right)}}
	for i := range 99 {
		name := fmt.Sprint("other ", i)
		credentials = append(credentials, Credential{Name: name, Digest: DigestOf([]byte(name))})
	}
	rules, err := NewRules(Ping, credentials)
	if err != nil {
		b.Fatal(err)
	}
	var calls []lookuptest.TimedCall
	for _, shared := range []int{0, len(right) / 2, len(right) - 1} {
		wrong := bytes.Repeat([]byte("-"), len(right))
		copy(wrong, right[:shared])
		calls = append(calls, lookuptest.TimedCall{
			Name: fmt.Sprintf("%d of %d bytes right", shared, len(right)),
			Call: func() {
				if rules.FindToken(wrong) != nil {
					b.Fatal("found")
				}
			},
		})
	}
	calls = append(calls, lookuptest.TimedCall{Name: "the right token", Call: func() { rules.FindToken(right) }})
	lookuptest.CompareTimes(b, calls)
}
