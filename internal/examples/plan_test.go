package examples

import (
	"regexp"
	"slices"
	"strings"
)

// A plan is what to do with an example.
type plan struct {
	example
	lines   []string // command lines that run, in one script
	lookUp  []string // simple commands that do not: whether they exist
	unknown []string // names of programs that this test does not know
}

var programName = regexp.MustCompile(`\bhit(?:line|bench) [a-z-]`)

// makePlan returns what to do with an example, or nil if it has no command.
func makePlan(e example) *plan {
	if e.inline && !spanNames.MatchString(e.text) {
		return nil
	}
	p := &plan{example: e}
	known := false
	lines := commandLines(e.text)
	if e.inline {
		lines = []string{e.text}
	}
	for _, line := range lines {
		commands := simpleCommands(line)
		run := !isHistory(e.where) && scriptOf(e.where) == ""
		for _, c := range commands {
			name, _, _ := strings.Cut(c, " ")
			_, isTool := tools[name]
			reason := reasonOf(c)
			switch {
			case notCommand.MatchString(c):
				return nil
			case reason != "" || isReference(e, c):
				run = false
			case name != "hitline" && name != "hitbench" && !isTool:
				if scriptOf(e.where) != "" {
					continue
				}
				p.unknown = append(p.unknown, name)
				continue
			}
			known = known || !e.inline || c != name
		}
		if run {
			p.lines = append(p.lines, line)
		} else {
			p.lookUp = append(p.lookUp, commands...)
		}
	}
	if known || !e.inline && programName.MatchString(e.text) { // the latter fails, as nothing in it is known
		return p
	}
	return nil
}

// isHistory says whether a page tells of what was, so that its commands need only exist.
func isHistory(where string) bool {
	return strings.HasPrefix(where, "CHANGELOG.md") || strings.HasPrefix(where, "docs/decisions/")
}

// scriptOf returns the target of make that runs the page, or "".
func scriptOf(where string) string {
	page, _, _ := strings.Cut(where, ":")
	return scripted[page]
}

// isReference says whether a code span only names a command.
func isReference(e example, command string) bool {
	return e.inline && !strings.ContainsAny(command, "-/.") && len(strings.Fields(command)) <= 3 && command == strings.ToLower(command)
}

// reasonOf returns why a simple command is not run, or "".
func reasonOf(command string) string {
	for _, r := range rules {
		if r.reason != "" && r.command.MatchString(command) {
			r.used.Store(true)
			return r.reason
		}
	}
	return ""
}

// servers matches a command that serves.
var servers = regexp.MustCompile(`\bhitline serve\b`)

// edit returns a command line with what the rules replace and append, and has a server in the foreground run in the
// background.
func edit(line string) string {
	s := scan(line)
	for _, part := range slices.Backward(s.segments) {
		command, end := simpleCommand(s.code, part)
		edited := line[end-len(command) : end]
		name := strings.TrimPrefix(command, "bin/")
		for _, r := range rules {
			if r.command.MatchString(name) {
				r.used.Store(true)
				edited = strings.NewReplacer(r.replace...).Replace(edited)
				if r.flags != "" {
					edited += " " + r.flags
				}
			}
		}
		inBackground := strings.HasPrefix(strings.TrimSpace(s.code[end:]), "&")
		if strings.HasPrefix(name, "hitline serve") && !strings.Contains(name, "--check") && !inBackground {
			edited = "start_server " + edited
		}
		line = line[:end-len(command)] + edited + line[end:]
	}
	return line
}
