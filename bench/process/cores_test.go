//go:build linux

package process

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func upTo(n int) []int {
	var numbers []int
	for i := range n {
		numbers = append(numbers, i)
	}
	return numbers
}

// siblings describes CPUs, of which some share cores.
func siblings(lists map[int]string) fstest.MapFS {
	cpus := fstest.MapFS{}
	for core, list := range lists {
		cpus[fmt.Sprintf("cpu%d/topology/thread_siblings_list", core)] = &fstest.MapFile{Data: []byte(list)}
	}
	return cpus
}

// Threads of one core may be numbered next to each other, or a half apart.
func TestHalves(t *testing.T) {
	apart := map[int]string{0: "0,4\n", 1: "1,5\n", 2: "2,6\n", 3: "3,7\n", 4: "0,4\n", 5: "1,5\n", 6: "2,6\n", 7: "3,7\n"}
	for name, tt := range map[string]struct {
		cores          []int
		siblings       map[int]string
		client, server []int
		shared         bool
	}{
		"none known":      {nil, nil, nil, nil, true},
		"one":             {[]int{5}, nil, []int{5}, []int{5}, true},
		"two":             {[]int{5, 7}, nil, []int{5}, []int{7}, false},
		"two of one core": {[]int{0, 1}, map[int]string{0: "0-1\n", 1: "0-1\n"}, []int{0}, []int{1}, false},
		"odd":             {upTo(5), nil, []int{0, 1}, []int{2, 3, 4}, false},
		"a half apart":    {upTo(8), apart, []int{0, 4, 1, 5}, []int{2, 6, 3, 7}, false},
		"three cores":     {[]int{0, 1, 2, 4, 5, 6}, apart, []int{0, 4}, []int{1, 5, 2, 6}, false},
		"neighbours":      {[]int{8, 4, 11, 9, 5, 10}, map[int]string{8: "8-9\n", 9: "8-9\n", 4: "0,4\n", 10: "?"}, []int{4, 5}, []int{8, 9, 10, 11}, false},
		"single ones too": {upTo(6), map[int]string{0: "0-3", 1: "0-3", 2: "0-3", 3: "0-3"}, []int{0, 1, 2, 3}, []int{4, 5}, false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, Placement{tt.client, tt.server, tt.shared}, Halves(tt.cores, siblings(tt.siblings)))
		})
	}
}

func TestPlacement(t *testing.T) {
	own, shared := Placement{Client: []int{0}, Server: []int{1}}, Placement{Client: []int{0}, Server: []int{0}, Shared: true}
	text, err := json.Marshal(own)
	require.NoError(t, err)
	assert.JSONEq(t, `{"client_cores":[0],"server_cores":[1],"shared_cores":false}`, string(text))
	assert.Equal(t, []int{1}, own.ServerCores())
	assert.Equal(t, []int{0}, own.ClientCores())
	assert.Nil(t, shared.ServerCores())
	assert.Nil(t, shared.ClientCores())
}

func TestPinClient(t *testing.T) {
	cores, err := Cores()
	require.NoError(t, err)
	set := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(set)
	runtime.SetDefaultGOMAXPROCS()
	procs := runtime.GOMAXPROCS(0)
	for _, p := range []Placement{{Client: cores, Server: cores, Shared: true}, Halves(cores, SystemCPUs())} {
		undo, err := p.PinClient()
		require.NoError(t, err)
		now, err := Cores()
		require.NoError(t, err)
		assert.ElementsMatch(t, p.Client, now)
		undo()
		now, err = Cores()
		require.NoError(t, err)
		assert.Equal(t, cores, now)
		assert.Equal(t, procs, runtime.GOMAXPROCS(0))
	}
}
