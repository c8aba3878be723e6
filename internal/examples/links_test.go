package examples

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// TestLinks resolves every link of every Markdown page that leads into the repository, also by the address of its main
// branch: the file must exist, and the heading if one is named. So must files that pages name in back quotes.
func TestLinks(t *testing.T) {
	files := repositoryFiles(t)
	pages := map[string]linkedPage{}
	for file := range files {
		if path.Ext(file) == ".md" {
			pages[file] = readLinks(t, file)
		}
	}
	require.Contains(t, pages, "docs/operations.md")
	for file, page := range pages {
		if !strings.HasPrefix(file, ".github/") { // templates begin with text
			assert.NotEmpty(t, page.anchors, "%s has no heading", file)
		}
		for _, link := range page.links {
			if problem := resolve(file, link, files, pages); problem != "" {
				t.Errorf("%s: %s", file, problem)
			}
		}
		if isHistory(file) {
			continue
		}
		for _, name := range page.paths {
			name = path.Clean(name)
			if top, _, _ := strings.Cut(name, "/"); files[top] && !files[name] {
				t.Errorf("%s names `%s`, which does not exist", file, name)
			}
		}
	}
	// Programs, configurations and dashboards name pages too.
	for file := range files {
		if extension := path.Ext(file); !namesPages[extension] && path.Base(file) != "Makefile" && !isScript(t, file) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)
		for _, named := range absoluteLink.FindAllString(string(content), -1) {
			if problem := resolve(file, strings.TrimRight(named, ".,"), files, pages); problem != "" {
				t.Errorf("%s: %s", file, problem)
			}
		}
		for _, named := range pageName.FindAllStringSubmatch(string(content), -1) {
			if !files[named[1]] {
				t.Errorf("%s names %s, which does not exist", file, named[1])
			}
		}
	}
}

// namesPages has the extensions of the files, beside Markdown, whose text names pages.
var namesPages = map[string]bool{
	".go": true, ".py": true, ".mjs": true, ".json": true, ".yaml": true, ".yml": true, ".tpl": true, ".toml": true, ".txt": true, ".service": true,
}

// isScript reports whether a file begins as one of a shell or of Python.
func isScript(t *testing.T, file string) bool {
	t.Helper()
	if path.Ext(file) != "" {
		return false
	}
	info, err := os.Stat(filepath.Join(root, file))
	require.NoError(t, err)
	if !info.Mode().IsRegular() {
		return false
	}
	content, err := os.ReadFile(filepath.Join(root, file))
	require.NoError(t, err)
	return strings.HasPrefix(string(content), "#!")
}

const onMain = "https://github.com/hitline/hitline/blob/main/"

var (
	absoluteLink = regexp.MustCompile(regexp.QuoteMeta(onMain) + `[\w./#-]+`)
	pageName     = regexp.MustCompile(`(?:^|[\s("'])(docs/[\w/-]+\.md)\b`)
	htmlLink     = regexp.MustCompile(`\b(?:src|srcset|href)="([^"]*)"`)
	filePath     = regexp.MustCompile(`^[\w.-]+(?:/[\w.-]+)+/?$`)
	htmlAnchor   = regexp.MustCompile(`\bid="([^"]*)"`)
)

// A linkedPage has what a Markdown page links to, and what others can link to in it.
type linkedPage struct {
	links   []string
	paths   []string // in back quotes, what may be files of the repository
	anchors map[string]bool
}

// repositoryFiles returns the files and folders of the repository by their paths in it, without what is built.
func repositoryFiles(t *testing.T) map[string]bool {
	t.Helper()
	files := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err = filepath.Rel(root, name)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		switch base := path.Base(name); {
		case name == "bin", name == "dist", base == "node_modules", base == "__pycache__",
			strings.HasPrefix(base, ".") && name != "." && base != ".github" && base != ".ci":
			if entry.IsDir() {
				return filepath.SkipDir
			}
		}
		files[name] = true
		return nil
	}))
	return files
}

func readLinks(t *testing.T, file string) linkedPage {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, file))
	require.NoError(t, err)
	return parseLinks(t, source)
}

func parseLinks(t *testing.T, source []byte) linkedPage {
	t.Helper()
	page := linkedPage{anchors: map[string]bool{}}
	document := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	require.NoError(t, ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch node := node.(type) {
		case *ast.Heading:
			page.addAnchor(anchorOf(plainText(node, source)))
		case *ast.Link:
			page.links = append(page.links, string(node.Destination))
		case *ast.Image:
			page.links = append(page.links, string(node.Destination))
		case *ast.CodeSpan:
			if span := plainText(node, source); filePath.MatchString(span) {
				page.paths = append(page.paths, span)
			}
		case *ast.HTMLBlock:
			page.addHTML(string(node.Lines().Value(source)))
		case *ast.RawHTML:
			page.addHTML(string(node.Segments.Value(source)))
		}
		return ast.WalkContinue, nil
	}))
	// Text in brackets whose reference is not defined stays text: [name][] and [text][name].
	for _, undefined := range regexp.MustCompile(`\][\[][\w -]*\]`).FindAllString(paragraphs(document, source), -1) {
		page.links = append(page.links, "undefined reference "+undefined)
	}
	return page
}

