// Package htaccess owns what a .htaccess of Apache says about who may see files, and about addresses.
//
// Parse reads who may see files: Deny and Allow, Require, sections of files, and rules that forbid. Plugins close folders of a site's
// storage by it. Translate takes all of a committed file apart, with mod_rewrite, mod_alias and what belongs to them; Compile makes
// the files of a document root ready, and Route says what becomes of a request. What isn't understood about a denial closes more
// rather than less. Headers, and settings of PHP, are never read.
package htaccess

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Max is how many bytes of a .htaccess are read. A longer one closes its folder.
const Max = 64 << 10

// maxSections caps the sections and rules of one file. More of them close its folder.
const maxSections = 200

// The bytes of one pattern, and of all patterns of a file: a compiled pattern takes many times as much.
const maxPattern, maxPatterns = 512, 4 << 10

// maxName is how many bytes the name of a file has. Longer ones are not looked for in sections.
const maxName = 255

// maxNames bounds the work of the patterns of all folders above a file, in bytes of patterns times bytes of its name. Beyond it, the
// file is closed. One full .htaccess takes all of it: about 15 ms.
const maxNames = maxPatterns * maxName

// Rules are those of one .htaccess.
type Rules struct {
	folder  access
	files   []*section
	forbids []*regexp.Regexp // paths below the folder
	denied  []*regexp.Regexp // whole paths, with a leading slash
	bytes   int              // of all patterns
}

var errPattern = errors.New("the pattern is too large")

// compile compiles a pattern. It refuses counted repetitions and classes of Unicode, which multiply what a pattern takes.
func (r *Rules) compile(pattern string) (*regexp.Regexp, error) {
	r.bytes += len(pattern)
	if len(pattern) > maxPattern || r.bytes > maxPatterns || strings.Contains(pattern, "{") || strings.Contains(strings.ToLower(pattern), `\p`) {
		return nil, errPattern
	}
	return regexp.Compile(pattern)
}

// section is about the files of some names.
type section struct {
	name   *regexp.Regexp // nil: it can't be understood, and is about every file where it closes
	wide   bool           // name matches more than it should, and counts where it closes
	access access
}

// access is what directives say, in Apache's order of evaluation.
type access struct {
	denies, allows, allowFirst, ordered bool // Deny, Allow, Order
	closes, opens                       bool // Require
}

// state is what is in force of both kinds of directives, each of which can close.
type state struct{ hosts, requires bool }

func (s *state) apply(a access) {
	switch {
	case a.allowFirst:
		s.hosts = a.denies || !a.allows
	case a.denies || a.allows || a.ordered:
		s.hosts = a.denies && !a.allows
	}
	if a.closes || a.opens {
		s.requires = a.closes
	}
}

func (s state) closed() bool { return s.hosts || s.requires }

// Closed returns what closes everything.
func Closed() *Rules { return &Rules{folder: access{closes: true}} }

// Parse reads a .htaccess. One that can't be understood closes everything.
func Parse(text string) *Rules {
	r, err := parse(text)
	if err != nil {
		return Closed()
	}
	return r
}

var (
	errSections = fmt.Errorf("a .htaccess has more than %d sections", maxSections)
	errLong     = fmt.Errorf("a .htaccess is larger than %d KiB", Max>>10)
)

func parse(text string) (*Rules, error) {
	if len(text) > Max {
		return nil, errLong
	}
	r := &Rules{}
	into := []*access{&r.folder} // where directives of the section go; nil: it isn't in force
	names := []string{""}
	conditional, sections := false, 0
	for line := range strings.Lines(strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\\\n", " ")) {
		words := split(line)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		word := strings.ToLower(words[0])
		at := into[len(into)-1]
		switch {
		case strings.HasPrefix(word, "</"):
			if name := strings.Trim(word, "</>"); len(into) > 1 && names[len(names)-1] == name {
				into, names = into[:len(into)-1], names[:len(names)-1]
			}
			continue
		case word[0] == '<':
			if sections++; sections > maxSections {
				return nil, errSections
			}
			name := strings.Trim(word, "<>")
			into, names = append(into, r.begin(at, name, argument(line))), append(names, name)
			continue
		case at == nil:
			continue
		}
		arguments := strings.ToLower(strings.Join(words[1:], " "))
		switch word {
		case "deny":
			at.denies = at.denies || strings.Contains(" "+arguments+" ", " all ")
		case "allow":
			at.allows = at.allows || strings.Contains(" "+arguments+" ", " all ")
		case "order":
			order := strings.ReplaceAll(arguments, " ", "")
			at.ordered, at.allowFirst = true, order == "allow,deny" || order == "mutual-failure"
		case "require":
			switch {
			case arguments == "all granted":
				at.opens = true
			case !strings.HasPrefix(arguments, "not ") && !strings.HasPrefix(arguments, "method "):
				at.closes = true // nobody, or somebody whom only Apache knows
			}
		case "rewritecond":
			conditional = true
			continue
		case "rewriterule":
			if len(words) > 3 && !conditional && forbids(words[3]) {
				pattern := words[1]
				if strings.Contains(strings.ToLower(words[3]), "nc") || strings.Contains(strings.ToLower(words[3]), "nocase") {
					pattern = "(?i)" + pattern
				}
				form, err := r.compile(pattern)
				if sections++; sections > maxSections || err != nil || words[1][0] == '!' {
					return nil, cmp.Or(err, errSections)
				}
				r.forbids = append(r.forbids, form)
			}
			conditional = false
		case "redirect", "redirectmatch":
			if len(words) < 3 || !slices.Contains([]string{"403", "404", "410", "gone"}, words[1]) {
				continue
			}
			pattern := words[2]
			if word == "redirect" {
				pattern = "^" + regexp.QuoteMeta(strings.TrimSuffix(pattern, "/")) + "(?:/|$)"
			}
			form, err := r.compile(pattern)
			if sections++; sections > maxSections || err != nil {
				return nil, cmp.Or(err, errSections)
			}
			r.denied = append(r.denied, form)
		}
	}
	return r, nil
}

