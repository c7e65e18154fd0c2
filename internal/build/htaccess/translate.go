package htaccess

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Folder is what the .htaccess of one folder says, translated for [Compile]. It is stored with a deployment.
type Folder struct {
	Path     string            `json:"path,omitempty"`     // below the document root
	Access   string            `json:"access,omitempty"`   // the lines about who may see files, for [Parse]
	Rewrites bool              `json:"rewrites,omitempty"` // replaces the rules of the folders above
	Engine   *bool             `json:"engine,omitempty"`   // RewriteEngine; nil: as in the folder above
	Base     string            `json:"base,omitempty"`     // RewriteBase
	Rules    []Rule            `json:"rules,omitempty"`
	Aliases  []Alias           `json:"aliases,omitempty"`
	Errors   map[string]string `json:"errors,omitempty"` // documents of ErrorDocument by status
	Index    []string          `json:"index,omitempty"`  // DirectoryIndex
	Fallback string            `json:"fallback,omitempty"`
	Inherits bool              `json:"inherits,omitempty"` // asks for the rules of the folders above, or gives those below its own
	Env      map[string]string `json:"env,omitempty"`      // SetEnv
}

// Empty reports whether the file says nothing that is obeyed.
func (f Folder) Empty() bool {
	return f.Access == "" && !f.Rewrites && f.Aliases == nil && f.Errors == nil && f.Index == nil && f.Fallback == "" && f.Env == nil
}

// Rule is a RewriteRule with its conditions.
type Rule struct {
	Line    int      `json:"line"`
	Conds   []Cond   `json:"conds,omitempty"`
	Pattern string   `json:"pattern"`
	But     string   `json:"but,omitempty"` // must not match what Pattern matches: a negative lookahead
	Not     bool     `json:"not,omitempty"`
	To      string   `json:"to"`               // "-" changes nothing
	Never   bool     `json:"never,omitempty"`  // not understood: kept because other rules count it
	Status  int      `json:"status,omitempty"` // of a redirect or refusal
	Last    bool     `json:"last,omitempty"`
	End     bool     `json:"end,omitempty"`
	Again   bool     `json:"again,omitempty"` // N
	Chain   bool     `json:"chain,omitempty"`
	Skip    int      `json:"skip,omitempty"`
	Append  bool     `json:"append,omitempty"`  // QSA
	Discard bool     `json:"discard,omitempty"` // QSD
	Raw     bool     `json:"raw,omitempty"`     // NE
	Encode  bool     `json:"encode,omitempty"`  // B
	Env     []string `json:"env,omitempty"`     // NAME=value, or !NAME
}

// Cond is a RewriteCond.
type Cond struct {
	Of      string `json:"of"`
	Pattern string `json:"pattern"` // a regular expression; with Is a text, with File one of f, d, s, l
	But     string `json:"but,omitempty"`
	Is      bool   `json:"is,omitempty"`
	File    bool   `json:"file,omitempty"`
	Base    bool   `json:"base,omitempty"` // Pattern is basePattern
	Not     bool   `json:"not,omitempty"`
	NoCase  bool   `json:"noCase,omitempty"`
	Or      bool   `json:"or,omitempty"`
	Always  bool   `json:"always,omitempty"` // not understood, of a rule that closes
}

// Alias is a Redirect or RedirectMatch.
type Alias struct {
	Line   int    `json:"line"`
	From   string `json:"from"`
	Match  bool   `json:"match,omitempty"` // From is a regular expression
	But    string `json:"but,omitempty"`
	Status int    `json:"status"`
	To     string `json:"to,omitempty"`
}

// Problem is something in a .htaccess that is not obeyed, or not as it is written.
type Problem struct {
	Line  int
	Text  string
	Fatal bool // a path would be open that the file closes
}

// The limits of one file and of a site.
const (
	maxRules   = 2000    // rules, conditions and redirects of a file
	maxRewrite = 2 << 10 // bytes of a pattern, or of a target
	maxWeight  = 1 << 20 // bytes of all patterns of a site, repetitions counted

	maxNewWeight = 256 << 10 // the same, of a new deployment: a compiled pattern takes 20 to 40 times as much
	maxProblems  = 50
	maxLines     = 5 // named of one directive
)

