package slipway

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// phrases are those of an earlier dialect of the product. Nothing that a person reads has
// one: no page, message, email, log line, command help, OpenAPI description or document. The
// terms that replace them are in docs/glossary.md.
var phrases = []string{
	"looked at", "next look", "look again", "look into", "needs a look", "shown to be yours", "where it points",
	"led here", "seen now", "obtained by itself", "what it does", "send visitors to", "nowhere: it serves",
	"nothing but failures", "later and later", "tried again", "what was sent", "every answer", "turn off", "turn on",
	"turned off", "turned on", "turn it o", "on since", "send a test<", "send a test\"", "what was found",
	"nothing: files", "when the site was made", "folder to publish", "detect it<", "in force", "off the air",
	"on the air", "nobody came", "nobody is here", "into the environment of your shell", "keep it", "is not one",
	"answer is not right", "read here", "used for another request", "taken back", "take back", "being examined",
	"it stays", "welcome aboard", "somebody", "let in", "lets them", "come in", "came in", "second factor", "e-mail",
	"as if for the first time", "are left aside", "all well", "given up", "here since", "an address that deploys",
	"on our side", "in line,", "take it up", "hear of", "make yourself", "shown this one time", "goes with it",
	"the room", "colour", "is judged", "are judged", "is left out", "are left out", "left out:", "passed over",
	"stays behind", "thrown away", "leads out", "in circles", "starts anew", "starting anew", "today's settings",
	"nobody sells", "can't be anybody", "log says why", "says nothing without", "is none of", "the way out",
	"way out:", "makes no sense", "trouble of its own", "put right", "let go of", "gave up", "not there yet",
	"works as pasted", "for ever", "ever after", "play no part", "plays no part", "keep nobody out", "switched off",
	"is on its way", "of their own accord", "calls to make", "at this place", "at that place", "has no end",
	"gives no answer", "is no event", "of yours has", "for want of", "scratch place", "is over\"",
	"all of it was here", "holds none", "room left on", "looks again", "start anew", "is at hand", "hears of",
	"stand in the", "stands in the", "stands in a", "lies in `", "lies beside", "lie beside",
	"beside the one that is there", "made when first", "whoever trusts", "what goes wrong",
}

// words are those of an earlier dialect of the code: no comment and no name has one.
var words = regexp.MustCompile(`(?i)\b(houses?|portraits?|portrayed|judge[sd]?|astray|workshops?|(the|these|which|our|other) rooms?)\b`)

// isWhat begins a comment that Go would begin with what the thing does or holds.
var isWhat = regexp.MustCompile(`(?m)^\w+ (is|are) what `)

// stored names columns that migrations can't rename while nodes of two versions share a
// database (docs/adr/0011-stored-names.md), and what test data is called.
var stored = regexp.MustCompile(`portraits\b|astray_at|photo-portrait|warehouse`)

func TestWords(t *testing.T) {
	t.Parallel()
	check := func(where, text string) {
		low := strings.ToLower(text)
		for _, phrase := range phrases {
			if i := strings.Index(low, phrase); i >= 0 && !inWord(low, i, phrase) {
				t.Errorf("%s: %q in %q", where, phrase, text[max(0, i-50):min(len(text), i+len(phrase)+50)])
			}
		}
	}
	var messages, pages int
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (d.Name() == "testdata" || strings.HasPrefix(
			d.Name(),
			".",
		) || !tracked[strings.SplitN(path, "/", 2)[0]]), path == "docs/adr":
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go"):
			messages += readSource(t, path, check)
		case strings.HasSuffix(path, ".html") || strings.HasSuffix(path, ".md") && path != "CHANGELOG.md":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line := 1
			for paragraph := range strings.SplitSeq(markup.ReplaceAllString(string(text), ""), "\n\n") {
				check(path+":"+strconv.Itoa(line), strings.Join(strings.Fields(paragraph), " ")) // a phrase may go on in the next line
				line += strings.Count(paragraph, "\n") + 2
			}
			pages++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if messages < 2000 || pages < 50 {
		t.Errorf("only %d messages and %d pages were read", messages, pages)
	}
}

// tracked are the folders with what people read, or write.
var tracked = map[string]bool{"internal": true, "cmd": true, "docs": true, "e2e": true, "bench": true, "scripts": true}

var (
	markup = regexp.MustCompile(`(?s)\{\{/\*.*?\*/\}\}|data-[a-z-]+="[^"]*"|class="[^"]*"|\$\.?[\w.$]+`) // template comments and attributes
	sql    = regexp.MustCompile(`(?s)^\s*(SELECT|INSERT|UPDATE|DELETE|WITH|FROM|JOIN|AND|WHERE)\b`)
)

// readSource checks the comments and names of a Go file and, where it isn't a test, its
// messages. It returns how many there are.
func readSource(t *testing.T, path string, check func(where, text string)) (messages int) {
	if path == "words_test.go" {
		return 0
	}
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range f.Comments {
		text := g.Text()
		if s := isWhat.FindString(text); s != "" {
			t.Errorf("%s: %q: say what it does or holds", set.Position(g.Pos()), s)
		}
		if w := words.FindString(stored.ReplaceAllString(text, "")); w != "" {
			t.Errorf("%s: %q in a comment", set.Position(g.Pos()), w)
		}
	}
	shown := !strings.HasSuffix(path, "_test.go") && (strings.HasPrefix(path, "internal/") || strings.HasPrefix(path, "cmd/"))
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if w := words.FindString(camel.ReplaceAllString(n.Name, " $1")); w != "" {
				t.Errorf("%s: %q in the name %s", set.Position(n.Pos()), w, n.Name)
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && shown && n.Kind == token.STRING && strings.Contains(
				text,
				" ",
			) && !sql.MatchString(text) {
				messages++
				check(path, text)
			}
		}
		return true
	})
	return messages
}

var camel = regexp.MustCompile(`([A-Z][a-z]+)`)

// inWord reports whether a hit is only a piece of a longer word.
func inWord(text string, at int, phrase string) bool {
	letter := func(i int) bool { return i >= 0 && i < len(text) && text[i] >= 'a' && text[i] <= 'z' }
	return letter(at-1) && letter(at) || phrase != "colour" && letter(at+len(phrase)-1) && letter(at+len(phrase)) && !strings.HasSuffix(
		phrase,
		" o",
	)
}
