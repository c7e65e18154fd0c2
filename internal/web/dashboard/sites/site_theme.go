package sites

import (
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
	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
)

// Theme is a site's appearance: a screenshot and its icon, or else its initials on a color derived from its subdomain.
type Theme struct {
	Name, Seed string
	Icon       string // URL, or empty
	Screenshot string // URL, or empty
	TakenAt    db.Time
	Online     bool // whether the site has something to show
	Failed     bool // whether the site isn't live because its deployment failed
}

// ThemeOf returns a site's appearance with its screenshots.
func ThemeOf(s site.Site, taken []screenshot.Found) Theme {
	l := Theme{
		Name:   s.Name,
		Seed:   s.Slug,
		Online: s.LiveRelease != "",
		Failed: s.Status == site.Failed,
	}
	if l.Online {
		l.Icon = "/sites/" + string(s.ID) + "/pictures/" + string(s.LiveRelease) + ".icon"
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

// ground returns the site's color as an SVG attribute value.
func (l Theme) ground() string { return fmt.Sprintf("hsl(%d 38%% 45%%)", l.shade()%360) }

// Backdrop returns the background of a site's preview: its color, with shapes derived from its address.
func (l Theme) Backdrop() template.HTML {
	n := l.shade()
	return template.HTML(fmt.Sprintf(
		`<svg class="shot-back" viewBox="0 0 320 140" preserveAspectRatio="none" aria-hidden="true" focusable="false"><rect width="320" height="140" fill="%s"/>`+
			`<circle cx="%d" cy="%d" r="%d" fill="#fff" fill-opacity=".13"/><path d="M0 %d Q80 %d 170 %d T320 %d V140 H0Z" fill="#000" fill-opacity=".16"/></svg>`,
		l.ground(),
		40+n>>3%240,
		10+n>>11%60,
		60+n>>7%50,
		90+n>>13%30,
		60+n>>15%30,
		100+n>>17%20,
		70+n>>19%40,
	))
}

// Picture returns a site's icon, or its initials if it has nothing to show.
func Picture(l Theme) template.HTML {
	if l.Icon != "" {
		return template.HTML(`<img class="picture" src="` + template.HTMLEscapeString(l.Icon) + `" alt="" width="96" height="96" loading="lazy">`)
	}
	return l.drawn()
}

// drawn returns a drawing of the site's initials.
func (l Theme) drawn() template.HTML {
	n := l.shade()
	return template.HTML(fmt.Sprintf(
		`<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 48 48" aria-hidden="true" focusable="false"><rect width="48" height="48" fill="%s"/>`+
			`<circle cx="%d" cy="%d" r="%d" fill="#fff" fill-opacity=".14"/><path d="M0 %d Q14 %d 26 %d T48 %d V48 H0Z" fill="#000" fill-opacity=".28"/>`+
			`<text x="24" y="30.5" text-anchor="middle" fill="#fff" font-family="system-ui, sans-serif" font-size="17" font-weight="640">%s</text></svg>`,
		l.ground(),
		8+n>>3%34,
		8+n>>11%16,
		15+n>>7%12,
		34+n>>13%8,
		26+n>>15%10,
		36+n>>17%6,
		30+n>>19%8,
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

// pictureFile serves the icon of a site's live release (.icon) or a screenshot (.shot). The icon is the tenant's own file
// and is served with a policy under which it can't run or load anything.
func (d *Pages) pictureFile(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[site.ID](q, "id")
	of, part, _ := strings.Cut(q.PathValue("picture"), ".")
	var b []byte
	var err error
	kind, keep := "image/jpeg", "max-age=31536000, immutable"
	switch part {
	case "icon":
		b, kind, err = d.icon(ctx, q.Caller.Owner, id, release.ID(of))
		keep = "max-age=3600" // a site without an icon may be renamed
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
		h.Set("Cache-Control", "private, "+keep)
		w.Write(b) // errors mean that the client is gone
	}), err
}

// icon returns the icon of the owner's site and its media type: a file of the release, which must be live, or a drawing
// of the site's initials.
func (d *Pages) icon(ctx context.Context, owner account.OwnerID, id site.ID, live release.ID) ([]byte, string, error) {
	s, err := d.Sites.Get(ctx, owner, id)
	if err != nil {
		return nil, "", err
	}
	if live == "" || s.LiveRelease != live {
		return nil, "", fault.Missing("page")
	}
	var b []byte
	var kind string
	leave, err := d.icons.Take(ctx, fair.Who{Owner: string(owner)})
	if err == nil {
		b, kind, err = d.Releases.Icon(ctx, live)
		leave()
	}
	if ctx.Err() != nil {
		return nil, "", context.Cause(ctx)
	}
	if err != nil || b == nil { // a picture is no place to say why a release can't be read
		b, kind = []byte(ThemeOf(s, nil).drawn()), "image/svg+xml"
	}
	return b, kind, nil
}
