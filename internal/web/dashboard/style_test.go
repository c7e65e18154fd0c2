package dashboard

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// In the dashboard and its docs, text has six sizes and two weights, and animations take 120 to 180 ms unless they
// indicate progress. Exceptions: code is a little smaller than the text around it, and the name in the logo has its own
// weight.
func TestStyleSheets(t *testing.T) {
	t.Parallel()
	var (
		size     = regexp.MustCompile(`font(?:-size)?:\s*([^;}]*)`)
		weight   = regexp.MustCompile(`font-weight:\s*([^;}]*)`)
		motion   = regexp.MustCompile(`(?:transition|animation):\s*([^;}]*)`)
		sizes    = regexp.MustCompile(`(?:^|\s)(?:var\(--t(?:12|13|14|16|20|28)\)|\.75rem|\.8125rem|\.875rem|1rem|1\.25rem|1\.75rem|\.9286em|\.875em|1em)(?:/|\s|$)`)
		weights  = regexp.MustCompile(`^(?:var\(--plain\)|var\(--strong\)|400|570|100 900)$`)
		duration = regexp.MustCompile(`\b(\d+m?s)\b|(\.\d+s)\b`)
		comment  = regexp.MustCompile(`(?s)/\*.*?\*/`)
	)
	for _, name := range []string{"assets/app.css", "assets/site.css", "../docs/docs.css"} {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sheet := strings.NewReplacer("font: 640 17px/1 var(--sans)", "", "font:inherit", "", "font: inherit", "").
			Replace(comment.ReplaceAllString(string(raw), ""))
		found := size.FindAllStringSubmatch(sheet, -1)
		if len(found) < 20 {
			t.Errorf("%s: %d sizes of type", name, len(found))
		}
		for _, m := range found {
			if !sizes.MatchString(m[1]) {
				t.Errorf("%s: %s is none of the six sizes", name, m[0])
			}
		}
		for _, m := range weight.FindAllStringSubmatch(sheet, -1) {
			if !weights.MatchString(m[1]) {
				t.Errorf("%s: %s is none of the two weights", name, m[0])
			}
		}
		for _, m := range motion.FindAllStringSubmatch(strings.ReplaceAll(sheet, "var(--quick)", "140ms"), -1) {
			if strings.HasPrefix(m[1], "none") || strings.HasSuffix(m[1], "infinite") {
				continue
			}
			for _, d := range duration.FindAllString(m[1], -1) {
				if d != "120ms" && d != "140ms" && d != "160ms" && d != "180ms" {
					t.Errorf("%s: %s takes %s", name, m[0], d)
				}
			}
		}
		if strings.Contains(sheet, "transition") && name == "assets/app.css" &&
			!strings.Contains(sheet, "@media (prefers-reduced-motion: reduce) { *, *::before, *::after { animation: none !important; transition: none !important; } }") {
			t.Errorf("%s: it moves where no motion is wanted", name)
		}
	}
}