// translation takes one file apart.
type translation struct {
	Folder
	conds    []Cond
	unknown  bool // one of conds isn't understood
	count    int
	sections int
	access   []string
	problems []Problem
	tests    Rules               // counts the patterns of sections as Parse does
	broken   bool                // the rules of this chain are ignored
	ignored  []string            // variables that ignored lines set
	names    []string            // of directives that are not supported
	others   map[string][]string // their lines
}

func (t *translation) problem(line int, format string, args ...any) {
	if len(t.problems) < maxProblems {
		t.problems = append(t.problems, Problem{Line: line, Text: fmt.Sprintf(format, args...)})
	}
}

func (t *translation) fail(line int, format string, args ...any) {
	t.problems = slices.Insert(t.problems, 0, Problem{line, fmt.Sprintf(format, args...), true})
}

// bad is a problem with a line, which is fatal if the line closes paths.
func (t *translation) bad(closes bool, line int, text string) {
	if closes {
		t.fail(line, "%s", text+", and it closes paths")
	} else {
		t.problem(line, "%s", text)
	}
}

// Translate returns what a .htaccess says, and what of it is not obeyed, fatal problems first.
func Translate(folder, text string) (Folder, []Problem) {
	t := translation{Folder: Folder{Path: folder}, others: map[string][]string{}}
	if len(text) > Max {
		t.fail(0, "it is larger than %d KiB", Max>>10)
		return t.Folder, t.problems
	}
	var sections []bool // whether each is in force; false also inside one that is not
	files := 0          // how many of them are about files, conditions or methods
	var about []bool
	line, next := 0, 1
	rest := strings.TrimPrefix(text, "\ufeff")
	for rest != "" {
		var now string
		line = next
		for { // a backslash at the end continues the line
			part, more, _ := strings.Cut(rest, "\n")
			rest, next = more, next+1
			part = strings.TrimSuffix(part, "\r")
			if before, ok := strings.CutSuffix(part, `\`); ok && rest != "" {
				now += before + " "
				continue
			}
			now += part
			break
		}
		now = strings.TrimSpace(now)
		if now == "" || now[0] == '#' {
			continue
		}
		inside := len(sections) == 0 || sections[len(sections)-1]
		words := words(now)
		name := strings.ToLower(words[0])
		if name == "" {
			if inside {
				t.problem(line, "the line begins with an empty word")
			}
			continue
		}
		if strings.HasPrefix(name, "</") {
			if len(sections) > 0 {
				if about[len(about)-1] {
					files--
				}
				sections, about = sections[:len(sections)-1], about[:len(about)-1]
			}
			t.access = append(t.access, now)
			continue
		}
		if name[0] == '<' {
			t.sections++
			kind := strings.Trim(name, "<>")
			on, of := true, false
			switch kind {
			case "ifmodule":
				on = module(argument(now))
			case "ifversion":
				on = !strings.HasPrefix(argument(now), "<")
			case "ifdefine":
				on = strings.HasPrefix(argument(now), "!")
			case "requireall", "requireany", "requirenone":
			default:
				of = true
			}
			if of {
				files++
			}
			if kind == "filesmatch" || kind == "files" {
				_, err := t.tests.names(kind, argument(now)) // as Parse does it
				_, _, why := re2(unquoted(strings.TrimPrefix(argument(now), "~")))
				if errors.Is(err, errPattern) {
					why = err.Error()
				}
				if err != nil && why != "" && inside {
					t.problem(line, "%s: %s, so what it closes may be more than on Apache", words[0][1:], why)
				}
			}
			sections, about = append(sections, inside && on), append(about, of)
			t.access = append(t.access, now)
			continue
		}
		if slices.Contains(accessWords, name) { // Parse knows the sections itself
			t.access = append(t.access, now)
			if inside {
				t.denial(line, name, strings.ToLower(strings.Join(words[1:], " ")))
			}
			continue
		}
		if !inside {
			continue
		}
		if t.count++; t.count > maxRules {
			t.fail(line, "it has more than %d directives", maxRules)
			return t.Folder, t.problems
		}
		if files > 0 {
			switch {
			case closesPaths(name, words[1:]):
				t.fail(line, "%s closes paths, and is not supported in a section; %s", words[0], otherwise)
			case !slices.Contains(noEffect, name):
				t.other(line, words[0]+" in a section")
			}
			continue
		}
		t.directive(line, name, words)
	}
	if closes := strings.Join(t.access, "\n"); accessMatters.MatchString(closes) {
		if t.Access = closes; t.sections > maxSections {
			t.fail(0, "it has more than %d sections", maxSections)
		}
	}
	t.unset()
	t.unsupported()
	slices.SortStableFunc(t.problems, func(a, b Problem) int {
		switch {
		case a.Fatal != b.Fatal && a.Fatal:
			return -1
		case a.Fatal != b.Fatal:
			return 1
		}
		return a.Line - b.Line
	})
	return t.Folder, t.problems
}

var (
	accessWords   = []string{"deny", "allow", "order", "require", "satisfy"}
	accessMatters = regexp.MustCompile(`(?im)^(deny|order|require)\b`)
	// noEffect lists directives that need no warning: they change nothing here.
	noEffect = []string{
		"options", "serversignature", "addoutputfilterbytype", "setoutputfilter", "fileetag", "indexignore", "adddefaultcharset",
		"addcharset", "authtype", "authname", "authuserfile", "authgroupfile", "directoryslash", "acceptpathinfo", "cgipassauth",
		"defaultlanguage", "addlanguage", "browsermatch", "browsermatchnocase",
	}
	integerTest   = regexp.MustCompile(`^-[a-z]+$`) // -eq, -lt and others
	redirectNames = map[string]int{"permanent": 301, "temp": 302, "seeother": 303, "gone": 410}
)

// otherwise says what to do about a line that closes paths.
const otherwise = "write it otherwise, or name the paths in closed under [run] in slipway.toml"

// denial names what of a denial Parse doesn't obey.
func (t *translation) denial(line int, name, args string) {
	switch {
	case name == "deny" && !strings.Contains(" "+args+" ", " all "):
		t.other(line, "Deny from addresses or variables")
	case name == "require" && (strings.HasPrefix(args, "not ") || strings.HasPrefix(args, "method ")):
		t.other(line, "Require "+strings.Fields(args)[0])
	}
}

// closesPaths reports whether a RewriteRule or Redirect refuses paths.
func closesPaths(name string, args []string) bool {
	switch name {
	case "rewriterule":
		return slices.ContainsFunc(flags(args, 2), func(f string) bool {
			name, value, _ := strings.Cut(strings.ToUpper(f), "=")
			return name == "F" || name == "FORBIDDEN" || name == "G" || name == "GONE" || (name == "R" || name == "REDIRECT") && refuses(value)
		})
	case "redirect", "redirectmatch":
		return len(args) > 0 && refuses(args[0])
	}
	return false
}

// refuses reports whether the status of a redirect is an error.
func refuses(word string) bool {
	n, err := strconv.Atoi(word)
	return err == nil && n >= 400 || strings.EqualFold(word, "gone")
}

// ignores notes variables that are never set, as NAME, !NAME, NAME=value or NAME:value.
func (t *translation) ignores(variables ...string) {
	for _, v := range variables {
		v = strings.TrimPrefix(v, "!")
		if i := strings.IndexAny(v, "=:"); i >= 0 {
			v = v[:i]
		}
		t.ignored = append(t.ignored, v)
	}
}

// unset fails rules that close paths and ask for a variable that is never set.
func (t *translation) unset() {
	for _, r := range t.Rules {
		for _, c := range r.Conds {
			for _, v := range variable.FindAllStringSubmatch(c.Of, -1) {
				if r.Status >= 400 && slices.Contains(t.ignored, v[1]) {
					t.fail(r.Line, "RewriteRule closes paths, but the line that sets %s is not supported; %s", v[1], otherwise)
				}
			}
		}
	}
}

var variable = regexp.MustCompile(`(?i)%\{ENV:([^}]*)\}`)

// other notes a directive that isn't supported.
func (t *translation) other(line int, name string) {
	name = name[:min(len(name), 60)]
	if _, ok := t.others[name]; !ok && len(t.names) < maxProblems {
		t.names = append(t.names, name)
	}
	if list := t.others[name]; len(list) < maxLines {
		t.others[name] = append(list, strconv.Itoa(line))
	}
}

// unsupported is one problem for all directives that aren't supported.
func (t *translation) unsupported() {
	if len(t.names) == 0 {
		return
	}
	var list []string
	for _, name := range t.names {
		lines := t.others[name]
		list = append(list, name+" (line"+pick(len(lines) > 1, "s ", " ")+strings.Join(lines, ", ")+")")
	}
	first, _ := strconv.Atoi(t.others[t.names[0]][0])
	t.problems = append(t.problems, Problem{Line: first, Text: "not supported: " + strings.Join(list, ", ")})
}

func (t *translation) directive(line int, name string, words []string) {
	args := words[1:]
	switch name {
	case "rewriteengine":
		on := len(args) > 0 && strings.EqualFold(args[0], "on")
		t.Rewrites, t.Engine = true, &on
	case "rewritebase":
		t.Rewrites = true
		if len(args) != 1 || !strings.HasPrefix(args[0], "/") || strings.HasPrefix(args[0], "//") || len(args[0]) > maxRewrite {
			t.problem(line, "RewriteBase is not an absolute path")
			return
		}
		t.Base = args[0]
	case "rewritecond":
		t.Rewrites = true
		t.cond(line, args)
	case "rewriterule":
		t.Rewrites = true
		t.rule(line, args)
		t.conds, t.unknown = nil, false
	case "redirect", "redirectpermanent", "redirecttemp", "redirectmatch":
		t.alias(line, name, args)
	case "errordocument":
		if len(args) < 2 || len(args[1]) > maxRewrite {
			t.problem(line, "ErrorDocument is not a status and a document")
			return
		}
		if t.Errors == nil {
			t.Errors = map[string]string{}
		}
		if args[0] == "403" || args[0] == "404" || args[0] == "410" {
			t.Errors[args[0]] = strings.Join(args[1:], " ")
		} else {
			t.other(line, "ErrorDocument "+args[0])
		}
	case "directoryindex":
		for _, file := range args {
			if clean := path.Clean("/" + file); len(t.Index) < 20 && len(file) <= 255 && !strings.EqualFold(file, "disabled") {
				t.Index = append(t.Index, strings.TrimPrefix(clean, "/"))
			}
		}
		if t.Index == nil {
			t.Index = []string{""} // no file
		}
	case "fallbackresource":
		if len(args) == 1 && strings.HasPrefix(args[0], "/") {
			t.Fallback = args[0]
		} else if len(args) != 1 || !strings.EqualFold(args[0], "disabled") {
			t.problem(line, "FallbackResource is not an absolute path")
		}
	case "setenv":
		if len(args) == 0 || !envName(args[0]) || len(args) > 1 && len(args[1]) > maxRewrite || len(t.Env) >= maxEnv {
			t.problem(line, "SetEnv is not a name and a value")
			return
		}
		if t.Env == nil {
			t.Env = map[string]string{}
		}
		t.Env[args[0]] = strings.Join(args[1:], " ")
	case "browsermatch", "browsermatchnocase":
		t.ignores(args[min(1, len(args)):]...)
	case "rewriteoptions":
		for _, o := range args {
			t.Inherits = t.Inherits || strings.HasPrefix(strings.ToLower(o), "inherit")
		}
		t.other(line, words[0])
	case "setenvif", "setenvifnocase":
		t.ignores(args[min(2, len(args)):]...)
		if len(args) == 0 || !strings.EqualFold(args[0], "authorization") { // PHP sees the header in any case
			t.other(line, words[0])
		}
	case "php_value", "php_flag":
		t.other(line, words[0]+" (PHP reads .user.ini)")
	case "options":
		for _, o := range args {
			if strings.EqualFold(o, "+indexes") || strings.EqualFold(o, "indexes") {
				t.other(line, "Options Indexes")
			}
		}
	default:
		if !slices.Contains(noEffect, name) {
			t.other(line, words[0])
		}
	}
}

// module reports whether a module of Apache counts as loaded.
func module(name string) bool {
	name, not := strings.CutPrefix(strings.ToLower(strings.TrimSpace(name)), "!")
	name = strings.TrimSuffix(strings.TrimPrefix(name, "mod_"), ".c")
	return slices.Contains([]string{
		"rewrite", "rewrite_module", "alias", "alias_module", "dir", "dir_module", "authz_core", "authz_core_module", "authz_host", "env",
		"env_module",
		"setenvif", "setenvif_module", "headers", "headers_module", "mime", "mime_module", "expires", "expires_module", "version", "filter",
	}, name) != not
}

// words splits a line as Apache does: at spaces that are neither quoted nor follow a backslash.
func words(line string) (list []string) {
	for line = strings.TrimLeft(line, " \t"); line != ""; line = strings.TrimLeft(line, " \t") {
		quote := line[0]
		if quote != '"' && quote != '\'' {
			quote = 0
		} else {
			line = line[1:]
		}
		i := 0
		for ; i < len(line); i++ {
			if line[i] == '\\' && i+1 < len(line) && (line[i+1] == ' ' || line[i+1] == '\t' || quote != 0 && line[i+1] == quote) {
				i++
			} else if quote != 0 && line[i] == quote || quote == 0 && (line[i] == ' ' || line[i] == '\t') {
				break
			}
		}
		word := line[:i]
		if quote != 0 {
			word = strings.ReplaceAll(word, `\`+string(quote), string(quote))
			line = line[min(i+1, len(line)):]
		} else {
			line = line[i:]
		}
		list = append(list, word)
	}
	return list
}

func flags(args []string, at int) []string {
	if len(args) <= at {
		return nil
	}
	text := strings.Trim(strings.Join(args[at:], " "), "[] ")
	list := strings.Split(text, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

func (t *translation) cond(line int, args []string) {
	if len(args) < 2 || len(args[0]) > maxRewrite {
		t.problem(line, "RewriteCond has no pattern")
		t.unknown, t.conds = true, append(t.conds, Cond{Always: true})
		return
	}
	c := Cond{Of: args[0]}
	for _, f := range flags(args, 2) {
		switch strings.ToUpper(f) {
		case "NC", "NOCASE":
			c.NoCase = true
		case "OR", "ORNEXT":
			c.Or = true
		}
	}
	pattern := args[1]
	if pattern, c.Not = strings.CutPrefix(pattern, "!"); pattern == "" {
		pattern = pick(c.Not, "^$", "^")
	}
	why := ""
	switch v := unknownVariable(c.Of); {
	case v != "":
		why = v + " is not known"
	case slices.Contains([]string{"-f", "-d", "-s", "-l", "-h", "-L", "-F", "-e"}, pattern):
		c.File, c.Pattern = true, strings.ToLower(pattern[1:])
	case integerTest.MatchString(pattern):
		why = "the test " + pattern[:min(len(pattern), 20)] + " is not supported"
	case pattern[0] == '=':
		c.Is, c.Pattern = true, strings.Trim(pattern[1:], `"`)
	case pattern[0] == '<' || pattern[0] == '>' || strings.EqualFold(c.Of, "expr"):
		why = "comparisons are not supported"
	case pattern == basePattern:
		c.Base, c.Pattern = true, pattern
	default:
		c.Pattern, c.But, why = re2(pattern)
	}
	if why != "" {
		t.problem(line, "RewriteCond: %s, so its rule is ignored or, if it closes, applies always", why)
		t.unknown, c = true, Cond{Always: true, Or: c.Or}
	}
	if len(t.conds) < maxRules {
		t.conds = append(t.conds, c)
	}
}

// basePattern is Symfony's pattern that computes the base URL from %{REQUEST_URI}::$0.
const basePattern = `^(/.+)/(.*)::\2$`

// status reads what follows R=, or the first word of Redirect; 0 is none.
func status(word string) int {
	if n, ok := redirectNames[strings.ToLower(word)]; ok {
		return n
	}
	n, err := strconv.Atoi(word)
	if err != nil || n < 300 || n > 599 || http.StatusText(n) == "" {
		return 0
	}
	return n
}

func (t *translation) rule(line int, args []string) {
	r := Rule{Line: line, Conds: t.conds}
	why := ""
	if len(args) < 2 || len(args[1]) > maxRewrite {
		t.problem(line, "RewriteRule has no pattern and target of up to %d bytes", maxRewrite)
		if closesPaths("rewriterule", args) {
			t.fail(line, "RewriteRule closes paths, and its target is too long")
		}
		t.broken = false
		t.Rules = append(t.Rules, Rule{Line: line, Never: true})
		return
	}
	r.To = args[1]
	noCase := false
	for _, f := range flags(args, 2) {
		name, value, _ := strings.Cut(f, "=")
		switch strings.ToUpper(name) {
		case "L", "LAST", "PT", "PASSTHROUGH":
			r.Last = true
		case "END":
			r.End = true
		case "NC", "NOCASE":
			noCase = true
		case "QSA", "QSAPPEND":
			r.Append = true
		case "QSD", "QSDISCARD":
			r.Discard = true
		case "NE", "NOESCAPE":
			r.Raw = true
		case "F", "FORBIDDEN":
			r.Status = http.StatusForbidden
		case "G", "GONE":
			r.Status = http.StatusGone
		case "R", "REDIRECT":
			if r.Status = http.StatusFound; value != "" {
				if r.Status = status(value); r.Status == 0 {
					why = "the status " + value + " is not known"
				}
			}
		case "C", "CHAIN":
			r.Chain = true
		case "S", "SKIP":
			n, err := strconv.Atoi(value)
			if r.Skip = n; err != nil || n < 0 || n > maxRules {
				why = "the flag S has no number"
			}
		case "E", "ENV":
			switch name, _, _ := strings.Cut(strings.TrimPrefix(value, "!"), ":"); {
			case strings.HasPrefix(name, "no-") || strings.HasPrefix(name, "dont-"): // switches of Apache itself
			case !envName(name) || len(r.Env) >= maxEnv:
				t.problem(line, "RewriteRule: the variable of the flag E is ignored")
				t.ignores(value)
			default:
				r.Env = append(r.Env, value)
			}
		case "N", "NEXT":
			r.Again = true
		case "B":
			r.Encode = true
		case "", "NS", "NOSUBREQ", "DPI", "DISCARDPATH", "QSL", "QSLAST", "BNP", "BCTLS", "UNSAFEALLOW3F", "UNSAFEPREFIXSTAT":
		case "CO", "COOKIE", "T", "TYPE":
			t.problem(line, "RewriteRule: the flag %s is ignored", name)
		default: // P, H and those of other servers
			why = "the flag " + name[:min(len(name), 20)] + " is not supported"
		}
	}
	closes := closesPaths("rewriterule", args)
	pattern, not := strings.CutPrefix(args[0], "!")
	r.Not = not
	var bad string
	r.Pattern, r.But, bad = re2(pattern)
	if bad != "" && closes && !not { // what it leaves open is less
		if wide, ok := widened(pattern); ok {
			t.problem(line, "RewriteRule: %s, so the rule closes more than on Apache", bad)
			r.Pattern, r.But, bad = wide, "", ""
		}
	}
	if noCase && r.Pattern != "" {
		r.Pattern = "(?i)" + r.Pattern
		if r.But != "" {
			r.But = "(?i)" + r.But
		}
	}
	if why == "" {
		why = bad
	}
	if v := unknownVariable(r.To); v != "" && why == "" && !closes {
		why = v + " is not known"
	}
	if closes && r.Status < 400 { // F beside R
		r.Status = http.StatusForbidden
	}
	if t.broken && why == "" && closes {
		why = "a rule of its chain is ignored"
	}
	never := why != "" || t.unknown && !closes
	switch {
	case why != "" && closes:
		t.fail(line, "RewriteRule closes paths and can't be obeyed: %s; %s", why, otherwise)
	case why != "":
		t.problem(line, "RewriteRule is ignored: %s", why)
	}
	if t.broken = r.Chain && (never || t.broken); never { // a condition that isn't understood has said so
		t.ignores(r.Env...)
		r = Rule{Line: line, Never: true, Chain: r.Chain}
	}
	t.Rules = append(t.Rules, r)
}

func (t *translation) alias(line int, name string, args []string) {
	a := Alias{Line: line, Status: http.StatusFound, Match: name == "redirectmatch"}
	switch {
	case name == "redirectpermanent":
		a.Status = http.StatusMovedPermanently
	case name != "redirecttemp" && len(args) > 0 && !strings.ContainsAny(args[0], "/^(.$"):
		if a.Status = status(args[0]); a.Status == 0 {
			t.bad(refuses(args[0]), line, "the status of "+args[0][:min(len(args[0]), 20)]+" is not known")
			return
		}
		args = args[1:]
	}
	closes := a.Status >= 400
	switch {
	case len(args) == 0 || !closes && len(args) < 2 || len(args[0]) > maxRewrite || len(args) > 1 && len(args[1]) > maxRewrite:
		t.bad(closes, line, "the redirect has no path and target")
		return
	case a.Match:
		var why string
		if a.From, a.But, why = re2(args[0]); why != "" {
			wide, ok := widened(args[0])
			switch {
			case !closes:
				t.problem(line, "RedirectMatch is ignored: %s", why)
				return
			case !ok:
				t.fail(line, "RedirectMatch closes paths and can't be obeyed: %s", why)
				return
			}
			t.problem(line, "RedirectMatch: %s, so it closes more than on Apache", why)
			a.From, a.But = wide, ""
		}
	default:
		a.From = args[0]
		if !strings.HasPrefix(a.From, "/") {
			t.bad(closes, line, "Redirect is not from an absolute path")
			return
		}
	}
	if !closes {
		if a.To = args[1]; !strings.HasPrefix(a.To, "/") && !isAddress(a.To) && !a.Match {
			t.problem(line, "Redirect does not lead to a path or an address")
			return
		}
	}
	t.Aliases = append(t.Aliases, a)
}

// maxEnv is how many variables a rule or file may set.
const maxEnv = 32

// envName reports whether a name is one that rules may give a variable of PHP: none that decides what PHP-FPM runs.
func envName(name string) bool {
	return name != "" && len(name) <= 64 && !strings.HasPrefix(name, "PHP_") &&
		strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == "" && !slices.Contains(protectedEnv, name)
}

// protectedEnv are variables by which PHP-FPM knows what it runs and for whom.
var protectedEnv = []string{
	"SCRIPT_FILENAME", "SCRIPT_NAME", "PATH_INFO", "PATH_TRANSLATED", "DOCUMENT_ROOT", "REQUEST_METHOD", "REQUEST_URI", "QUERY_STRING",
	"CONTENT_LENGTH", "CONTENT_TYPE", "REMOTE_ADDR", "REDIRECT_STATUS", "REDIRECT_URL", "HTTP_PROXY", "SERVER_NAME", "SERVER_PORT",
	"GATEWAY_INTERFACE", "SERVER_PROTOCOL", "SERVER_SOFTWARE", "SERVER_ADDR", "DOCUMENT_URI", "REQUEST_SCHEME",
}

// knownVariables are those of a request that rules may ask for, beside HTTP:, ENV: and the headers in headerVariables.
var knownVariables = []string{
	"REQUEST_FILENAME", "SCRIPT_FILENAME", "REQUEST_URI", "QUERY_STRING", "HTTP_HOST", "SERVER_NAME", "HTTPS", "REQUEST_SCHEME",
	"REQUEST_METHOD", "REMOTE_ADDR", "REMOTE_HOST", "SERVER_PORT", "DOCUMENT_ROOT", "CONTEXT_DOCUMENT_ROOT", "CONTEXT_PREFIX", "THE_REQUEST",
	"SERVER_PROTOCOL", "PATH_INFO", "IS_SUBREQ", "REMOTE_USER", "AUTH_TYPE", "SERVER_ADDR",
}

var headerVariables = map[string]string{
	"HTTP_USER_AGENT": "User-Agent", "HTTP_REFERER": "Referer", "HTTP_COOKIE": "Cookie", "HTTP_ACCEPT": "Accept",
	"HTTP_FORWARDED": "Forwarded", "HTTP_AUTHORIZATION": "Authorization", "HTTP_X_FORWARDED_PROTO": "X-Forwarded-Proto",
	"HTTP_X_REQUESTED_WITH": "X-Requested-With", "HTTP_ACCEPT_ENCODING": "Accept-Encoding", "HTTP_ACCEPT_LANGUAGE": "Accept-Language",
}

// unknownVariable returns the first variable of a text that no request has.
func unknownVariable(text string) string {
	if strings.Contains(text, "${") {
		return "a RewriteMap"
	}
	for {
		_, rest, ok := strings.Cut(text, "%{")
		name, after, closed := strings.Cut(rest, "}")
		if !ok || !closed {
			return ""
		}
		text = after
		upper := strings.ToUpper(name)
		if kind, value, ok := strings.Cut(upper, ":"); ok {
			if (kind == "HTTP" || kind == "ENV") && value != "" || upper == "LA-U:REQUEST_URI" {
				continue
			}
		} else if slices.Contains(knownVariables, upper) || headerVariables[upper] != "" {
			continue
		}
		return "%{" + name[:min(len(name), 40)] + "}"
	}
}

// isAddress reports whether a target leads to another host, or says the scheme.
func isAddress(to string) bool {
	scheme, _, ok := strings.Cut(to, "://")
	return ok && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https"))
}
