package site

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
)

// Tags group an owner's sites: short lower-case words, sorted and unique. In a row, every tag is enclosed in line
// breaks, so that LIKE matches whole tags.

// Limits of tags per site and characters per tag.
const (
	MaxTags = 10
	MaxTag  = 40
)

// cleanTags returns the tags as stored, or a fault. It skips blank tags.
func cleanTags(tags []string) ([]string, error) {
	out := []string{}
	for _, t := range tags {
		if len(t) > 4*MaxTag+100 { // check the size before processing
			return nil, badTag("A tag is too long", t)
		}
		t, ok := cleanTag(t)
		switch {
		case t == "":
			continue
		case !ok || !account.Visible(t):
			return nil, badTag("A tag contains a character that isn't allowed", t)
		case utf8.RuneCountInString(t) > MaxTag:
			return nil, badTag("A tag is too long", t)
		}
		out = append(out, t)
		if len(out) > 10*MaxTags { // too many repeated tags
			break
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) > MaxTags {
		return nil, badTag("The site has too many tags", "")
	}
	return out, nil
}

// cleanTag returns a tag in lower case on one line. ok is false if it has a character that would break the line, a
// comma-separated list, or the text around it.
func cleanTag(t string) (string, bool) {
	ok := utf8.ValidString(t)
	for _, r := range t {
		if unicode.IsControl(r) && r != '\t' || r == ',' || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 ||
			r == 0x2028 || r == 0x2029 {
			ok = false
		}
	}
	return strings.ToLower(clean(t)), ok
}

func badTag(why, tag string) error {
	return fault.New(fault.Invalid, "invalid_tags", why,
		fmt.Sprintf("a site has up to %d tags of up to %d characters, without commas and control characters", MaxTags, MaxTag)).
		Got(text.Clip(tag, 200))
}

func joinTags(tags []string) string {
	if len(tags) == 0 {
		return ""
	}
	return "\n" + strings.Join(tags, "\n") + "\n"
}

func splitTags(stored string) []string {
	if stored == "" {
		return []string{}
	}
	return strings.Split(strings.Trim(stored, "\n"), "\n")
}

// tagged adds the condition of having a tag. An empty tag matches everything, an invalid one nothing.
func (w *where) tagged(tag string) {
	if tag == "" {
		return
	}
	if tag, ok := cleanTag(text.Clip(tag, 4*MaxTag)); ok && tag != "" {
		w.and(`tags LIKE ` + w.args.Add("%\n"+literal.Replace(tag)+"\n%") + ` ESCAPE '\'`)
		return
	}
	w.and("1 = 0")
}

// TagCount is a tag and its number of sites.
type TagCount struct {
	Tag   string
	Sites int
}

// Tags returns the tags of the owner's sites in order, with their numbers of sites. only restricts it to some sites;
// nil means all.
func (s *Sites) Tags(ctx context.Context, owner account.OwnerID, only []ID) ([]TagCount, error) {
	w := where{}
	w.and("owner_id = "+w.args.Add(owner), "deleted_at = 0", "tags <> ''")
	w.narrow(owner, Filter{Only: only})
	rows, err := s.c.DB.Query(ctx, `SELECT tags FROM sites WHERE `+w.String(), w.args...)
	n := map[string]int{}
	_, err = db.Collect(rows, err, func(row db.Scanner) (struct{}, error) {
		var stored string
		err := row.Scan(&stored)
		for _, t := range splitTags(stored) {
			n[t]++
		}
		return struct{}{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("list tags: %w", err)
	}
	out := make([]TagCount, 0, len(n))
	for t, sites := range n {
		out = append(out, TagCount{t, sites})
	}
	slices.SortFunc(out, func(a, b TagCount) int { return strings.Compare(a.Tag, b.Tag) })
	return out, nil
}