// begin returns where the directives of a section go that stands within another one.
func (r *Rules) begin(at *access, name, about string) *access {
	var form *regexp.Regexp
	var err error
	switch name {
	case "ifmodule", "ifversion", "ifdefine":
		if strings.HasPrefix(about, "!") || name == "ifversion" && strings.HasPrefix(about, "<") || name == "ifdefine" { // it is Apache 2.4
			return nil
		}
		return at
	case "requireall", "requireany", "limit":
		return at
	case "files", "filesmatch":
		form, err = r.names(name, about)
	case "if", "elseif", "else": // of conditions that only Apache knows
	default: // of other paths or methods
		return nil
	}
	if at == nil {
		return nil
	}
	of := &section{name: form}
	if err != nil {
		of.name = nil
		if wide, ok := widened(about); ok && name == "filesmatch" {
			if of.name, err = r.compile(wide); err != nil {
				of.name = nil
			}
			of.wide = true
		}
	}
	r.files = append(r.files, of)
	return &of.access
}

// names compiles the file names of a section.
func (r *Rules) names(kind, about string) (*regexp.Regexp, error) {
	pattern, ok := strings.CutPrefix(about, "~")
	switch {
	case kind == "filesmatch":
		return r.compile(about)
	case ok:
		return r.compile(unquoted(pattern))
	}
	return r.compile("^" + wildcards.Replace(regexp.QuoteMeta(about)) + "$")
}

var wildcards = strings.NewReplacer(`\*`, ".*", `\?`, ".")

// argument is what a section's line says after its name.
func argument(line string) string {
	line = strings.TrimSpace(line)
	line = strings.TrimSuffix(line, ">")
	i := strings.IndexAny(line, " \t")
	if i < 0 {
		return ""
	}
	return unquoted(line[i:])
}

// split returns the words of a line, without the quotes around them.
func split(line string) (words []string) {
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		word := line
		if q := line[:1]; q == `"` || q == "'" {
			if i := strings.Index(line[1:], q); i > 0 {
				words, line = append(words, line[1:i+1]), line[i+2:]
				continue
			}
		}
		if i := strings.IndexAny(line, " \t"); i > 0 {
			word = line[:i]
		}
		words, line = append(words, word), line[len(word):]
	}
	return words
}

func unquoted(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 1 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

func forbids(flags string) bool {
	for flag := range strings.SplitSeq(strings.ToLower(strings.Trim(flags, "[]")), ",") {
		switch strings.TrimSpace(flag) {
		case "f", "forbidden", "g", "gone", "r=403", "r=404", "r=410":
			return true
		}
	}
	return false
}

// Hides reports whether nobody may see a file. of returns the rules of a folder, or nil, and is asked for those of top, of the folders
// below it and of the file's own. Inner folders go before outer ones, and sections of files before what is said of folders.
func Hides(top, file string, of func(folder string) *Rules) bool {
	var now state
	var rules []*Rules
	for folder := top; ; {
		if r := of(folder); r != nil {
			now.apply(r.folder)
			rules = append(rules, r)
			below := strings.TrimPrefix(strings.TrimPrefix(file, folder), "/")
			for _, f := range r.forbids {
				if f.MatchString(below) {
					return true
				}
			}
			for _, f := range r.denied {
				if f.MatchString("/" + file) {
					return true
				}
			}
		}
		next, _, more := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(file, folder), "/"), "/")
		if !more {
			break
		}
		folder = path.Join(folder, next)
	}
	base, work := path.Base(file), 0
	for _, r := range rules {
		if len(base) <= maxName {
			work += min(r.bytes, maxPatterns) * len(base) // more are not compiled
		}
		if work > maxNames {
			return true
		}
		for _, s := range r.files {
			alone := state{}
			alone.apply(s.access)
			matches := s.name == nil || len(base) <= maxName && s.name.MatchString(base)
			if matches && (s.name != nil && !s.wide || alone.closed()) {
				now.apply(s.access)
			}
		}
	}
	return now.closed()
}
