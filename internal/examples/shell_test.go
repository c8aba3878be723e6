package examples

import (
	"fmt"
	"regexp"
	"strings"
)

func position(page string, line int) string { return fmt.Sprintf("%s:%d", page, line) }

// commandLines returns the complete commands of a block: lines, joined where a quotation or a backslash at the end of
// a line goes on. Where lines begin with "$ ", the others are what these print, and left out.
func commandLines(block string) []string {
	prompted := regexp.MustCompile(`(?m)^\$ `).MatchString(block)
	var commands []string
	var pending string
	for _, line := range strings.Split(block, "\n") {
		if pending == "" {
			var command bool
			if line, command = strings.CutPrefix(line, "$ "); prompted && !command {
				continue
			}
		}
		pending += line
		if scan(pending).open {
			pending += "\n"
			continue
		}
		if strings.TrimSpace(scan(pending).code) != "" {
			commands = append(commands, pending)
		}
		pending = ""
	}
	if pending != "" {
		commands = append(commands, pending)
	}
	return commands
}

// scanned is what scan finds in a text for a shell.
type scanned struct {
	code     string    // the text, with blanks in place of comments
	open     bool      // a quotation has not ended, or the last line ends with a backslash
	segments []segment // its simple commands
}

// A segment is a simple command in a text: from a word to the next operator or redirection.
type segment struct {
	begin, end int
}

// scan knows as much of a shell's syntax as examples have: quotations, comments, operators.
func scan(text string) scanned {
	code := []byte(text)
	var s scanned
	var begin int
	var quote, operator byte
	endSegment := func(at int) {
		part := string(code[begin:at])
		if operator == '<' || operator == '>' { // its first word is a file
			file := redirected.FindString(part)
			begin += len(file)
			part = part[len(file):]
		}
		if word := strings.TrimLeft(part, " "); strings.TrimSpace(word) != "" {
			s.segments = append(s.segments, segment{begin + len(part) - len(word), at})
		}
		begin = at + 1
		if at < len(code) {
			operator = code[at]
		}
	}
	for i := 0; i < len(code); i++ {
		c := code[i]
		switch {
		case c == '$' && quote != '\'' && i+1 < len(code) && code[i+1] == '(':
			i += substitution(code[i:]) - 1
		case quote != 0:
			if c == '\\' && quote == '"' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '\\':
			if i == len(code)-1 {
				s.open = true
			}
			i++
		case c == '\'' || c == '"':
			quote = c
		case c == '#' && (i == 0 || code[i-1] == ' ' || code[i-1] == '\n'):
			for i < len(code) && code[i] != '\n' {
				code[i] = ' '
				i++
			}
			i--
		case c == '&' && i > 0 && code[i-1] == '>': // 2>&1
		case strings.IndexByte("|&;()<>\n", c) >= 0:
			endSegment(i)
		}
	}
	endSegment(len(code))
	s.open = s.open || quote != 0
	s.code = string(code)
	return s
}

// substitution returns the length of the command substitution that a text begins with.
func substitution(text []byte) int {
	depth := 0
	for i, c := range text {
		switch c {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

var (
	keyword    = regexp.MustCompile(`^(?:until|while|do|then|if|done|fi)\b\s*`)
	assignment = regexp.MustCompile(`^[A-Za-z_]+=(?:'[^']*'|"[^"]*"|[^\s'"])*\s+`)
	scheduler  = regexp.MustCompile(`^chrt -r \d+\s+`)
	redirected = regexp.MustCompile(`^ *\S*`)
	descriptor = regexp.MustCompile(` \d$`) // of a redirection: 2>file
)

// simpleCommand returns a simple command without what may stand in front of its name, and the place in text behind it.
func simpleCommand(text string, s segment) (command string, end int) {
	command = text[s.begin:s.end]
	if s.end < len(text) && text[s.end] == '>' {
		command = descriptor.ReplaceAllString(command, "")
	}
	command = strings.TrimRight(command, " ")
	end = s.begin + len(command)
	for before := ""; before != command; {
		before = command
		for _, prefix := range []*regexp.Regexp{keyword, assignment, scheduler} {
			command = strings.TrimSpace(prefix.ReplaceAllString(command, ""))
		}
	}
	return command, end
}

// simpleCommands returns the simple commands of a command line, "bin/" in front of our programs left out.
func simpleCommands(line string) []string {
	s := scan(line)
	var commands []string
	for _, part := range s.segments {
		if command, _ := simpleCommand(s.code, part); command != "" {
			commands = append(commands, strings.TrimPrefix(command, "bin/"))
		}
	}
	return commands
}
