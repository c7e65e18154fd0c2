// Package changelog combines notes of changes, one file in changes/ each, into CHANGELOG.md and a release's notes.
package changelog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Kinds lists the first words of changes, in the order of release notes (keepachangelog.com).
var Kinds = []string{"Added", "Changed", "Fixed", "Removed", "Security"}

// Changes maps kinds to a release's lines, without the kind.
type Changes map[string][]string

// Read returns the changes in the folder changes of root, and their files.
func Read(root string) (Changes, []string, error) {
	files, err := filepath.Glob(filepath.Join(root, "changes", "*.md"))
	if err != nil {
		return nil, nil, err
	}
	files = slices.DeleteFunc(files, func(f string) bool { return filepath.Base(f) == "README.md" })
	slices.Sort(files)
	all := Changes{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, nil, err
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if line == "" {
				continue
			}
			kind, what, ok := strings.Cut(line, ": ")
			if !ok || !slices.Contains(Kinds, kind) {
				return nil, nil, fmt.Errorf("%s: %q begins with none of %s and a colon", f, line, strings.Join(Kinds, ", "))
			}
			all[kind] = append(all[kind], capital(what))
		}
	}
	return all, files, nil
}

// Text returns the changes as Markdown, with a heading and a list per kind.
func (c Changes) Text() string {
	var b strings.Builder
	for _, kind := range Kinds {
		if len(c[kind]) == 0 {
			continue
		}
		fmt.Fprintf(&b, "### %s\n\n", kind)
		for _, line := range c[kind] {
			fmt.Fprintf(&b, "- %s\n", line)
		}
		b.WriteString("\n")
	}
	return b.String()
}

var (
	number  = regexp.MustCompile(`^\d+\.\d+\.\d+$`)
	release = regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+).*$`)
)

// Version returns the version in root's VERSION, which is that of the newest release.
func Version(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "VERSION"))
	if err != nil {
		return "", err
	}
	version := strings.TrimSpace(string(text))
	if !number.MatchString(version) {
		return "", fmt.Errorf("VERSION: %q is no version such as 1.2.3", version)
	}
	return version, nil
}

// Newest returns the version and the notes of the newest release in root's CHANGELOG.md.
func Newest(root string) (version, notes string, err error) {
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return "", "", err
	}
	found := release.FindAllSubmatchIndex(text, 2)
	if found == nil {
		return "", "", errors.New("CHANGELOG.md names no release")
	}
	end := len(text)
	if len(found) == 2 {
		end = found[1][0]
	}
	return string(text[found[0][2]:found[0][3]]), strings.TrimSpace(string(text[found[0][1]:end])) + "\n", nil
}

// Gather moves the changes into CHANGELOG.md, as the newest release with the given version and date, writes the version
// to VERSION, and deletes the files of the changes.
func Gather(root, version string, day time.Time) error {
	if !number.MatchString(version) {
		return fmt.Errorf("%q is no version such as 1.2.3", version)
	}
	page := filepath.Join(root, "CHANGELOG.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(release.FindAllSubmatch(text, -1), func(m [][]byte) bool { return string(m[1]) == version }) {
		return fmt.Errorf("CHANGELOG.md has %s already", version)
	}
	changes, files, err := Read(root)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("changes/ has no change")
	}
	at := len(text)
	if first := release.FindIndex(text); first != nil {
		at = first[0]
	}
	section := fmt.Sprintf("## %s (%s)\n\n%s", version, day.Format(time.DateOnly), changes.Text())
	if err := os.WriteFile(page, slices.Concat(text[:at], []byte(section), text[at:]), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "VERSION"), []byte(version+"\n"), 0o644); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	return nil
}

func capital(s string) string {
	r := []rune(s)
	r[0] = unicode.ToUpper(r[0])
	return string(r)
}
