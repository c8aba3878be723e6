package fielderror

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Texts of errors reach peers and users, who do not know the packages of this module. So none begins with the name of one.
func TestErrorsNameNoPackage(t *testing.T) {
	names := map[string]bool{}
	begins := map[string]string{} // the first word of an error's text, by place
	files := token.NewFileSet()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if entry.IsDir() && entry.Name() == "bench" { // whose errors begin with what is measured
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		names[parsed.Name.Name] = true
		ast.Inspect(parsed, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 0 {
				if word, ok := firstWord(call); ok {
					begins[files.Position(call.Pos()).String()] = word
				}
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	for _, name := range []string{"redis", "mooncake", "metrics", "conformance"} { // stores, a field, and a package of tests
		require.True(t, names[name])
		delete(names, name)
	}
	for place, word := range begins {
		require.False(t, names[word], "%s: an error begins with the package %s", place, word)
	}
}

// firstWord returns what stands before the first colon of the text of an error that a call makes.
func firstWord(call *ast.CallExpr) (string, bool) {
	literal, isLiteral := call.Args[0].(*ast.BasicLit)
	function, isSelector := call.Fun.(*ast.SelectorExpr)
	if !isLiteral || !isSelector || literal.Kind != token.STRING {
		return "", false
	}
	owner, isName := function.X.(*ast.Ident)
	if !isName || owner.Name+"."+function.Sel.Name != "errors.New" && owner.Name+"."+function.Sel.Name != "fmt.Errorf" {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	word, _, found := strings.Cut(text, ": ")
	return word, err == nil && found
}
