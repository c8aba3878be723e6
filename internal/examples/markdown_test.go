package examples

import (
	"regexp"
	"strings"
)

// An example is what a reader is shown to type: a block of lines, or a command line in back quotes.
type example struct {
	where  string // page:line, or the command whose help it is from
	text   string
	inline bool   // in back quotes, in a sentence
	config string // hitline.yaml, "" for the usual one
}

// shellFences are the languages of fences whose text is for a shell.
var shellFences = map[string]bool{"": true, "sh": true, "bash": true, "shell": true, "console": true}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// A pageReader collects the examples of a Markdown page.
type pageReader struct {
	examples  []example
	yaml      []string // texts of the fences of YAML
	page      string
	paragraph []string
	first     int // line of the paragraph or block, from 1 on
}

// readPage returns the blocks for a shell, the code spans, and the fences of YAML of a page.
func readPage(page, text string) ([]example, []string) {
	r := pageReader{page: page}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); {
		line := lines[i]
		switch language, fenced := strings.CutPrefix(strings.TrimSpace(line), "```"); {
		case fenced:
			r.endParagraph()
			end := i + 1
			for end < len(lines) && strings.TrimSpace(lines[end]) != "```" {
				end++
			}
			r.addFence(language, i+2, lines[i+1:min(end, len(lines))])
			i = end + 1
		case strings.HasPrefix(line, "    ") && len(r.paragraph) == 0:
			end := i
			for end < len(lines) && (strings.HasPrefix(lines[end], "    ") || strings.TrimSpace(lines[end]) == "") {
				end++
			}
			r.addBlock(i+1, lines[i:end])
			i = end
		case strings.TrimSpace(line) == "":
			r.endParagraph()
			i++
		default:
			if len(r.paragraph) == 0 {
				r.first = i + 1
			}
			r.paragraph = append(r.paragraph, line)
			i++
		}
	}
	r.endParagraph()
	return r.examples, r.yaml
}

func (r *pageReader) addFence(language string, at int, lines []string) {
	switch {
	case language == "yaml":
		r.yaml = append(r.yaml, strings.Join(lines, "\n")+"\n")
	case shellFences[language]:
		r.addBlock(at, lines)
	}
}

func (r *pageReader) addBlock(at int, lines []string) {
	r.examples = append(r.examples, example{where: position(r.page, at), text: dedent(lines)})
}

// endParagraph adds the code spans of the paragraph, which may go over the ends of lines.
func (r *pageReader) endParagraph() {
	text := strings.Join(r.paragraph, "\n")
	r.paragraph = nil
	for _, span := range codeSpan.FindAllStringSubmatchIndex(text, -1) {
		at := r.first + strings.Count(text[:span[0]], "\n")
		code := strings.NewReplacer("\n", " ", `\|`, "|").Replace(text[span[2]:span[3]])
		r.examples = append(r.examples, example{where: position(r.page, at), text: strings.Join(strings.Fields(code), " "), inline: true})
	}
}

// dedent takes the indentation of the first line off all.
func dedent(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	indent := lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], " "))]
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(strings.TrimRight(strings.TrimPrefix(line, indent), " ") + "\n")
	}
	return strings.TrimRight(text.String(), "\n")
}
