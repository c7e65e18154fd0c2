package sites

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"slipway/internal/build/release"
	"slipway/internal/deploy/screenshot"
	"slipway/internal/deploy/thumbnail"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
)

// Theme is a site's appearance, from its pages' metadata or else from its name and colors derived from its subdomain.
type Theme struct {
	Name, Seed  string
	Title, Text string
	Color       string // #rrggbb, or empty
	Icon, Image string // URLs of images generated here, or empty
	Screenshot  string // URL of a screenshot, or empty
	TakenAt     db.Time
	Online      bool // whether the site has something to show
	Failed      bool // whether the site isn't live because its deployment failed
}

// ThemeOf returns a site's appearance from its pages' metadata and its screenshots.
func ThemeOf(s site.Site, p thumbnail.Summary, taken []screenshot.Found) Theme {
	l := Theme{
		Name:   s.Name,
		Seed:   s.Slug,
		Title:  cmp.Or(p.Title, s.Name),
		Text:   p.Text,
		Color:  p.Color,
		Online: s.LiveRelease != "",
		Failed: s.Status == site.Failed,
	}
	at := "/sites/" + string(s.ID) + "/pictures/" + string(p.Release)
	if p.Icon {
		l.Icon = at + ".png"
	}
	if p.Image {
		l.Image = at + ".jpg"
	}
	for _, f := range taken {
		if f.Kind == screenshot.Live {
			l.Screenshot, l.TakenAt = ScreenshotPath(s.ID, f), f.MadeAt
		}
	}
	return l
}

// ScreenshotPath returns the path of a site's screenshot. It contains the time, so its content never changes.
func ScreenshotPath(id site.ID, f screenshot.Found) string {
	return fmt.Sprintf("/sites/%s/pictures/%s-%d.shot", id, f.Kind, f.MadeAt)
}

// shade returns a hash of the site's address.
func (l Theme) shade() uint32 {
	h := fnv.New32a()
	h.Write([]byte(l.Seed))
	return h.Sum32()
}

// ground returns the site's color as an SVG attribute value, and a readable text color on it.
func (l Theme) ground() (back, ink string) {
	if c := l.Color; len(c) == 7 && c[0] == '#' {
		if n, err := strconv.ParseUint(c[1:], 16, 32); err == nil {
			if 299*(n>>16)+587*(n>>8&0xff)+114*(n&0xff) > 160_000 {
				return c, "#191c20"
			}
			return c, "#fff"
		}
	}
	return fmt.Sprintf("hsl(%d 38%% 45%%)", l.shade()%360), "#fff"
}

// Backdrop returns the background of a site's preview: its color, with shapes derived from its address.
func (l Theme) Backdrop() template.HTML {
	n := l.shade()
	back, _ := l.ground()
	return template.HTML(fmt.Sprintf(
		`<svg class="shot-back" viewBox="0 0 320 140" preserveAspectRatio="none" aria-hidden="true" focusable="false"><rect width="320" height="140" fill="%s"/>`+
			`<circle cx="%d" cy="%d" r="%d" fill="#fff" fill-opacity=".13"/><path d="M0 %d Q80 %d 170 %d T320 %d V140 H0Z" fill="#000" fill-opacity=".16"/></svg>`,
		back,
		40+n>>3%240,
		10+n>>11%60,
		60+n>>7%50,
		90+n>>13%30,
		60+n>>15%30,
		100+n>>17%20,
		70+n>>19%40,
	))
}

// Picture returns a site's icon, or its initials.
func Picture(l Theme) template.HTML {
	if l.Icon != "" {
		return template.HTML(`<img class="picture icon" src="` + template.HTMLEscapeString(l.Icon) + `" alt="" width="96" height="96">`)
	}
	n := l.shade()
	back, ink := l.ground()
	return template.HTML(fmt.Sprintf(
		`<svg class="picture" viewBox="0 0 48 48" aria-hidden="true" focusable="false"><rect width="48" height="48" fill="%s"/>`+
			`<circle cx="%d" cy="%d" r="%d" fill="#fff" fill-opacity=".14"/><path d="M0 %d Q14 %d 26 %d T48 %d V48 H0Z" fill="#000" fill-opacity=".28"/>`+
			`<text x="24" y="30.5" text-anchor="middle" fill="%s">%s</text></svg>`,
		back,
		8+n>>3%34,
		8+n>>11%16,
		15+n>>7%12,
		34+n>>13%8,
		26+n>>15%10,
		36+n>>17%6,
		30+n>>19%8,
		ink,
		template.HTMLEscapeString(initials(l.Name)),
	))
}

func initials(name string) string {
	out := ""
	for _, w := range strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		r, _ := utf8.DecodeRuneInString(w)
		out += string(unicode.ToUpper(r))
		if utf8.RuneCountInString(out) == 2 {
			break
		}
	}
	return out
}

// pictureFile serves an image of a site's release: its icon (.png, whatever its type) or its preview (.jpg). The URL
// contains the release, so its content never changes. An SVG icon is the tenant's own file and is served with a policy
// under which it can't run or load anything.
func (d *Pages) pictureFile(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[site.ID](q, "id")
	of, part, _ := strings.Cut(q.PathValue("picture"), ".")
	var b []byte
	var err error
	kind := "image/jpeg"
	switch part {
	case "png":
		b, kind, err = d.Thumbnails.IconOf(ctx, q.Caller.Owner, id, release.ID(of))
	case "jpg":
		b, err = d.Thumbnails.ImageOf(ctx, q.Caller.Owner, id, release.ID(of))
	case "shot":
		taken, _, _ := strings.Cut(of, "-")
		b, err = d.Screenshots.ImageOf(ctx, q.Caller.Owner, id, screenshot.Kind(taken))
	default:
		return shell.Answer{}, fault.Missing("page")
	}
	return shell.Raw(func(w http.ResponseWriter) {
		h := w.Header()
		h.Set("Content-Type", kind)
		h.Set("Content-Length", strconv.Itoa(len(b)))
		policy := "default-src 'none'; sandbox; frame-ancestors 'none'"
		if kind == "image/svg+xml" {
			policy += "; style-src 'unsafe-inline'"
		}
		h.Set("Content-Security-Policy", policy)
		h.Set("Cache-Control", "private, max-age=31536000, immutable")
		w.Write(b) // errors mean that the client is gone
	}), err
}
