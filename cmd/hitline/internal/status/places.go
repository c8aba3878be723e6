package status

import "github.com/hitline/hitline/lookup/tokens"

// numPlaces is the number of places of tokens.
const numPlaces = int(tokens.NumPlaces)

// whereTexts say where the tokens of a place went.
var whereTexts = [numPlaces]string{
	tokens.Engine:   "the engine held them itself",
	tokens.InPool:   "the pool gave them",
	tokens.Emptied:  "the store was emptied",
	tokens.Evicted:  "the store evicted them",
	tokens.Saving:   "computed just now",
	tokens.Partial:  "only some ranks or groups have them",
	tokens.Unsaved:  "computed, and never saved",
	tokens.NoAnswer: "the store did not answer, or too late",
	tokens.Rules:    "no pool could give them",
	tokens.New:      "nobody asked for them before",
}

// barOrder is the order of places in a bar: what was given first, then what was lost, then what nobody can mend.
var barOrder = []tokens.Place{
	tokens.Engine, tokens.InPool, tokens.Evicted, tokens.Unsaved, tokens.Partial, tokens.Emptied, tokens.Saving, tokens.NoAnswer, tokens.Rules, tokens.New,
}
