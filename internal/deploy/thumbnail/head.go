package thumbnail

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"math"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// head holds a page's title, description and icons.
type head struct {
	title, ogTitle, description, heading string
	colors                               []string
	icons                                []icon
	images                               []string // paths
	manifest                             string   // path
}

// icon is the path or the bytes of a candidate for the site's icon.
type icon struct {
	path string
	data []byte
	size int // pixels per side, as far as the page tells
}

// maxIcons caps the icons that are tried.
const maxIcons = 12

// readHead parses the beginning of a page. It tolerates errors, as browsers do.
func readHead(page []byte) (h head) {
	z := html.NewTokenizer(bytes.NewReader(page))
	z.SetMaxBuf(64 << 10)
	drawings := 0 // nested <svg> elements, whose <title> isn't the page's
	for {
		switch z.Next() {
		case html.ErrorToken:
			return h
		case html.EndTagToken:
			if name, _ := z.TagName(); atom.Lookup(name) == atom.Svg && drawings > 0 {
				drawings--
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			t := z.Token()
			switch t.DataAtom {
			case atom.Svg:
				if t.Type == html.StartTagToken {
					drawings++
				}
			case atom.Title:
				if drawings == 0 && h.title == "" {
					h.title = inner(z, atom.Title)
				}
			case atom.H1:
				if h.heading == "" {
					h.heading = inner(z, atom.H1)
				}
				if strings.TrimSpace(h.heading) != "" {
					return h // titles and icons come before this
				}
			case atom.Meta:
				h.meta(t)
			case atom.Link:
				h.link(t)
			}
		}
	}
}

// inner returns the text up to an end tag, truncated.
func inner(z *html.Tokenizer, end atom.Atom) string {
	var b strings.Builder
	for b.Len() < 1000 {
		switch z.Next() {
		case html.ErrorToken:
			return b.String()
		case html.TextToken:
			b.Write(z.Text())
		case html.EndTagToken:
			if name, _ := z.TagName(); atom.Lookup(name) == end {
				return b.String()
			}
		case html.StartTagToken:
			b.WriteByte(' ')
		}
	}
	return b.String()
}

func attr(t html.Token, name string) string {
	for _, a := range t.Attr {
		if a.Key == name {
			return strings.TrimSpace(a.Val)
		}
	}
	return ""
}

func (h *head) meta(t html.Token) {
	content := attr(t, "content")
	switch strings.ToLower(cmp.Or(attr(t, "name"), attr(t, "property"))) {
	case "description", "og:description":
		h.description = cmp.Or(h.description, content)
	case "og:title", "og:site_name":
		h.ogTitle = cmp.Or(h.ogTitle, content)
	case "theme-color":
		if !strings.Contains(attr(t, "media"), "dark") {
			h.colors = append(h.colors, content)
		}
	case "msapplication-tilecolor":
		h.colors = append(h.colors, content)
	case "og:image", "og:image:url", "og:image:secure_url", "twitter:image", "twitter:image:src":
		if at, ok := local(content, ""); ok && len(h.images) < 4 && !slices.Contains(h.images, at) {
			h.images = append(h.images, at)
		}
	}
}

func (h *head) link(t html.Token) {
	rel := strings.Fields(strings.ToLower(attr(t, "rel")))
	href := attr(t, "href")
	touch := slices.Contains(rel, "apple-touch-icon") || slices.Contains(rel, "apple-touch-icon-precomposed")
	switch {
	case touch, slices.Contains(rel, "icon"):
		size := 32
		switch {
		case touch:
			size = 180
		case attr(t, "type") == "image/svg+xml", strings.HasSuffix(href, ".svg"):
			size = 128 // vector graphics fit any size
		}
		h.addIcon(href, "", attr(t, "sizes"), size)
	case slices.Contains(rel, "manifest") && h.manifest == "":
		h.manifest, _ = local(href, "")
	}
}

// readManifest reads a web app manifest (W3C), for what the page itself doesn't say.
func (h *head) readManifest(b []byte) {
	var m struct {
		Name            string `json:"name"`
		ShortName       string `json:"short_name"`
		Description     string `json:"description"`
		ThemeColor      string `json:"theme_color"`
		BackgroundColor string `json:"background_color"`
		Icons           []struct {
			Src   string `json:"src"`
			Sizes string `json:"sizes"`
		} `json:"icons"`
	}
	if json.Unmarshal(b, &m) != nil {
		return
	}
	h.ogTitle = cmp.Or(h.ogTitle, m.Name, m.ShortName)
	h.description = cmp.Or(h.description, m.Description)
	h.colors = append(h.colors, m.ThemeColor, m.BackgroundColor)
	for _, i := range m.Icons {
		h.addIcon(i.Src, path.Dir(h.manifest), i.Sizes, 192)
	}
}

// addIcon adds an icon. Its size is guessed if sizes is empty.
func (h *head) addIcon(href, dir, sizes string, size int) {
	if len(h.icons) >= maxIcons {
		return
	}
	largest := 0
	for _, s := range strings.Fields(strings.ToLower(sizes)) {
		w, _, _ := strings.Cut(s, "x")
		if n, err := strconv.Atoi(w); err == nil {
			largest = max(largest, min(n, 4096))
		}
	}
	size = cmp.Or(largest, size)
	if data, ok := inline(href); ok {
		h.icons = append(h.icons, icon{data: data, size: size})
	} else if at, ok := local(href, dir); ok {
		h.icons = append(h.icons, icon{path: at, size: size})
	}
}

// iconsInOrder returns the icons in the order to try them: the smallest that is large enough, then smaller ones by
// descending size, then default locations.
func (h *head) iconsInOrder() []icon {
	list := slices.Clone(h.icons)
	rank := func(i icon) int {
		if i.size >= IconSize {
			return i.size
		}
		return math.MaxInt32 - i.size
	}
	slices.SortStableFunc(list, func(a, b icon) int { return cmp.Compare(rank(a), rank(b)) })
	for _, at := range []string{"apple-touch-icon.png", "favicon.ico", "favicon.png", "favicon.svg"} {
		list = append(list, icon{path: at})
	}
	return list
}

// local turns a URL in a page into the path of a file of the site. It ignores the host, because pages use their future
// address.
func local(href, dir string) (string, bool) {
	if len(href) > 2000 || href == "" {
		return "", false
	}
	u, err := url.Parse(href)
	if err != nil || u.Opaque != "" || u.Scheme != "" && u.Scheme != "https" && u.Scheme != "http" {
		return "", false
	}
	at := u.Path
	if u.Host == "" && !strings.HasPrefix(at, "/") {
		at = path.Join(dir, at)
	}
	at = strings.TrimPrefix(path.Clean("/"+at), "/")
	return at, at != ""
}

// inline returns the content of an image's data: URL (RFC 2397).
func inline(href string) ([]byte, bool) {
	rest, ok := strings.CutPrefix(href, "data:image/")
	if !ok || len(href) > 256<<10 {
		return nil, false
	}
	kind, text, _ := strings.Cut(rest, ",")
	plain, err := url.PathUnescape(text)
	if err != nil {
		return nil, false
	}
	if !strings.HasSuffix(kind, ";base64") {
		return []byte(plain), true
	}
	b, err := base64.StdEncoding.DecodeString(plain)
	return b, err == nil
}

// clean turns a text into one line of at most most characters, without invisible characters and those that change the text
// direction.
func clean(s string, most int) string {
	s = strings.ToValidUTF8(s, "")
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Co, r):
			return -1
		}
		return r
	}, s)
	runes := []rune(strings.Join(strings.Fields(s), " "))
	if len(runes) > most {
		return strings.TrimSpace(string(runes[:most-1])) + "…"
	}
	return string(runes)
}
