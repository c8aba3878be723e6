package status

import "github.com/hitline/hitline/lookup/tokens"

// numPlaces is the number of places of tokens.
const numPlaces = int(tokens.NumPlaces)

// Place is a place of tokens for people.
type Place struct {
	Name string // the label of metrics
	What string // where the tokens went
	Cure string // what to do about it, "" if there is nothing to do
	Lost bool
}

// places are in the order of package tokens.
var places = [numPlaces]Place{
	tokens.Engine:   {What: "the engine held them itself"},
	tokens.InPool:   {What: "the pool gave them"},
	tokens.Emptied:  {What: "the store was emptied", Cure: "find out who resets or restarts the store, or evicts blocks by request", Lost: true},
	tokens.Evicted:  {What: "the store evicted them", Cure: "make the pool larger: see how large it should be", Lost: true},
	tokens.Saving:   {What: "another engine computes them just now", Cure: "nothing, unless it is much: send equal prompts to one engine", Lost: true},
	tokens.Partial:  {What: "only some ranks or groups have them", Cure: "look for a rank whose puts fail, and at what a hybrid's engine saves", Lost: true},
	tokens.Unsaved:  {What: "they were computed, and never saved", Cure: "look for puts that fail: a full or leased segment, a quota, an engine that only loads", Lost: true},
	tokens.NoAnswer: {What: "the store did not answer, or too late", Cure: "look at the store below: late, failing, or busy"},
	tokens.Rules:    {What: "no pool could give them", Cure: "smaller scheduler blocks; EAGLE drops a block of each prompt"},
	tokens.New:      {What: "nobody asked for them before"},
}

func init() {
	for i := range places {
		places[i].Name = tokens.Place(i).String()
	}
}
