package process

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
)

func TestOneCore(t *testing.T) {
	apart := map[int]string{0: "0,2\n", 1: "1,3\n", 2: "0,2\n", 3: "1,3\n"}
	for name, tt := range map[string]struct {
		client         int
		servers, cores []int
		siblings       map[int]string
		want           Placement
	}{
		"none known":        {-1, nil, nil, nil, Placement{Shared: true}},
		"one":               {-1, nil, []int{5}, nil, Placement{[]int{5}, []int{5}, true}},
		"two":               {-1, nil, []int{5, 7}, nil, Placement{[]int{5}, []int{7}, false}},
		"two of one core":   {-1, nil, []int{0, 1}, map[int]string{0: "0-1\n", 1: "0-1\n"}, Placement{[]int{0}, []int{1}, false}},
		"siblings are idle": {-1, nil, upTo(4), apart, Placement{[]int{0}, []int{1, 3}, false}},
		"another client":    {3, nil, upTo(4), apart, Placement{[]int{3}, []int{0, 2}, false}},
		"named":             {1, []int{0, 3}, upTo(4), apart, Placement{[]int{1}, []int{0, 3}, false}},
		"named servers":     {-1, []int{0}, upTo(4), apart, Placement{[]int{1}, []int{0}, false}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := OneCore(tt.client, tt.servers, tt.cores, siblings(tt.siblings))
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
	for want, f := range map[string]func() (Placement, error){
		"core 9 is not among":     func() (Placement, error) { return OneCore(9, nil, upTo(4), siblings(nil)) },
		"core 7 is not among":     func() (Placement, error) { return OneCore(0, []int{7}, upTo(4), siblings(nil)) },
		"core 1 is the client's ": func() (Placement, error) { return OneCore(1, []int{0, 1}, upTo(4), siblings(nil)) },
		"core 0 is the client's ": func() (Placement, error) { return OneCore(-1, upTo(4), upTo(4), siblings(nil)) },
	} {
		_, err := f()
		require.ErrorIs(t, err, measure.ErrOptions)
		assert.ErrorContains(t, err, want)
	}
}