func (page *linkedPage) addHTML(html string) {
	for _, link := range htmlLink.FindAllStringSubmatch(html, -1) {
		page.links = append(page.links, link[1])
	}
	for _, anchor := range htmlAnchor.FindAllStringSubmatch(html, -1) {
		page.anchors[anchor[1]] = true
	}
}

// addAnchor adds the anchor of a heading. Of equal ones the second gets -1, the third -2.
func (page *linkedPage) addAnchor(anchor string) {
	name := anchor
	for i := 1; page.anchors[name]; i++ {
		name = fmt.Sprintf("%s-%d", anchor, i)
	}
	page.anchors[name] = true
}

// anchorOf returns the anchor that GitHub gives to a heading: in lower case, spaces as hyphens, punctuation left out.
func anchorOf(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ' || r == '-':
			return '-'
		case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
}

// plainText returns the text of a node without its marks.
func plainText(node ast.Node, source []byte) string {
	var plain strings.Builder
	for child := node.FirstChild(); child != nil; child = child.NextSibling() {
		if piece, ok := child.(*ast.Text); ok {
			plain.Write(piece.Value(source))
			if piece.SoftLineBreak() {
				plain.WriteByte(' ')
			}
			continue
		}
		plain.WriteString(plainText(child, source))
	}
	return plain.String()
}

// paragraphs returns the text of a document outside of code.
func paragraphs(document ast.Node, source []byte) string {
	var plain strings.Builder
	_ = ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		switch node := node.(type) {
		case *ast.CodeSpan:
			return ast.WalkSkipChildren, nil
		case *ast.Text:
			if entering {
				plain.Write(node.Value(source))
			}
		default:
			if node.Type() == ast.TypeBlock {
				plain.WriteByte('\n')
			}
		}
		return ast.WalkContinue, nil
	})
	return plain.String()
}

// resolve says what is wrong with a link of a file, or returns "".
func resolve(file, link string, files map[string]bool, pages map[string]linkedPage) string {
	inside, absolute := strings.CutPrefix(link, onMain)
	if absolute {
		link = inside
	}
	target, err := url.Parse(link)
	if err != nil {
		return err.Error()
	}
	if target.Host != "" || target.Scheme != "" {
		return ""
	}
	to := file
	switch {
	case absolute:
		to = path.Clean(target.Path)
	case target.Path != "":
		to = path.Join(path.Dir(file), target.Path)
	}
	if !files[to] {
		return fmt.Sprintf("the link %q leads to %s, which does not exist", link, to)
	}
	if page, ok := pages[to]; target.Fragment != "" && (!ok || !page.anchors[target.Fragment]) {
		return fmt.Sprintf("the link %q leads to %s, which has no heading for #%s", link, to, target.Fragment)
	}
	return ""
}

func TestParseLinks(t *testing.T) {
	page := parseLinks(t, []byte("# The `a.b[]` of _it_, 2×\n\n## Same\n\n## Same\n\n[a](x.md#y), `[b](code.md)`, ![c](c.svg)\n\n"+
		"| [d](d.md) |\n|---|\n| [e][ref] [f][none] |\n\n    [g](block.md)\n\n<img src=\"h.png\">\n\n<a id=\"i\"></a>`lookup/x.go`, `x.go`, `a/b c`\n\n[ref]: e.md\n"))
	assert.ElementsMatch(t, []string{"x.md#y", "c.svg", "d.md", "e.md", "h.png", "undefined reference ][none]"}, page.links)
	assert.Equal(t, []string{"lookup/x.go"}, page.paths)
	assert.Equal(t, map[string]bool{"the-ab-of-it-2": true, "same": true, "same-1": true, "i": true}, page.anchors)
}

func TestResolve(t *testing.T) {
	files := map[string]bool{"README.md": true, "guide": true, "guide/a.md": true, "guide/b.svg": true}
	pages := map[string]linkedPage{"README.md": {}, "guide/a.md": {anchors: map[string]bool{"one": true}}}
	for _, link := range []string{"a.md", "a.md#one", "#one", "b.svg", "../README.md", "../guide", "https://example.com/x", onMain + "guide/a.md#one", "mailto:a@example.com"} {
		assert.Empty(t, resolve("guide/a.md", link, files, pages), link)
	}
	for _, link := range []string{"c.md", "a.md#two", "#two", "b.svg#one", "README.md", onMain + "a.md", onMain + "guide/a.md#two", "undefined reference ][x]"} {
		assert.NotEmpty(t, resolve("guide/a.md", link, files, pages), link)
	}
}
