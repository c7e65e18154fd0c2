package pushes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"slipway/internal/git/forge"
)

func TestWatched(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		globs []string
		file  string
		want  bool
	}{
		"a folder":               {[]string{"src"}, "src/a/b.js", true},
		"its name's beginning":   {[]string{"src"}, "src2/a.js", false},
		"one star in a name":     {[]string{"src/*.js"}, "src/a/b.js", false},
		"two stars":              {[]string{"src/**/*.js"}, "src/a/b.js", true},
		"two stars over nothing": {[]string{"src/**/*.js"}, "src/b.js", true},
		"anywhere":               {[]string{"**/*.md"}, "a.md", true},
		"excluded":               {[]string{"src/**", "!**/*.md"}, "src/a.md", false},
		"the last one counts":    {[]string{"!**/*.md", "src/**"}, "src/a.md", true},
		"only exclusions":        {[]string{"!docs"}, "src/a.js", true},
		"only exclusions, hit":   {[]string{"!docs"}, "docs/a.js", false},
		"letters of expressions": {[]string{"a.(b|c)+[x]"}, "aX(b|c)+[x]", false},
		"a line break in a name": {[]string{"src/**"}, "src/a\nb", true},
		"another alphabet":       {[]string{"ä?/x"}, "äö/x", true},
	} {
		if got := watched(tt.globs, []string{"other/file", tt.file}[1:]); got != tt.want {
			t.Errorf("%s: watched(%q, %q) = %v", name, tt.globs, tt.file, got)
		}
	}
	for _, bad := range [][]string{{""}, {"!"}, {"../x"}, {"/../x"}, {"\xff"}, make([]string, 51)} {
		if checkWatch(bad) == nil {
			t.Errorf("watch %q is accepted", bad)
		}
	}
}

// If comparing patterns and paths takes too long, the push is deployed without a full comparison. Pushes of usual size
// are compared completely, however many commits list the same files.
func TestWatchedIsBounded(t *testing.T) {
	t.Parallel()
	for _, glob := range []string{
		strings.Repeat("**/", 66) + "x",
		strings.Repeat("*a", 99),
		strings.Repeat("**a", 66),
		"!" + strings.Repeat("?*", 99),
	} {
		files := make([]string, 100)
		for i := range files {
			files[i] = strings.Repeat("a", 1000) + strconv.Itoa(i)
		}
		if !watched(slices.Repeat([]string{glob}, maxGlobs), files) {
			t.Errorf("%.20s… was compared with all of the files", glob)
		}
	}
	var files []string
	for i := range 900 {
		files = append(files, fmt.Sprintf("services/billing/src/handlers/invoice-%d/reminder.ts", i))
	}
	for range 6 {
		files = append(files, files[:900]...)
	}
	globs := []string{"apps/web/**", "packages/*/src/**", "!**/*.md", "**/next.config.*", "pnpm-lock.yaml"}
	if watched(globs, files) {
		t.Error("none of the files is watched")
	}
	if !watched(globs, append(files, "apps/web/a.ts")) {
		t.Error("the last file is watched")
	}
}

// In a monorepo, a push concerns a project if it changes the project's folder, a workspace folder that the project
// uses, or a file in a folder above.
func TestConcerns(t *testing.T) {
	t.Parallel()
	uses := []string{"shared/ui", "tools/tokens", "apps/web"}
	for name, tt := range map[string]struct {
		uses []string
		file string
		want bool
	}{
		"its folder":                  {uses, "apps/web/src/a.ts", true},
		"a folder that it uses":       {uses, "shared/ui/button.tsx", true},
		"one that it uses from there": {uses, "tools/tokens/colors.json", true},
		"another member":              {uses, "shared/api/a.ts", false},
		"another app":                 {uses, "apps/docs/a.md", false},
		"named alike":                 {uses, "shared/ui-old/a.ts", false},
		"packages that it uses not":   {uses, "packages/x/a.ts", false},
		"the repository's root":       {uses, "pnpm-lock.yaml", true},
		"a folder above":              {uses, "apps/tsconfig.json", true},
		"not known: packages":         {nil, "packages/x/a.ts", true},
		"not known: libs":             {nil, "libs/x/a.ts", true},
		"not known: another app":      {nil, "apps/docs/a.md", false},
		"not known: its folder":       {nil, "apps/web/a", true},
	} {
		if got := concerns("/apps/web/", tt.uses, []string{"apps/docs/x.md", tt.file}); got != tt.want {
			t.Errorf("%s: %s: %v", name, tt.file, got)
		}
	}
	if !concerns("", nil, []string{"x/y"}) {
		t.Error("a project at the repository's root is not concerned by a file")
	}
}

func TestSameRepository(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"https://git.test/acme/site.git":       true,
		"http://git.test:3000/Acme/Site":       true,
		"git@git.test:acme/site.git":           true,
		"ssh://git@git.test:22/acme/site.git":  true,
		"https://evil.test/acme/site.git":      false,
		"https://git.test/acme/site/more":      false,
		"https://git.test@evil.test/acme/site": false,
		"https://evil.test/git.test/acme/site": false,
		"":                                     false,
		"%":                                    false,
	} {
		if got := same("git.test/acme/site", forge.Event{Repository: []string{address}}); got != want {
			t.Errorf("same(%q) = %v", address, got)
		}
	}
}

// watched doesn't panic or take long for any pattern and name, and a pattern without wildcards matches itself.
func FuzzWatched(f *testing.F) {
	f.Add("src/**/*.js", "src/a.js")
	f.Fuzz(func(t *testing.T, glob, file string) {
		if checkWatch([]string{glob}) != nil {
			return
		}
		watched([]string{glob}, []string{file})
	})
}
