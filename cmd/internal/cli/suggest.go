package cli

import (
	"errors"
	"strconv"
	"strings"

	"github.com/agext/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// longestName is longer than any name, and bounds the time that the search for the nearest takes.
const longestName = 64

// Nearest returns the name that a mistyped one probably means: the one with one more letter at the end, or that has all
// its words, or begins as it does, or that the fewest edits lead to; the first of equals. It returns "" if none is near.
// Words that both names begin or end with do not count: beyond a third of the other letters a guess would
// mislead more than help.
func Nearest(mistyped string, names []string) (nearest string) {
	if mistyped == "" || len(mistyped) > longestName {
		return ""
	}
	fewest := longestName
	for _, name := range names {
		if len(name) == len(mistyped)+1 && strings.HasPrefix(name, mistyped) { // --token is --tokens, not --token-file
			return name
		}
		if edits := editsTo(name, mistyped); edits < fewest {
			nearest, fewest = name, edits
		}
	}
	return nearest
}

// editsTo returns how many edits of the words that differ lead to a name, longestName if they are too many.
func editsTo(name, mistyped string) int {
	typed, want := words(mistyped), words(name)
	for len(typed) > 0 && len(want) > 0 && typed[0] == want[0] {
		typed, want = typed[1:], want[1:]
	}
	for len(typed) > 0 && len(want) > 0 && typed[len(typed)-1] == want[len(want)-1] {
		typed, want = typed[:len(typed)-1], want[:len(want)-1]
	}
	rest, other := strings.Join(typed, "_"), strings.Join(want, "_")
	switch edits := levenshtein.Distance(rest, other, nil); {
	case rest == "":
		return 0
	case len(rest) < 2 || other == "":
	case strings.HasPrefix(other, rest):
		return 0
	case edits <= min(len(rest)-2, (len(rest)+1)/3):
		return edits
	}
	return longestName
}

// words returns the words of a flag, a field or a variable in lower case.
func words(name string) []string {
	return strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return strings.ContainsRune("_-.", r) })
}

// suggestFlag adds to the error of an unknown flag which one may be meant, and to that of a bad
// value what to write. The root command refuses the command that the flag is for instead.
func suggestFlag(cmd *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return suggestValue(cmd, invalid)
	}
	missing, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	if args := cmd.Flags().Args(); !cmd.HasParent() && len(args) > 0 {
		return refuseUnknown(cmd, args)
	}
	mistyped := missing.GetSpecifiedName()
	if letters := missing.GetSpecifiedShortnames(); letters != "" { // as in -duration
		mistyped = strings.TrimLeft(letters, "-")
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := Nearest(mistyped, names); near != "" {
		return Usagef("%w; did you mean --%s?", err, near)
	}
	return err
}

// suggestValue replaces what package strconv says of a value by what to write. Errors of
// flags with a type of their own say it themselves.
func suggestValue(cmd *cobra.Command, invalid *pflag.InvalidValueError) error {
	f, value := invalid.GetFlag(), invalid.GetValue()
	if long := f.Shorthand + value; f.Shorthand != "" && cmd.Flags().Lookup(long) != nil { // -duration is -d uration
		return Usagef("%w; did you mean --%s?", invalid, long)
	}
	want := map[string]string{
		"int": "write a whole number", "uint": "write a whole number, 0 or more", "float": "write a number",
		"intSlice": "write whole numbers, such as 1,64", "floatSlice": "write numbers, such as 0.5,100", "bool": "write true or false",
	}[strings.NewReplacer("64", "", "32", "", "16", "", "8", "").Replace(f.Value.Type())]
	number, isNumber := errors.AsType[*strconv.NumError](invalid)
	switch {
	case want == "" || !isNumber:
		return invalid
	case errors.Is(number, strconv.ErrRange):
		want = "the number is out of range"
	}
	text := strings.TrimSuffix(invalid.Error(), invalid.Unwrap().Error())
	return Usagef("%s%s", text, want)
}

// refuseUnknown returns an error for arguments of the root command: they name no command.
func refuseUnknown(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() && cmd.Name() != "help" {
			names = append(names, cmd.Name())
		}
	}
	if near := Nearest(args[0], names); near != "" {
		return Usagef("unknown command %q; did you mean %s?", args[0], near)
	}
	return Usagef("unknown command %q; one of %s", args[0], strings.Join(names, ", "))
}
