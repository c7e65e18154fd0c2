// Package lazyregexp owns regular expressions that are compiled at their first use. Most package-level expressions
// serve one kind of project or request; compiling all of them took ten milliseconds of every start, and their memory
// for the whole run.
//
// cmd/go has an internal package of the same name. In tests, expressions are compiled at once, so that invalid ones are
// found.
package lazyregexp

import (
	"os"
	"regexp"
	"strings"
	"sync"
)

// Regexp is a regular expression that is compiled when it is first used.
type Regexp struct {
	compiled func() *regexp.Regexp
}

var inTest = len(os.Args) > 0 && strings.HasSuffix(os.Args[0], ".test")

// New returns the expression. An invalid one panics at its first use, and at once in tests.
func New(expr string) *Regexp {
	re := &Regexp{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })}
	if inTest {
		re.compiled()
	}
	return re
}

// MatchString reports whether s contains a match.
func (re *Regexp) MatchString(s string) bool { return re.compiled().MatchString(s) }

// FindStringSubmatch returns the leftmost match in s and those of its groups, or nil.
func (re *Regexp) FindStringSubmatch(s string) []string { return re.compiled().FindStringSubmatch(s) }

// FindString returns the leftmost match in s, or "".
func (re *Regexp) FindString(s string) string { return re.compiled().FindString(s) }

// FindSubmatch returns the leftmost match in b and those of its groups, or nil.
func (re *Regexp) FindSubmatch(b []byte) [][]byte { return re.compiled().FindSubmatch(b) }

// ReplaceAllString returns s with each match replaced; $1 stands for its first group.
func (re *Regexp) ReplaceAllString(s, by string) string { return re.compiled().ReplaceAllString(s, by) }

// ReplaceAllStringFunc returns s with each match replaced by what by returns for it.
func (re *Regexp) ReplaceAllStringFunc(s string, by func(string) string) string {
	return re.compiled().ReplaceAllStringFunc(s, by)
}

// Split returns the parts of s between matches, at most n.
func (re *Regexp) Split(s string, n int) []string { return re.compiled().Split(s, n) }

// FindAllStringSubmatch returns at most n matches in s with their groups, from the left; n below
// 0 is all of them.
func (re *Regexp) FindAllStringSubmatch(s string, n int) [][]string {
	return re.compiled().FindAllStringSubmatch(s, n)
}

// FindAllStringSubmatchIndex returns where those matches and their groups begin and end.
func (re *Regexp) FindAllStringSubmatchIndex(s string, n int) [][]int {
	return re.compiled().FindAllStringSubmatchIndex(s, n)
}

// FindAllStringIndex returns where at most n matches in s begin and end; n below 0 is all of them.
func (re *Regexp) FindAllStringIndex(s string, n int) [][]int {
	return re.compiled().FindAllStringIndex(s, n)
}
