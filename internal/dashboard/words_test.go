package dashboard

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// banned are phrases of an earlier dialect of these pages. The terms that replace them are in
// docs/glossary.md.
var banned = []string{
	"looked at", "next look", "look again", "look into", "needs a look", "shown to be yours", "where it points", "led here", "seen now", "obtained by itself",
	"what it does", "send visitors to", "nowhere: it serves", "nothing but failures", "later and later", "tried again", "what was sent", "every answer",
	"turn off", "turn on", "turned off", "turned on", "turn it o", "on since", "send a test<", "send a test\"", "what was found", "nothing: files", "when the site was made", "folder to publish",
	"detect it<", "in force", "off the air", "on the air", "nobody came", "nobody is here", "into the environment of your shell", "keep it", "is not one", "answer is not right",
	"read here", "used for another request", "taken back", "take back", "being examined", "it stays", "welcome aboard", "somebody", "let in", "lets them", "come in", "came in",
	"second factor", "e-mail", "as if for the first time", "are left aside", "all well", "given up", "here since", "an address that deploys", "on our side", "in line,",
	"take it up", "hear of", "make yourself", "shown this one time", "goes with it", "the room", "colour",
}

// None of them is in a template or message.
func TestWordsOfTheField(t *testing.T) {
	t.Parallel()
	check := func(where, text string) {
		low := strings.ToLower(text)
		for _, phrase := range banned {
			if i := strings.Index(low, phrase); i >= 0 && !inWord(low, i, phrase) {
				t.Errorf("%s: %q in %q", where, phrase, text[max(0, i-30):min(len(text), i+len(phrase)+30)])
			}
		}
	}
	comments, code := regexp.MustCompile(`(?s)\{\{/\*.*?\*/\}\}`), regexp.MustCompile(`data-[a-z-]+="[^"]*"|class="[^"]*"|\$\.?[\w.$]+`)
	files, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil || len(files) < 40 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := templateFiles.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(code.ReplaceAllString(comments.ReplaceAllString(string(b), ""), ""), "\n") {
			check(f+":"+strconv.Itoa(i+1), line)
		}
	}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && strings.Contains(l.Value, " ") {
				found++
				check(name, l.Value)
			}
			return true
		})
	}
	if found < 200 {
		t.Errorf("only %d messages were scanned", found)
	}
}

// inWord reports whether a hit is only a piece of a longer word.
func inWord(text string, at int, phrase string) bool {
	letter := func(i int) bool { return i >= 0 && i < len(text) && text[i] >= 'a' && text[i] <= 'z' }
	return letter(at-1) && letter(at) || phrase != "colour" && letter(at+len(phrase)-1) && letter(at+len(phrase)) && !strings.HasSuffix(phrase, " o")
}
