package slipway

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"slipway/e2e/rights"
)

// secretColumn matches the names that this schema gives to columns of secrets, and to columns by which secrets are
// found.
var secretColumn = regexp.MustCompile(`(^|_)(hash|digest|token|sealed|secrets?|credential|password|key|verifier|binding)$`)

// secretComment matches the comments that mark such columns if they have other names.
var secretComment = regexp.MustCompile(`\b(sealed|hashed|hash of)\b`)

// commented lists, as table.column, the text columns whose comment says that they hold a secret.
func commented(schema string) (list []string) {
	begin, column := regexp.MustCompile(`^CREATE TABLE "?(\w+)`), regexp.MustCompile(`^[\s,]*"?(\w+)"?\s+TEXT\b.*?--(.*)`)
	table := ""
	for line := range strings.Lines(schema) {
		if m := begin.FindStringSubmatch(line); m != nil {
			table = m[1]
		} else if m := column.FindStringSubmatch(line); m != nil && secretComment.MatchString(m[2]) {
			list = append(list, table+"."+m[1])
		}
	}
	return list
}

// columns lists the text columns of the schema's tables as table.column.
func columns(schema string) (list []string) {
	schema = regexp.MustCompile(`--.*`).ReplaceAllString(schema, "")
	column := regexp.MustCompile(`^"?(\w+)"?\s+TEXT\b`)
	for _, found := range regexp.MustCompile(`CREATE TABLE "?(\w+)"? \(`).FindAllStringSubmatchIndex(schema, -1) {
		table, depth, begin := schema[found[2]:found[3]], 1, found[1]
		for i := begin; depth > 0; i++ {
			switch c := schema[i]; {
			case c == '(':
				depth++
			case c == ')':
				depth--
			}
			if depth == 0 || depth == 1 && schema[i] == ',' {
				if m := column.FindStringSubmatch(strings.TrimSpace(schema[begin:i])); m != nil {
					list = append(list, table+"."+m[1])
				}
				begin = i + 1
			}
		}
	}
	return list
}

// TestRights fails if a column that looks like a secret is in no row of the table of rights, or if a long-lived stream
// has no comment that names the right which keeps it open. It also checks or updates docs/rights.md.
func TestRights(t *testing.T) {
	t.Parallel()
	schema, err := os.ReadFile("internal/platform/db/schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	wordpress, err := os.ReadFile("e2e/wordpress/wordpress_test.go")
	if err != nil {
		t.Fatal(err)
	}
	named, names := maps.Clone(rights.Others), map[string]bool{}
	for _, r := range rights.Table {
		names[r.Name] = true
		for _, c := range r.Stored {
			if named[c] != "" {
				t.Errorf("%s is named twice", c)
			}
			named[c] = r.Name
		}
		if r.Told != "" && !strings.Contains(string(wordpress), "func "+r.Told+"(") {
			t.Errorf("%s: no test of e2e/wordpress is called %s", r.Name, r.Told)
		}
		stays := slices.Contains(slices.Collect(maps.Values(r.After)), rights.Stays)
		if stays != (r.Why != "") {
			t.Errorf("%s: a right that stays after an event, and no other, says why", r.Name)
		}
	}
	all := columns(string(schema))
	if len(all) < 300 {
		t.Fatalf("only %d columns were found in the schema", len(all))
	}
	said := commented(string(schema))
	if !slices.Contains(said, "notify_channels.url") || !slices.Contains(said, "site_serving.settings") {
		t.Errorf("the comments say only of %v that they are secrets", said)
	}
	for _, c := range all {
		if _, column, _ := strings.Cut(c, "."); named[c] == "" && (secretColumn.MatchString(column) || slices.Contains(said, c)) {
			t.Errorf("%s looks like a secret: add it to a row of e2e/rights/table.go, with what ends it, or to Others with a reason", c)
		}
	}
	for c := range named {
		if !slices.Contains(all, c) {
			t.Errorf("%s is named in e2e/rights/table.go, but not a column", c)
		}
	}

	watched := regexp.MustCompile(`^[^/]*\b(a|d)\.Watch\(`)
	right := regexp.MustCompile(`^\s*// right: (.+)$`)
	streams := 0
	sources(t, func(p string, text []byte) {
		lines := strings.Split(string(text), "\n")
		for i, line := range lines {
			if !watched.MatchString(line) {
				continue
			}
			streams++
			m := right.FindStringSubmatch(lines[i-1])
			if m == nil {
				m = right.FindStringSubmatch(lines[i-2]) // above the line that begins the goroutine
			}
			if m == nil || !names[m[1]] {
				t.Errorf("%s:%d: write `// right: NAME` above, with the row of e2e/rights/table.go that this stream is", p, i+1)
			}
		}
	})
	if streams < 5 {
		t.Errorf("only %d streams were found: the test looks for the wrong call", streams)
	}

	page := rightsPage()
	const file = "docs/rights.md"
	if *update {
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(file); err != nil || string(is) != page {
		t.Errorf("%s isn't the table of e2e/rights/table.go: go test . -run TestRights -update (%v)", file, err)
	}
}

// rightsPage returns the text of docs/rights.md.
func rightsPage() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# What ends a right

What each event does to the credentials, links, hooks and open streams that Slipway gives out. **Ends** means that requests are
refused with the event itself, and that streams are closed and settings applied within %d seconds. “–” means that the event doesn't concern the right.

*Account unpaid* means that the account's sites are paused because it owes money. The account itself stays open, so that people can sign in and pay.
**Pauses** means that the right is refused while the account is unpaid, and works again within %[1]d seconds.

*User suspended* and the requirements of a team refuse what they don't delete: API keys, tokens of apps, invitations and offers work again once the user is
resumed, has turned on two-factor authentication or has linked an account at the team's provider. Sessions of a suspended user and open streams don't come back.

Unless the row says otherwise, the right belongs to a member of a team with the role admin and concerns the team's site. *Role lowered* is a change to
viewer; *revoked* is the deletion of the right itself, or of the grant that an app made it with. Where a
site is transferred or deleted, *ends* means that the right no longer reaches that site. `+"`TestRights` in `e2e/rights`"+` tests each cell
against a running Slipway, login links apart, of which a story of `+"`e2e/wordpress`"+` tests the single use.

| right |`, rights.Seconds)
	for _, e := range rights.Events {
		fmt.Fprintf(&b, " %s |", e)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(rights.Events)) + "\n")
	for _, r := range rights.Table {
		fmt.Fprintf(&b, "| %s |", r.Name)
		for _, e := range rights.Events {
			fmt.Fprintf(&b, " %s |", r.Outcome(e))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n## Why some stay\n\n")
	for _, r := range rights.Table {
		if r.Why != "" {
			fmt.Fprintf(&b, "- **%s**: %s\n", strings.ToUpper(r.Name[:1])+r.Name[1:], r.Why)
		}
	}
	return b.String()
}
